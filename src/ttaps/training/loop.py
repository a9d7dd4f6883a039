"""The training loop: draw, step, watch, save. Everything random is a function of (seed, step), so a killed run resumes exactly."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from rich.progress import TaskID
from torch import Tensor
from torch.nn import functional as F

from ttaps.config import to_toml
from ttaps.distributed import Ranks
from ttaps.errors import CheckpointError, UsageError
from ttaps.model import Network, eval_mode, to_float
from ttaps.model.checkpoint import Model, save_model
from ttaps.model.heads import start_rotation_head
from ttaps.progress import Bar, bar, log_info
from ttaps.rng import derive_seed
from ttaps.training.batch import Batch, batch_indices, epoch_order, epoch_steps
from ttaps.training.card import model_card
from ttaps.training.config import TrainConfig
from ttaps.training.folder import locked_run_dir
from ttaps.training.health import Health, TrainingCollapsed
from ttaps.training.numerics import candidates, fastest
from ttaps.training.objectives import OBJECTIVES
from ttaps.training.optimizer import Optimizer, WeightEMA
from ttaps.training.schedule import Schedule
from ttaps.training.split import Split
from ttaps.training.start import facts, has_trained, init_model, interpolate_weights, load_init_weights
from ttaps.training.state import FORK, State, check_images, load_state, log_metrics, rewind_metrics, save_state
from ttaps.training.stop import graceful_interrupt
from ttaps.training.validation import accuracy

LOG_EVERY = 25  # steps between rows of metrics.jsonl; the last step has one too
VAL_SUBSET = 2_000  # validation images looked at while training; all of them at the end
ALONE = Ranks()


class Run:
    """A training run in a folder. ``Run(...).train()`` starts it, or goes on where it was killed.

    With several ``ranks`` each takes some rows of every batch; only the first touches the folder.
    """

    def __init__(
        self, config: TrainConfig, folder: Path, split: Split, device: str = "cpu", ranks: Ranks = ALONE
    ) -> None:
        if ranks.size > 1 and config.model.norm == "batch":
            raise UsageError("model.norm = batch needs the whole batch in one process: use 1 process or group norm.")
        self.config, self.folder, self.split, self.ranks = config, folder, split, ranks
        self.device = torch.device(device)
        self.start = init_model(config.init_from)
        if self.start and config.wise_ft and self.start.classes != split.train.classes:
            raise UsageError(
                f"wise_ft mixes classifiers, but '{config.init_from}' was trained for other classes than {config.data} has: --wise-ft 0."
            )
        # A run that goes on from weights sees other orders and views than the run that made them.
        self.seed = derive_seed(config.seed, "after", self.start.fingerprint) if self.start else config.seed
        self.network = initial_network(config, self.start, split.train.classes).to(self.device)
        weights = dict(self.network.named_parameters())
        self.optimizer = Optimizer(weights, config.optimizer)
        self.average = WeightEMA(weights.items(), config.ema_decay) if config.ema_decay else None
        self.images = torch.from_numpy(split.train.images).to(self.device)
        self.labels = torch.from_numpy(split.train.labels).to(self.device)
        self.schedule = Schedule(config, epoch_steps(len(self.images), config.batch_size))
        self.health = Health(config.model.num_prototypes, config.model.num_classes)
        self.objective = OBJECTIVES[config.objective]
        self.numerics = candidates(config)[0]
        self.seconds, self.warned = 0.0, False
        if config.compile:
            self.network.backbone.compile()

    def train(self) -> None:
        """Do the steps that are left, then validate and write the finished model."""
        if not self.ranks.first:
            self._train()
            return
        with locked_run_dir(self.folder, self.config):
            self._train()

    def _train(self) -> None:
        first = self.restore() if self.ranks.first else 0
        if self.ranks.first and first == 0:
            self.numerics = fastest(self.config, self.network, self.device)
        if self.ranks.size > 1:
            first = self._start_alike(first)
        self.numerics.place(self.network)
        if first >= self.schedule.steps:
            log_info(f"{self.folder} is already trained: {first} steps.")
            return
        if (
            self.ranks.first
            and self.config.objective != "baseline"
            and not self.schedule.joint_weight(self.schedule.steps - 1)
        ):
            log_info(
                f"The loss of {self.config.objective} begins at epoch {self.config.loss.joint_start_epoch:g}, but the run ends at "
                f"{self.config.epochs:g}: only the cross-entropy is trained.\nLower --loss.joint-start-epoch, --optimizer.lr-hold-epochs."
            )
        saved = time.perf_counter()
        with bar() as progress, graceful_interrupt(self.ranks.size == 1) as stop:
            task = progress.add_task(f"{self.config.objective}", total=self.schedule.steps, completed=first, note="")
            for step in range(first, self.schedule.steps):
                began = time.perf_counter()
                if step and self.ranks.first and self.schedule.joint_begins(step):
                    save_state(self.folder, self.state(step), FORK)
                parts = self.step(step)
                if not self.ranks.first:
                    continue
                self.watch(step, parts, progress, task, time.perf_counter() - began)
                self.seconds += time.perf_counter() - began
                due = stop() or time.perf_counter() - saved > 60 * self.config.checkpoint_minutes
                if due and step + 1 < self.schedule.steps:  # a state with all steps done says that the run is finished
                    self.save(step + 1)
                    saved = time.perf_counter()
                    if stop():
                        raise KeyboardInterrupt
        if self.ranks.first:
            self.finish()
        if stop():  # in the last step
            raise KeyboardInterrupt

    def _start_alike(self, first: int) -> int:
        """Make sure that all processes were told the same; then give them what the first has, and return its step."""
        self.ranks.assert_equal("their settings or images", to_toml(self.config), self.split.digest)
        self.ranks.broadcast(tensor for group in self.groups().values() for tensor in group.values())
        ways = candidates(self.config)
        self.numerics = ways[self.ranks.broadcast_int(ways.index(self.numerics))]
        return self.ranks.broadcast_int(first)

    def step(self, step: int) -> dict[str, Tensor]:
        """One gradient step on one batch."""
        batch = self.batch(step)
        joint = self.schedule.joint_weight(step)
        if self.schedule.joint_begins(step):
            self.begin_joint(self.schedule.size(step), self.start if step == 0 else None)
        with self.numerics.autocast(self.device):
            parts = self.objective(self.network, batch, self.config.loss, joint)
        self.network.zero_grad(set_to_none=True)
        (parts["loss"] * batch.share).backward()
        if self.schedule.prototypes_frozen(step):
            self.network.prototypes.grad = None
        self.ranks.add_gradients(self.network.parameters())
        self.optimizer.step(self.schedule.lr_factor(step))
        self.network.renormalize_prototypes()
        if self.average:
            self.average.update(self.network.named_parameters(), step)
        return self.ranks.reduce_metrics(parts, batch)

    def begin_joint(self, size: int, start: Model | None = None) -> None:
        """Start what rested while the cross-entropy was alone near what the network has learnt by now, unless ``start`` had trained it."""
        if self.config.loss.init_prototypes_from_data and not has_trained(start, self.network, "prototypes"):
            self.seed_prototypes(size)
        if self.config.objective == "ttt" and not has_trained(start, self.network, "rotation"):
            start_rotation_head(self.network)
        if self.average:  # what has rested until now has no past to average
            rested = (item for item in self.network.named_parameters() if item[0].startswith(("prototypes", "heads.")))
            self.average.restart(rested)

    @torch.no_grad()
    def seed_prototypes(self, size: int) -> None:
        """Put prototypes where training images are, as far as there are so many: cross-entropy alone has left the random ones far off."""
        chosen = epoch_order(len(self.images), self.seed, -1)[: self.config.model.num_prototypes].to(self.device)
        pictures = F.interpolate(to_float(self.images[chosen]), (size, size), mode="bilinear", antialias=True)
        with eval_mode(self.network):  # a BatchNorm must not count these pictures
            seeds = torch.cat([self.network.project(part) for part in pictures.split(128)])
        self.network.prototypes[: len(seeds)] = seeds.float()
        self.ranks.broadcast([self.network.prototypes])

    def batch(self, step: int) -> Batch:
        """Return the images of one step, or this process's rows of them."""
        task = self.config.loss.task_images if self.config.objective == "mt3" else 1
        chosen = batch_indices(len(self.images), self.config.batch_size, self.seed, step)
        chosen = chosen[: len(chosen) // task * task]
        if not len(chosen):
            raise UsageError(
                f"mt3 needs at least {task} training images, a task (loss.task_images), not {len(self.images)}."
            )
        rows = self.ranks.rows(len(chosen), task)
        own, size = chosen[rows].to(self.device), self.schedule.size(step)
        common = self.seed, step, size, rows, len(chosen), self.ranks.logsumexp
        return Batch(self.images[own], self.labels[own], *common)

    def watch(self, step: int, parts: dict[str, Tensor], progress: Bar, task: TaskID, seconds: float) -> None:
        """Show, log, judge, and now and then validate."""
        done = step + 1
        row = {name: round(part.item(), 5) for name, part in parts.items() if part.ndim == 0}
        shown = "  ".join(f"{name} {value:.3f}" for name, value in row.items())
        progress.update(task, completed=done)
        progress.below = f"{shown}  {self.config.batch_size / seconds:.0f} images/s"
        if done % LOG_EVERY == 0 or done == self.schedule.steps:
            log_metrics(
                self.folder,
                {
                    "step": done,
                    "epoch": round(self.schedule.epoch(done), 3),
                    "lr": self.schedule.lr_factor(step),
                    **row,
                },
            )
        try:
            self.health.look(done, parts, self.schedule.warm(step))
        except TrainingCollapsed as trouble:
            if self.config.stop_on_collapse:
                raise
            if not self.warned:
                log_info(f"Going on all the same, as told: {trouble}")
            self.warned = True
        if (
            done % max(1, round(self.config.validate_every * self.schedule.epoch_steps)) == 0
            and done < self.schedule.steps
            and len(self.split.validation)
        ):
            right = self.validate(self.schedule.size(step), VAL_SUBSET)
            log_metrics(self.folder, {"step": done, "validation_accuracy": right})
            log_info(f"step {done}: {100 * right:.1f} % of validation images right  ({shown})")

    def validate(self, size: int, limit: int | None = None) -> float:
        """Accuracy on validation images, with the averaged weights where there are any."""
        images, labels = self.split.validation.images[:limit], self.split.validation.labels[:limit]
        return accuracy(self.result(), torch.from_numpy(images), torch.from_numpy(labels), size)

    def result(self) -> Network:
        """Return the network as it would be delivered now: the averaged or the last weights, with a share of those it started from."""
        if not self.average and not self.config.wise_ft:
            return self.network
        weights = self.network.state_dict() | (self.average.weights if self.average else {})
        if self.start and self.config.wise_ft:
            weights = interpolate_weights(weights, self.start, self.config.wise_ft)
        network = Network(self.config.model).to(self.device)
        network.load_state_dict(weights)
        network.renormalize_prototypes()
        return network

    def save(self, step: int, measured: dict[str, float] | None = None) -> None:
        """Write the model so far, then where the run stands: a kill between the two repeats some steps and loses nothing."""
        self.save_model(step, measured or {})
        save_state(self.folder, self.state(step))

    def state(self, step: int) -> State:
        """Return where the run stands after so many steps."""
        start = self.start.fingerprint if self.start else ""
        return State(step, self.seconds, self.groups(), self.split.digest, start, str(self.numerics))

    def groups(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that change from step to step."""
        groups = {"weights": self.network.state_dict(), "momentum": self.optimizer.momentum}
        return groups | ({"average": self.average.weights} if self.average else {})

    def save_model(self, step: int, measured: dict[str, float]) -> None:
        """Write the model folder of design: weights, config, card."""
        info = {
            "objective": self.config.objective,
            "data": self.split.train.name,
            "seed": self.config.seed,
            "step": step,
            "steps": self.schedule.steps,
            "hours": round(self.seconds / 3600, 2),
            "hardware": self.hardware(),
            **({"init_from": facts(self.config.init_from, self.start)} if self.start else {}),
            **measured,
        }
        card = model_card(self.config, info, len(self.images))
        save_model(self.folder, self.result(), self.split.train.classes, info, card)

    def hardware(self) -> str:
        """Say what the run runs on."""
        threads = torch.get_num_threads()
        names = {"cpu": lambda: f"{threads} CPU thread{'s' * (threads > 1)}", "cuda": torch.cuda.get_device_name}
        one = names.get(self.device.type, lambda: str(self.device))()
        one += f", {self.numerics.precision}" if self.numerics.precision != "float32" else ""
        return f"{self.ranks.size} processes, each with {one}" if self.ranks.size > 1 else one

    def restore(self) -> int:
        """Take up the saved state, and return the step to go on with."""
        state = load_state(self.folder)
        if state is None:
            rewind_metrics(self.folder, 0)
            return 0
        check_images(self.folder, state, self.split.digest)
        if self.start and state.start and state.start != self.start.fingerprint:
            raise UsageError(
                f"{self.folder} started from other weights than '{self.config.init_from}' has now.\n"
                "Bring those back, or train anew in another folder."
            )
        try:
            for group, tensors in self.groups().items():
                for name, tensor in tensors.items():
                    tensor.copy_(state.groups[group][name])
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"{self.folder} holds the state of another run ({error}).\nDelete it to start again."
            ) from error
        self.seconds = state.seconds
        self.numerics = next((way for way in candidates(self.config) if str(way) == state.numerics), self.numerics)
        rewind_metrics(self.folder, state.step)
        if state.step < self.schedule.steps:
            log_info(f"Going on with {self.folder} at step {state.step} of {self.schedule.steps}.")
        return state.step

    def finish(self) -> None:
        """Validate on all held-out images and write the finished model; the state goes last, so that a kill here repeats only this."""
        measured = (
            {"validation_accuracy": self.validate(self.config.model.image_size)} if len(self.split.validation) else {}
        )
        for right in measured.values():
            log_info(f"Finished: {100 * right:.1f} % of {len(self.split.validation):,} validation images right.")
        log_metrics(self.folder, {"step": self.schedule.steps, **measured})
        self.save(self.schedule.steps, measured)


def initial_network(config: TrainConfig, start: Model | None = None, classes: tuple[str, ...] = ()) -> Network:
    """Return the network before the first step: drawn, a function of the seed whatever was drawn before, or the weights of a model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "weights"))
        network = Network(config.model).train()
    if start:
        load_init_weights(network, start, classes)
    return network
