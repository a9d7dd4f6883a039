"""MT3: its meta-gradient against finite differences, its losses and steps against hand-written ones."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from helpers.small_training import TINY, dying_at
from ttaps import losses
from ttaps.adaptation import Mt3, supported_methods
from ttaps.adaptation.spec import parse_method
from ttaps.data import ImageSet
from ttaps.errors import UsageError
from ttaps.model import Network
from ttaps.model.checkpoint import load_model
from ttaps.rng import generator
from ttaps.training.config import Mt3Config, OptimizerConfig, ScheduleConfig, TrainConfig
from ttaps.training.data import Split, TrainBatch
from ttaps.training.objectives import OBJECTIVES, clipped, draw_tasks, inner_step
from ttaps.training.optimizer import Optimizer
from ttaps.training.run import Run
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import Trainer
from ttaps.views import MT3_VIEWS, ShiftViews, shift_task

WITH_HEAD = replace(TINY, heads=("predictor",), classifier_scale=10.0)
SHORT = TrainConfig(
    objective="mt3",
    epochs=1,
    batch_size=16,
    checkpoint_minutes=0.0,
    validate_every=100,
    model=WITH_HEAD,
    optimizer=OptimizerConfig(lr=0.01, clip_grad_per_param=10.0),
    schedule=ScheduleConfig(warmup_epochs=0, lr_schedule="constant", resolutions=(8,)),
)


def with_mt3(config: Mt3Config) -> TrainConfig:
    return replace(SHORT, batch_size=6, mt3=config)


@pytest.fixture
def network() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(WITH_HEAD).eval()


@pytest.fixture
def batch(textures: ImageSet) -> TrainBatch:
    images, labels = torch.from_numpy(textures.images[:6]), torch.from_numpy(textures.labels[:6])
    return TrainBatch(images, labels, seed=0, step=3, size=8, rows=slice(6), total=6)


# --- the loss


def distance(predictions: Tensor, targets: Tensor) -> Tensor:
    """‖p/‖p‖ - z/‖z‖‖², which is 2 - 2 cos."""
    p, z = (vectors.div(vectors.norm(dim=1, keepdim=True)) for vectors in (predictions, targets))
    return (p - z).square().sum(1)


def test_byol_is_the_square_distance_of_unit_vectors() -> None:
    draw = torch.Generator().manual_seed(0)
    p_s, p_t, z_s, z_t = torch.randn(4, 5, 7, generator=draw, dtype=torch.float64)
    got = losses.byol(torch.cat([p_s, p_t]), torch.cat([z_s, z_t]))
    torch.testing.assert_close(got, (distance(p_s, z_t) + distance(p_t, z_s)).mean())
    assert losses.byol(torch.cat([z_t, z_s]), torch.cat([z_s, z_t])) == pytest.approx(0, abs=1e-12)
    assert losses.byol(-torch.cat([z_t, z_s]), torch.cat([z_s, z_t])) == pytest.approx(8)


def test_byol_moves_predictions_and_not_targets() -> None:
    p, z = (torch.randn(4, 3, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(2))
    losses.byol(p, z).backward()
    assert p.grad is not None
    assert z.grad is None


# --- tasks


@pytest.mark.parametrize("seed", range(8))
def test_a_task_is_changed_as_a_whole(seed: int) -> None:
    images = torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(9))
    got = shift_task(images, torch.Generator().manual_seed(seed))
    draw = torch.Generator().manual_seed(seed)
    upside_down, mirrored, blurred, brightness, noise = torch.rand(5, generator=draw).tolist()
    images = images.flip(2) if upside_down < 0.5 else images
    images = images.flip(3) if mirrored < 0.5 else images
    if blurred < 0.2:
        bell = torch.tensor([-0.5, 0.0, -0.5]).exp()
        kernel = (bell[:, None] * bell / bell.sum() ** 2).expand(3, 1, 3, 3)
        images = F.conv2d(F.pad(images, (1, 1, 1, 1), mode="reflect"), kernel, groups=3)
    grain = torch.randn(images.shape, generator=draw)
    torch.testing.assert_close(got, (images + 0.4 * brightness - 0.2 + 0.02 * noise * grain).clamp(0, 1))


def test_those_seeds_change_everything() -> None:
    drawn = torch.stack([torch.rand(5, generator=torch.Generator().manual_seed(seed)) for seed in range(8)])
    for column, bound in enumerate((0.5, 0.5, 0.2)):
        assert set((drawn[:, column] < bound).tolist()) == {True, False}


def test_tasks_hold_two_views_of_each_image_and_the_image(batch: TrainBatch) -> None:
    tasks = draw_tasks(batch, 4)  # four images, and the two that are left
    kinds = (MT3_VIEWS, "s"), (MT3_VIEWS, "t"), (ShiftViews(padding=2, flip_p=0.0), "crop")
    views = [batch.views(kind, name) for kind, name in kinds]
    for number, rows in enumerate((slice(0, 4), slice(4, 6))):
        own = torch.cat([view[rows] for view in views])
        assert torch.equal(tasks[number], shift_task(own, generator(batch.seed, "task", batch.step, number)))
    assert len(tasks) == 2


@pytest.mark.parametrize(("images", "used"), [(16, 16), (15, 8), (9, 8)])
def test_few_images_are_cut_to_whole_tasks(textures: ImageSet, images: int, used: int) -> None:
    few = replace(textures, images=textures.images[:images], labels=textures.labels[:images])
    config = TrainConfig(objective="mt3", batch_size=64, model=replace(TINY, heads=("predictor",)))
    batch = Trainer(config, Split(few, few)).batch(0)
    assert (len(batch.images), batch.total) == (used, used)


def test_less_than_a_task_is_refused(textures: ImageSet) -> None:
    few = replace(textures, images=textures.images[:7], labels=textures.labels[:7])
    config = TrainConfig(objective="mt3", batch_size=64, model=replace(TINY, heads=("predictor",)))
    with pytest.raises(UsageError, match=r"at least one task of 8 training images .*, not 7"):
        Trainer(config, Split(few, few)).batch(0)


def test_sharing_a_batch_out_changes_no_task(batch: TrainBatch) -> None:
    parts = [
        draw_tasks(replace(batch, images=batch.images[rows], rows=rows, total=6), 2)
        for rows in (slice(0, 4), slice(4, 6))
    ]
    torch.testing.assert_close([*parts[0], *parts[1]], draw_tasks(batch, 2))


# --- the meta-gradient


def stepped(network: Network, pairs: Tensor, targets: Tensor, lr: float, clip: float) -> Network:
    """One inner step by hand, with targets from outside, on a copy."""
    copy = deepcopy(network)
    moving = {n: w for n, w in copy.named_parameters() if n.startswith(("backbone", "projector", "heads.predictor"))}
    predictions = copy.heads["predictor"](copy.project(pairs))
    loss = 2 * distance(predictions, targets).mean()
    for weight, gradient in zip(moving.values(), torch.autograd.grad(loss, list(moving.values())), strict=True):
        weight.data -= lr * gradient * min(1.0, clip / float(gradient.norm()))
    return copy


def swapped(z: Tensor) -> Tensor:
    half = len(z) // 2
    return torch.cat([z[half:], z[:half]]).detach()


def outer(network: Network, batch: TrainBatch, config: Mt3Config, held: list[tuple[Tensor, Tensor]] | None) -> Any:
    """The meta-loss by hand; ``held`` are the targets of every task before and after its step, constants of the derivative."""
    n, kept, total = config.task_images, [], torch.zeros((), dtype=torch.float64)
    tasks = draw_tasks(batch, n)
    for number, task in enumerate(tasks):
        pairs, crops = task[: 2 * n], task[2 * n :]
        before = held[number][0] if held else swapped(network.project(pairs))
        adapted = stepped(network, pairs, before, config.inner_lr, config.inner_clip)
        after = held[number][1] if held else swapped(adapted.project(pairs))
        byol = 2 * distance(adapted.heads["predictor"](adapted.project(pairs)), after).mean()
        cross_entropy = F.cross_entropy(adapted(crops), batch.labels[number * n : (number + 1) * n])
        total = total + (cross_entropy + config.gamma_byol * byol).detach() / len(tasks)
        kept.append((before, after))
    return total if held else (total, kept)


@pytest.mark.parametrize("clip", [10.0, 0.05])
def test_meta_gradient_is_that_of_finite_differences(network: Network, batch: TrainBatch, clip: float) -> None:
    """Along a random direction in the weights of every part; the targets are constants, as in the authors' code.

    Differences of 1e-8, because the inner gradient jumps at the kinks of ReLU: 1e-5 crosses some.
    """
    network, config = network.double(), Mt3Config(task_images=3, inner_lr=0.5, gamma_byol=0.3, inner_clip=clip)
    value, held = outer(network, batch, config, None)
    parts = OBJECTIVES["mt3"](network, batch, with_mt3(config), 1.0)
    torch.testing.assert_close(parts["loss"].detach(), value, rtol=1e-10, atol=0)
    parts["loss"].backward()
    draw = torch.Generator().manual_seed(1)
    for part in ("backbone.stem", "backbone.stage2", "backbone.stage3", "projector", "heads.predictor", "classifier"):
        moving = {name: weight for name, weight in network.named_parameters() if name.startswith(part)}
        direction = {n: torch.randn(w.shape, generator=draw, dtype=torch.float64) for n, w in moving.items()}
        slope = sum(float((w.grad * direction[n]).sum()) for n, w in moving.items() if w.grad is not None)
        ends = [outer(moved(network, direction, step), batch, config, held) for step in (1e-8, -1e-8)]
        assert slope == pytest.approx(float(ends[0] - ends[1]) / 2e-8, rel=1e-5, abs=1e-8), part
        assert abs(slope) > 1e-3, part


def moved(network: Network, direction: dict[str, Tensor], step: float) -> Network:
    copy = deepcopy(network)
    for name, weight in copy.named_parameters():
        if name in direction:
            weight.data += step * direction[name]
    return copy


def test_meta_gradient_is_of_second_order(network: Network, batch: TrainBatch) -> None:
    """The predictor takes no part in the cross-entropy, so without BYOL after the step only the second order reaches it."""
    OBJECTIVES["mt3"](network, batch, with_mt3(Mt3Config(task_images=3, gamma_byol=0.0)), 1.0)["loss"].backward()
    assert all(w.grad is not None and w.grad.norm() > 0 for w in network.heads["predictor"].parameters())


def test_no_inner_step_is_plain_training(network: Network, batch: TrainBatch) -> None:
    parts = OBJECTIVES["mt3"](network, batch, with_mt3(Mt3Config(task_images=3, inner_lr=0.0, gamma_byol=0.0)), 1.0)
    crops = torch.cat([task[6:] for task in draw_tasks(batch, 3)])
    torch.testing.assert_close(parts["loss"], F.cross_entropy(network(crops), batch.labels))


# --- clipping


def test_clipping_shortens_long_gradients_only() -> None:
    gradient = torch.tensor([3.0, 4.0])
    assert torch.equal(clipped(gradient, 10.0), gradient)
    torch.testing.assert_close(clipped(gradient, 1.0), torch.tensor([0.6, 0.8]))
    assert torch.equal(clipped(torch.zeros(2), 1.0), torch.zeros(2))


def test_the_optimizer_clips_every_weight_by_itself() -> None:
    weights = {"long": nn.Parameter(torch.zeros(2)), "short": nn.Parameter(torch.ones(2))}
    weights["long"].grad, weights["short"].grad = torch.tensor([30.0, 40.0]), torch.tensor([0.3, 0.4])
    Optimizer(weights, OptimizerConfig(lr=1.0, momentum=0.0, weight_decay=0.0, clip_grad_per_param=5.0)).step(1.0)
    torch.testing.assert_close(weights["long"].detach(), torch.tensor([-3.0, -4.0]))
    torch.testing.assert_close(weights["short"].detach(), torch.tensor([0.7, 0.6]))


# --- runs


def test_settings_no_run_can_have() -> None:
    with pytest.raises(UsageError, match=r"mt3 trains a predictor head: set --model.heads predictor"):
        replace(SHORT, model=TINY)
    with pytest.raises(UsageError, match=r"set --model.norm group"):
        replace(SHORT, model=replace(WITH_HEAD, norm="batch"))
    with pytest.raises(UsageError, match=r"batch_size \(20\) must be a multiple of mt3.task_images \(8\)"):
        replace(SHORT, batch_size=20)


def test_the_learning_rate_stays() -> None:
    schedule = Schedule(SHORT, epoch_steps=10)
    assert {schedule.lr_factor(step) for step in range(10)} == {1.0}


def test_a_killed_run_ends_like_any_other(textures: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = Split.of(textures)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", dying_at(4))
        with pytest.raises(KeyboardInterrupt):
            Run(SHORT, tmp_path / "killed", split).train()
    for folder in ("killed", "whole"):
        Run(SHORT, tmp_path / folder, split).train()
    killed, whole = ((tmp_path / folder / "model.safetensors").read_bytes() for folder in ("killed", "whole"))
    assert killed == whole
    trained = load_model(tmp_path / "whole").network
    before = Trainer(SHORT, split).network.state_dict()
    moved = {
        name.split(".")[0]
        for name, weight in trained.state_dict().items()
        if not torch.allclose(weight, before[name], rtol=1e-6)  # prototypes are put back on the sphere, and round
    }
    assert moved == {"backbone", "projector", "classifier", "heads"}


# --- adaptation

IMAGES = torch.randint(0, 256, (5, 3, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
QUICK = Mt3(steps=2, num_pairs=4, lr=0.5)


def test_a_step_is_that_of_the_inner_loop(network: Network) -> None:
    """The same step as in training, by hand, and as training takes it."""
    image, key = IMAGES[:1], 7
    got = QUICK.adapt(network, image, [key])[0]
    current = network
    for step in range(QUICK.steps):
        torch.testing.assert_close(got[step], current(image)[0].softmax(-1).detach())
        views = QUICK.draw_views(image, key)
        current = stepped(current, views, swapped(current.project(views)), QUICK.lr, clip=math.inf)
    torch.testing.assert_close(got[-1], current(image)[0].softmax(-1).detach())
    assert (got[-1] - got[0]).abs().max() > 1e-3  # the steps are large enough to tell right from wrong
    byol = network.byol()
    config = Mt3Config(inner_lr=QUICK.lr, inner_clip=1e6)
    adapted = inner_step(byol, dict(byol.named_parameters()), QUICK.draw_views(image, key), config)
    z, _ = functional_call(byol, adapted, (image,))
    torch.testing.assert_close(got[1], network.classifier(z)[0].softmax(-1).detach())


def test_views_are_two_of_every_copy() -> None:
    views = QUICK.draw_views(IMAGES[:1], 3)
    assert views.shape == (2 * QUICK.num_pairs, 3, 8, 8)
    assert len({view.sum().item() for view in views}) == len(views)
    assert torch.equal(QUICK.draw_views(IMAGES[:1], 3), views)
    assert not torch.equal(QUICK.draw_views(IMAGES[:1], 4), views)


def test_what_it_needs(network: Network, tiny_network: Network) -> None:
    assert QUICK.missing_requirement(network) is None
    assert "mt3" in supported_methods(network, "mt3")
    assert parse_method("mt3") == Mt3()
    for other in (tiny_network, nn.Flatten()):
        assert QUICK.missing_requirement(other) == "a predictor (train with objective mt3)"
