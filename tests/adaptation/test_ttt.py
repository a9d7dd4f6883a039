"""TTT: rotations against torch's, the loss and the steps against hand-written ones."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.small_training import TINY, dying_at
from ttaps.adaptation import Ttt, supported_methods
from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.spec import parse_method
from ttaps.data import ImageSet
from ttaps.errors import UsageError
from ttaps.model import ModelConfig, Network
from ttaps.model.checkpoint import load_model
from ttaps.training.config import AugmentationConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from ttaps.training.data import Split, TrainBatch
from ttaps.training.objectives import OBJECTIVES, rotated
from ttaps.training.run import Run
from ttaps.training.schedule import Schedule
from ttaps.training.trainer import Trainer
from ttaps.views import ShiftViews, SwavViews, quarter_turns

WITH_HEAD = replace(TINY, heads=("rotation",))
SHORT = TrainConfig(
    objective="ttt",
    epochs=1,
    batch_size=16,
    checkpoint_minutes=0.0,
    validate_every=100,
    model=WITH_HEAD,
    optimizer=OptimizerConfig(lr=0.1),
    schedule=ScheduleConfig(warmup_epochs=0, lr_schedule="step", resolutions=(8,)),
)


def seeded(config: ModelConfig) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(config).eval()


@pytest.fixture
def network() -> Network:
    return seeded(WITH_HEAD)


@pytest.fixture
def batch(textures: ImageSet) -> TrainBatch:
    images, labels = torch.from_numpy(textures.images[:6]), torch.from_numpy(textures.labels[:6])
    return TrainBatch(images, labels, seed=0, step=3, size=8, rows=slice(6), total=6)


def rotation_logits(network: Network, images: Tensor) -> Tensor:
    """The branch by hand: stem, stages 1 and 2, the head's own stage 3, mean over pixels, four logits."""
    backbone, head = network.backbone, network.heads["rotation"]
    features = network.normalize(images)
    for part in ("stem", "stage1", "stage2"):
        features = getattr(backbone, part)(features)
    assert isinstance(head, nn.Sequential)
    logits: Tensor = head[2](head[0](features).mean((2, 3)))
    return logits


# --- views


