"""A training run in its folder: lock, resume, metrics, checkpoints, model card, progress."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.progress import TaskID
from torch import Tensor

from ttaps.config import to_toml
from ttaps.distributed import Ranks
from ttaps.errors import CheckpointError
from ttaps.model.checkpoint import note_backbone, save_model
from ttaps.model.own import Factory
from ttaps.progress import Bar, bar, log_info
from ttaps.training import run_dir
from ttaps.training.collapse import CollapseCheck, TrainingCollapsed
from ttaps.training.config import TrainConfig
from ttaps.training.data import Split
from ttaps.training.trainer import ALONE, Trainer, candidates, fastest, measure_accuracy

LOG_EVERY = 25  # steps between rows of metrics.jsonl; the last step has one too
VAL_SUBSET = 2_000  # validation images used during training; all of them at the end


class Run:
    """A training run in a folder, to which only the first of ``ranks`` writes; ``train`` starts it, or resumes it after a kill."""

    def __init__(
        self, config: TrainConfig, folder: Path, split: Split, ranks: Ranks = ALONE, backbone: Factory | None = None
    ) -> None:
        self.config, self.folder, self.ranks = config, folder, ranks
        self.trainer = Trainer(config, split, ranks, backbone)
        self.schedule = self.trainer.schedule
        self.check = CollapseCheck(config.model.num_prototypes, config.model.num_classes)
        self.seconds, self.warned = 0.0, False

    def train(self) -> None:
        """Take the remaining steps, then validate and write the finished model."""
        with run_dir.locked_run_dir(self.folder, self.config) if self.ranks.first else nullcontext():
            first, trainer = self._restore() if self.ranks.first else 0, self.trainer
            self.ranks.assert_equal("their settings or images", to_toml(self.config), trainer.split.digest)
            self.ranks.broadcast(tensor for group in trainer.tensors().values() for tensor in group.values())
            choices = candidates(self.config)
            trainer.numerics = choices[self.ranks.broadcast_int(choices.index(trainer.numerics))]
            trainer.numerics.place(trainer.network)
            first = self.ranks.broadcast_int(first)
            if first < self.schedule.steps:
                self._take_steps(first)
            else:
                log_info(f"{self.folder} is already trained: {first} steps.")

    def _take_steps(self, first: int) -> None:
        saved = time.perf_counter()
        alone = self.ranks.size == 1  # several processes would not stop after the same step
        with bar() as progress, graceful_interrupt(alone) as stop:
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

    def _check_start(self, first: int) -> None:
        """Refuse weights that are not numbers, and say what in the settings may surprise."""
        config, last = self.config, self.schedule.steps - 1
        weights = self.trainer.network.state_dict()
        broken = next((name for name, weight in weights.items() if not weight.isfinite().all()), None)
        if broken and config.stop_on_collapse:
            origin = f"the run in {self.folder}" if first else f"the model '{config.init_from}'"
            remedy = "Start from other weights (--init-from) in another folder."
            what = f"The weights '{broken}' of {origin} are not numbers, before the first step of this run"
            raise TrainingCollapsed(f"{what}.\n{remedy}")
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
            trainer.numerics = fastest(self.config, trainer.network, trainer.device)
            self._check_start(0)
            return 0
        state.check_origin(self.folder, trainer.split.digest, trainer.fingerprint)
        try:
            for group, tensors in trainer.tensors().items():
                for name, tensor in tensors.items():
                    tensor.copy_(state.groups[group][name])
        except (KeyError, RuntimeError) as error:
            message = f"{self.folder} holds the state of another run ({error}).\nDelete it to start again."
            raise CheckpointError(message) from error
        self.seconds = state.seconds
        stored = {str(choice): choice for choice in candidates(self.config)}
        trainer.numerics = stored.get(state.numerics, trainer.numerics)
        run_dir.rewind_metrics(self.folder, state.step)
        if state.step < self.schedule.steps:
            log_info(f"Resuming {self.folder} at step {state.step} of {self.schedule.steps}.")
            self._check_start(state.step)
        return state.step

    def _watch(self, step: int, parts: dict[str, Tensor], progress: Bar, task: TaskID, seconds: float) -> None:
        """Show, log and check a step, and validate now and then."""
        done, epoch_steps = step + 1, self.schedule.epoch_steps
        row = {name: round(part.item(), 5) for name, part in parts.items() if part.ndim == 0}
        shown = "  ".join(f"{name} {value:.3f}" for name, value in row.items())
        progress.update(task, completed=done)
        progress.below = f"{shown}  {min(self.config.batch_size, len(self.trainer.images)) / seconds:.0f} images/s"
        if done % LOG_EVERY == 0 or done == self.schedule.steps:
            rates = self.config.optimizer.rates(self.schedule.lr_factor(step))
            run_dir.log_metrics(self.folder, {"step": done, "epoch": round(done / epoch_steps, 3), **rates, **row})
        try:
            self.check.update(done, parts, self.schedule.warm(step))
        except TrainingCollapsed as collapse:
            if self.config.stop_on_collapse:
                raise
            if not self.warned:
                log_info(f"Not stopped, because of --no-stop-on-collapse: {collapse}")
            self.warned = True
        due = done % max(1, round(self.config.validate_every * epoch_steps)) == 0 and done < self.schedule.steps
        images = self.trainer.split.validation
        if due and len(images):
            share = measure_accuracy(self.trainer.result(), images, self.schedule.size(step), VAL_SUBSET)
            run_dir.log_metrics(self.folder, {"step": done, "validation_accuracy": share})
            log_info(f"step {done}: {100 * share:.1f} % validation accuracy  ({shown})")

    def save(self, step: int, measured: dict[str, float] | None = None) -> None:
        """Write the current model, then the state: after a kill in between, some steps are repeated and nothing is lost."""
        config, trainer = self.config, self.trainer
        info: dict[str, Any] = {"objective": config.objective, "data": trainer.split.train.name, "seed": config.seed}
        info |= {"step": step, "steps": self.schedule.steps}
        info |= {"hours": round(self.seconds / 3600, 2), "hardware": self._hardware()}
        if start := trainer.start:  # with all the hours of training behind it
            hours = start.info.get("hours", 0) + start.info.get("init_from", {}).get("hours", 0)
            info["init_from"] = {"model": config.init_from, "fingerprint": start.fingerprint, "hours": round(hours, 2)}
        if config.backbone:
            info["backbone"] = note_backbone(config.backbone, trainer.network)
        info |= measured or {}
        card = run_dir.model_card(config, info, len(trainer.images))
        save_model(self.folder, trainer.result(), trainer.split.train.classes, info, card)
        run_dir.save_state(self.folder, self.state(step))

    def state(self, step: int) -> run_dir.State:
        """Return the state of the run after a number of steps."""
        trainer = self.trainer
        noted = trainer.split.digest, trainer.fingerprint, str(trainer.numerics)
        return run_dir.State(step, round(self.seconds, 1), trainer.tensors(), *noted)

    def _hardware(self) -> str:
        device, threads, precision = self.trainer.device, torch.get_num_threads(), self.trainer.numerics.precision
        one = f"{threads} CPU thread{'s' * (threads > 1)}" if device.type == "cpu" else str(device)
        one = torch.cuda.get_device_name() if device.type == "cuda" else one
        one += f", {precision}" if precision != "float32" else ""
        return f"{self.ranks.size} processes, each with {one}" if self.ranks.size > 1 else one

    def _finish(self) -> None:
        """Validate on all validation images and write the finished model; the state comes last, so that a kill repeats only this."""
        measured, images = {}, self.trainer.split.validation
        if len(images) and self.config.select_wise_ft:
            self.trainer.select_share()
            share = f"{100 * self.trainer.share:.0f} %"
            log_info(f"WiSE-FT: {share} of the initial weights is best on the validation images.")
        if len(images):
            right = measure_accuracy(self.trainer.result(), images, self.config.model.image_size)
            measured["validation_accuracy"] = right
            log_info(f"Finished: {100 * right:.1f} % accuracy on {len(images):,} validation images.")
        run_dir.log_metrics(self.folder, {"step": self.schedule.steps, **measured})
        self.save(self.schedule.steps, measured)


@contextmanager
def graceful_interrupt(listen: bool = True) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or a scheduler's SIGTERM end a run between steps; yield a function that returns whether one came."""
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        if received:  # the second one interrupts at once
            raise KeyboardInterrupt
        received.append(number)

    listen = listen and threading.current_thread() is threading.main_thread()  # other threads get no signals
    signals = (signal.SIGINT, signal.SIGTERM) if listen else ()
    # A job in the background ignores Ctrl-C, and must keep ignoring it.
    heard = [number for number in signals if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, receive) for number in heard}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
