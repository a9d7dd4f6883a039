"""A training run in its folder: lock, resume, metrics, checkpoints, model card, progress."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch
from rich.progress import TaskID
from torch import Tensor

from ttaps.config import to_toml
from ttaps.distributed import Ranks
from ttaps.errors import CheckpointError, UsageError
from ttaps.model.checkpoint import save_model
from ttaps.progress import Bar, bar, log_info
from ttaps.training import run_dir
from ttaps.training.card import model_card
from ttaps.training.collapse import CollapseCheck, TrainingCollapsed
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.init_from import describe_init
from ttaps.training.numerics import candidates, fastest
from ttaps.training.trainer import ALONE, Trainer

LOG_EVERY = 25  # steps between rows of metrics.jsonl; the last step has one too
VAL_SUBSET = 2_000  # validation images used during training; all of them at the end
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Run:
    """A training run in a folder. ``Run(...).train()`` starts it, or resumes it where it was killed.

    With several ``ranks``, only the first touches the folder.
    """

    def __init__(
        self, config: TrainConfig, folder: Path, split: Split, device: str = "cpu", ranks: Ranks = ALONE
    ) -> None:
        self.config, self.folder, self.ranks = config, folder, ranks
        self.trainer = Trainer(config, split, device, ranks)
        self.schedule = self.trainer.schedule
        self.check = CollapseCheck(config.model.num_prototypes, config.model.num_classes)
        self.seconds, self.warned = 0.0, False

    def train(self) -> None:
        """Take the steps that are left, then validate and write the finished model."""
        if not self.ranks.first:
            self._train()
            return
        with run_dir.locked_run_dir(self.folder, self.config):
            self._train()

    def _train(self) -> None:
        first = self._begin()
        if first >= self.schedule.steps:
            log_info(f"{self.folder} is already trained: {first} steps.")
            return
        saved = time.perf_counter()
        with bar() as progress, graceful_interrupt(self.ranks.size == 1) as stop:
            task = progress.add_task(self.config.objective, total=self.schedule.steps, completed=first, note="")
            for step in range(first, self.schedule.steps):
                began = time.perf_counter()
                if step and self.ranks.first and self.schedule.joint_begins(step):
                    run_dir.save_state(self.folder, self.state(step), run_dir.FORK)
                parts = self.trainer.step(step)
                if not self.ranks.first:
                    continue
                self._watch(step, parts, progress, task, time.perf_counter() - began)
                self.seconds += time.perf_counter() - began
                due = stop() or time.perf_counter() - saved > 60 * self.config.checkpoint_minutes
                if due and step + 1 < self.schedule.steps:  # a state with all steps done means that the run is finished
                    self.save(step + 1)
                    saved = time.perf_counter()
                    if stop():
                        raise KeyboardInterrupt
        if self.ranks.first:
            self._finish()
        if stop():  # in the last step
            raise KeyboardInterrupt

    def _begin(self) -> int:
        """Restore or start the run, alike in all processes, and return its first step."""
        first, trainer = 0, self.trainer
        if self.ranks.first:
            first = self._restore()
            if first == 0:
                trainer.numerics = fastest(self.config, trainer.network, trainer.device)
            if first < self.schedule.steps:
                self._check_start(first)
        if self.ranks.size > 1:
            self.ranks.assert_equal("their settings or images", to_toml(self.config), trainer.split.digest)
            self.ranks.broadcast(tensor for group in trainer.tensors().values() for tensor in group.values())
            choices = candidates(self.config)
            trainer.numerics = choices[self.ranks.broadcast_int(choices.index(trainer.numerics))]
            first = self.ranks.broadcast_int(first)
        trainer.numerics.place(trainer.network)
        return first

    def _check_start(self, first: int) -> None:
        """Refuse weights that are not numbers, and say what in the settings may surprise."""
        config, last = self.config, self.schedule.steps - 1
        weights = self.trainer.network.state_dict()
        broken = next((name for name, weight in weights.items() if not weight.isfinite().all()), None)
        if broken and config.stop_on_collapse:
            origin = f"the run in {self.folder}" if first else f"the model '{config.init_from}'"
            raise TrainingCollapsed(
                f"The weights '{broken}' of {origin} are not numbers, before the first step of this run.\n"
                "Start from other weights (--init-from) in another folder."
            )
        if config.objective != "baseline" and not self.schedule.joint_weight(last):
            log_info(
                f"The loss of {config.objective} begins at epoch {config.schedule.joint_start_epoch:g}, but the run "
                f"ends at {config.epochs:g}: only the cross-entropy is trained.\nLower --schedule.joint-start-epoch."
            )
        if (size := self.schedule.size(last)) != config.model.image_size:
            log_info(
                f"Training ends at {size} pixels (schedule.resolutions); the network is validated and used at "
                f"{config.model.image_size} (model.image_size)."
            )

    def _restore(self) -> int:
        """Load the saved state, and return the step to resume at."""
        state, trainer = run_dir.load_state(self.folder), self.trainer
        if state is None:
            run_dir.rewind_metrics(self.folder, 0)
            return 0
        run_dir.check_images(self.folder, state, trainer.split.digest)
        if trainer.start and state.start and state.start != trainer.start.fingerprint:
            raise UsageError(
                f"{self.folder} started from other weights than '{self.config.init_from}' has now.\n"
                "Restore those, or train in another folder."
            )
        try:
            for group, tensors in trainer.tensors().items():
                for name, tensor in tensors.items():
                    tensor.copy_(state.groups[group][name])
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"{self.folder} holds the state of another run ({error}).\nDelete it to start again."
            ) from error
        self.seconds = state.seconds
        stored = (choice for choice in candidates(self.config) if str(choice) == state.numerics)
        trainer.numerics = next(stored, trainer.numerics)
        run_dir.rewind_metrics(self.folder, state.step)
        if state.step < self.schedule.steps:
            log_info(f"Resuming {self.folder} at step {state.step} of {self.schedule.steps}.")
        return state.step

    def _watch(self, step: int, parts: dict[str, Tensor], progress: Bar, task: TaskID, seconds: float) -> None:
        """Show, log and check a step, and validate now and then."""
        done, epoch_steps = step + 1, self.schedule.epoch_steps
        row = {name: round(part.item(), 5) for name, part in parts.items() if part.ndim == 0}
        shown = "  ".join(f"{name} {value:.3f}" for name, value in row.items())
        progress.update(task, completed=done)
        images = min(self.config.batch_size, len(self.trainer.images))
        progress.below = f"{shown}  {images / seconds:.0f} images/s"
        if done % LOG_EVERY == 0 or done == self.schedule.steps:
            place = {"step": done, "epoch": round(self.schedule.epoch(done), 3), "lr": self.schedule.lr_factor(step)}
            run_dir.log_metrics(self.folder, {**place, **row})
        try:
            self.check.update(done, parts, self.schedule.warm(step))
        except TrainingCollapsed as collapse:
            if self.config.stop_on_collapse:
                raise
            if not self.warned:
                log_info(f"Not stopped, because of --no-stop-on-collapse: {collapse}")
            self.warned = True
        due = done % max(1, round(self.config.validate_every * epoch_steps)) == 0 and done < self.schedule.steps
        if due and len(self.trainer.split.validation):
            accuracy = self.trainer.validate(self.schedule.size(step), VAL_SUBSET)
            run_dir.log_metrics(self.folder, {"step": done, "validation_accuracy": accuracy})
            log_info(f"step {done}: {100 * accuracy:.1f} % validation accuracy  ({shown})")

    def save(self, step: int, measured: dict[str, float] | None = None) -> None:
        """Write the model so far, then the state: a kill between the two repeats some steps and loses nothing."""
        config, trainer = self.config, self.trainer
        info = {
            "objective": config.objective,
            "data": trainer.split.train.name,
            "seed": config.seed,
            "step": step,
            "steps": self.schedule.steps,
            "hours": round(self.seconds / 3600, 2),
            "hardware": self._hardware(),
            **({"init_from": describe_init(config.init_from, trainer.start)} if trainer.start else {}),
            **(measured or {}),
        }
        card = model_card(config, info, len(trainer.images))
        save_model(self.folder, trainer.result(), trainer.split.train.classes, info, card)
        run_dir.save_state(self.folder, self.state(step))

    def state(self, step: int) -> run_dir.State:
        """Return the state of the run after so many steps."""
        trainer = self.trainer
        start = trainer.start.fingerprint if trainer.start else ""
        return run_dir.State(step, self.seconds, trainer.tensors(), trainer.split.digest, start, str(trainer.numerics))

    def _hardware(self) -> str:
        device, threads = self.trainer.device, torch.get_num_threads()
        names = {"cpu": lambda: f"{threads} CPU thread{'s' * (threads > 1)}", "cuda": torch.cuda.get_device_name}
        one = names.get(device.type, lambda: str(device))()
        precision = self.trainer.numerics.precision
        one += f", {precision}" if precision != "float32" else ""
        return f"{self.ranks.size} processes, each with {one}" if self.ranks.size > 1 else one

    def _finish(self) -> None:
        """Validate on all validation images and write the finished model; the state comes last, so that a kill repeats only this."""
        count, measured = len(self.trainer.split.validation), {}
        if count:
            measured["validation_accuracy"] = self.trainer.validate(self.config.model.image_size)
            log_info(
                f"Finished: {100 * measured['validation_accuracy']:.1f} % accuracy on {count:,} validation images."
            )
        run_dir.log_metrics(self.folder, {"step": self.schedule.steps, **measured})
        self.save(self.schedule.steps, measured)


@contextmanager
def graceful_interrupt(listen: bool = True) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and a scheduler's SIGTERM end a run between two steps: yield a function that tells whether one came.

    A second signal interrupts at once. One of several processes does not ``listen``: they would not stop after the same step.
    """
    received: list[int] = []
    if not listen or threading.current_thread() is not threading.main_thread():  # other threads get no signals
        yield lambda: False
        return

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    # A job in the background ignores Ctrl-C, and shall still.
    heard = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, receive) for number in heard}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