def test_an_image_is_turned_by_its_label() -> None:
    images = torch.rand(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    turns = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
    for turned, image, quarters in zip(quarter_turns(images, turns), images, turns.tolist(), strict=True):
        assert torch.equal(turned, torch.rot90(image, quarters, (1, 2)))
    # One quarter is anticlockwise: the top right corner comes to the top left.
    assert torch.equal(quarter_turns(images[:1], torch.tensor([1]))[0, :, 0, 0], images[0, :, 0, -1])


def test_a_shifted_view_is_a_window_on_the_framed_image() -> None:
    images = torch.randint(0, 256, (40, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    kind = ShiftViews(padding=3)
    drawn = kind.sample(40, 8, torch.Generator().manual_seed(1))
    framed = torch.zeros(40, 3, 14, 14)
    framed[:, :, 3:11, 3:11] = images / 255
    for view, frame, (top, left, _, _), flip in zip(
        kind.apply(images, drawn), framed, drawn.box.tolist(), drawn.flip.tolist(), strict=True
    ):
        window = frame[:, top : top + 8, left : left + 8]
        torch.testing.assert_close(view, window.flip(2) if flip else window)
    assert set(drawn.box[:, :2].flatten().tolist()) == set(range(7))
    assert set(drawn.flip.tolist()) == {True, False}


def test_a_smaller_shifted_view_is_the_whole_one_made_smaller() -> None:
    images = torch.randint(0, 256, (5, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    drawn = ShiftViews().sample(5, 8, torch.Generator().manual_seed(1))
    whole, small = (ShiftViews().apply(images, drawn, size) for size in (8, 4))
    torch.testing.assert_close(small, F.interpolate(whole, (4, 4), mode="bilinear", antialias=True))


# --- the network


def test_heads_leave_the_rest_as_it_was() -> None:
    plain, with_heads = seeded(TINY), seeded(replace(TINY, heads=("rotation", "predictor")))
    extra = with_heads.state_dict()
    assert not any(name.startswith("heads") for name in plain.state_dict())  # so fingerprints stay too
    for name, weight in plain.state_dict().items():
        assert torch.equal(weight, extra.pop(name)), name
    assert {name.split(".")[1] for name in extra} == {"rotation", "predictor"}


def test_the_rotation_head_starts_as_a_copy_of_stage_3(network: Network) -> None:
    stage, head = network.backbone.stage3, network.heads["rotation"]
    assert isinstance(stage, nn.Module)
    assert isinstance(head, nn.Sequential)
    for own, other in zip(head[0].parameters(), stage.parameters(), strict=True):
        assert torch.equal(own, other)
        assert own is not other
    assert network.rotation_branch()(torch.rand(2, 3, 8, 8)).shape == (2, 4)


def test_where_the_rotation_loss_begins_its_head_is_a_copy_of_what_stage_3_has_become(
    textures: ImageSet,
) -> None:
    late = replace(SHORT, epochs=2, schedule=replace(SHORT.schedule, joint_start_epoch=1))
    run = Trainer(late, Split.of(textures))
    before = deepcopy(run.network.heads["rotation"].state_dict())
    begins = next(step for step in range(100) if run.schedule.joint_begins(step))
    for step in range(begins):
        run.step(step)
    assert all(torch.equal(before[name], now) for name, now in run.network.heads["rotation"].state_dict().items())
    run.begin_joint(8)
    stage, head = run.network.get_submodule("backbone.stage3"), run.network.get_submodule("heads.rotation.0")
    for name, weight in stage.state_dict().items():
        assert torch.equal(head.state_dict()[name], weight), name
    assert any(not torch.equal(before[f"0.{name}"], now) for name, now in head.state_dict().items())


def test_no_rotation_head_on_a_backbone_without_stages() -> None:
    backbone = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UsageError, match=r"needs the stages of our own ResNet"):
        Network(WITH_HEAD, backbone, features=3)


# --- training


@pytest.mark.parametrize(
    ("ce_view", "kind"), [("crop", ShiftViews()), ("color", SwavViews(scale=AugmentationConfig().crop_scale))]
)
def test_the_loss_is_both_cross_entropies(
    ce_view: Literal["crop", "color"], kind: ShiftViews | SwavViews, network: Network, batch: TrainBatch
) -> None:
    images = batch.views(kind, "crop")
    cross_entropy = -network(images).log_softmax(-1)[range(6), batch.labels].mean()
    each = [-rotation_logits(network, images.rot90(k, (2, 3))).log_softmax(-1)[:, k] for k in range(4)]
    for joint in (0.25, 1.0):
        parts = OBJECTIVES["ttt"](
            network, batch, replace(SHORT, augmentation=AugmentationConfig(ce_view=ce_view)), joint
        )
        torch.testing.assert_close(parts["ce"], cross_entropy.detach())
        torch.testing.assert_close(parts["rotation"], torch.stack(each).mean().detach())
        torch.testing.assert_close(parts["loss"], cross_entropy + joint * torch.stack(each).mean())


def test_random_rotations_are_drawn_for_the_step(batch: TrainBatch) -> None:
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    turned, turns = rotated(images, batch, "random")
    for view, image, quarters in zip(turned, images, turns.tolist(), strict=True):
        assert torch.equal(view, image.rot90(quarters, (1, 2)))
    drawn = {tuple(rotated(images, replace(batch, step=step), "random")[1].tolist()) for step in range(5)}
    assert len(drawn) == 5
    parts = [rotated(images[rows], replace(batch, rows=rows, total=6), "random")[1] for rows in (slice(2), slice(2, 6))]
    assert torch.equal(torch.cat(parts), turns)


def test_the_authors_learning_rate() -> None:
    schedule = Schedule(replace(SHORT, epochs=150), epoch_steps=10)
    rates = [schedule.lr_factor(step) for step in (0, 749, 750, 1249, 1250, 1499)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_an_objective_wants_its_head() -> None:
    with pytest.raises(UsageError, match=r"Objective ttt trains a rotation head: set --model.heads rotation"):
        replace(SHORT, model=TINY)


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
    assert trained.config == WITH_HEAD
    before = Trainer(SHORT, split).network.state_dict()
    moved = {
        name.split(".")[0]
        for name, weight in trained.state_dict().items()
        if not torch.allclose(weight, before[name], rtol=1e-6)  # prototypes are put back on the sphere, and round
    }
    assert moved == {"backbone", "projector", "classifier", "heads"}


def test_a_run_from_before_there_were_heads_resumes(textures: ImageSet, tmp_path: Path) -> None:
    """Its train.toml says nothing about settings that came later."""
    config = replace(SHORT, objective="baseline", model=TINY, epochs=0.2)
    Run(config, tmp_path, Split.of(textures)).train()
    settings = tmp_path / "train.toml"
    lines = settings.read_text().splitlines()
    settings.write_text("\n".join(line for line in lines if not line.startswith(("heads", "clip", "inner"))))
    Run(config, tmp_path, Split.of(textures)).train()
    with pytest.raises(UsageError, match="other settings"):
        Run(replace(config, seed=1), tmp_path, Split.of(textures)).train()


# --- adaptation

IMAGES = torch.randint(0, 256, (5, 3, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
QUICK = Ttt(steps=3, num_views=4, lr=0.5)


def test_steps_are_those_of_plain_sgd_on_the_whole_network(network: Network) -> None:
    image, key = IMAGES[:1], 7
    got = QUICK.adapt(network, image, [key])[0]
    copy = deepcopy(network)
    moving = [w for n, w in copy.named_parameters() if n.startswith(("backbone.st", "heads")) and "stage3" not in n]
    optimizer = torch.optim.SGD(moving, QUICK.lr)
    for step in range(QUICK.steps):
        torch.testing.assert_close(got[step], copy(image)[0].softmax(-1).detach())
        views, turns = QUICK.draw(image, key, step)
        optimizer.zero_grad()
        F.cross_entropy(rotation_logits(copy, views), turns).backward()
        optimizer.step()
    torch.testing.assert_close(got[-1], copy(image)[0].softmax(-1).detach())
    assert (got[-1] - got[0]).abs().max() > 1e-3  # the steps are large enough to tell right from wrong


def test_views_are_turned_as_their_labels_say(network: Network) -> None:
    method = Ttt(num_views=64, views=ShiftViews(padding=0, flip_p=0.0))
    views, turns = method.draw(IMAGES[:1], 3, 0)
    for view, quarters in zip(views, turns.tolist(), strict=True):
        torch.testing.assert_close(view, (IMAGES[0] / 255).rot90(quarters, (1, 2)))
    assert set(turns.tolist()) == {0, 1, 2, 3}
    assert not torch.equal(method.draw(IMAGES[:1], 3, 1)[1], turns)


def test_images_that_stand_surely_upright_are_left_alone(network: Network) -> None:
    full = QUICK.adapt(network, IMAGES, range(5))
    upright = rotation_logits(network, IMAGES).softmax(-1)[:, 0].detach()
    bound = float(upright.sort().values[1:3].mean())
    part = replace(QUICK, confidence_threshold=bound).adapt(network, IMAGES, range(5))
    skipped = (upright >= bound).tolist()
    assert sum(skipped) == 3
    for row, whole, skip in zip(part, full, skipped, strict=True):
        assert torch.equal(row, whole[:1].expand_as(whole) if skip else whole)


def test_a_sure_image_is_seen_with_the_weights_kept_so_far(network: Network) -> None:
    """Two images step, the third is sure: nothing moves any more, and its prediction is by the kept weights, not the source's."""
    memory = CarriedState()
    replace(QUICK, online=True).adapt(network, IMAGES[:2], range(2), memory)
    kept = replace(QUICK, online=True, lr=0.0).adapt(
        network, IMAGES[2:3], [2], CarriedState(memory.weights, memory.rule)
    )
    sure = replace(QUICK, online=True, confidence_threshold=0.0).adapt(network, IMAGES[2:3], [2], memory)
    assert torch.equal(sure, kept)
    assert not torch.equal(sure[0, 0], sure[0, 1])


def test_what_it_needs(network: Network, tiny_network: Network) -> None:
    assert QUICK.missing_requirement(network) is None
    assert "ttt" in supported_methods(network, "ttt")
    assert parse_method("ttt") == Ttt()
    for other in (tiny_network, nn.Flatten()):
        assert QUICK.missing_requirement(other) == "a rotation head (train with objective ttt)"
