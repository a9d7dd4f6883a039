"""A run that starts from a model: the weights that fit are its weights, the rest is drawn, and nothing else of a run changes."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.small_training import SHORT
from ttaps.data import ImageSet
from ttaps.errors import CheckpointError, UsageError
from ttaps.model import as_network, eval_mode
from ttaps.model.checkpoint import load_model, save_model
from ttaps.model.registry import known_models
from ttaps.training.collapse import TrainingCollapsed
from ttaps.training.config import TrainConfig, preset_names, read_preset
from ttaps.training.data import Split
from ttaps.training.fork import fork
from ttaps.training.run import Run
from ttaps.training.run_dir import load_state, save_state
from ttaps.training.trainer import Trainer, initial_network, measure_accuracy


@pytest.fixture
def trained(textures: ImageSet, tmp_path: Path) -> Path:
    """A finished run."""
    Run(SHORT, tmp_path / "trained", Split.of(textures)).train()
    return tmp_path / "trained"


def begun(config: TrainConfig, textures: ImageSet) -> dict[str, torch.Tensor]:
    return Trainer(config, Split.of(textures)).network.state_dict()


def test_it_begins_where_the_model_is(trained: Path, textures: ImageSet) -> None:
    ours, theirs = (
        begun(replace(SHORT, init_from=str(trained)), textures),
        load_model(trained).network.state_dict(),
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_is_other_in_number_is_drawn(trained: Path, textures: ImageSet) -> None:
    other = replace(SHORT.model, num_prototypes=20, heads=("rotation",))
    config = replace(SHORT, init_from=str(trained), model=other)
    ours, theirs = begun(config, textures), load_model(trained).network.state_dict()
    drawn = initial_network(config).state_dict()
    for name, weight in ours.items():
        fresh = name == "prototypes" or name.startswith("heads.")
        assert torch.equal(weight, (drawn if fresh else theirs)[name]), name


def test_another_network_is_refused(trained: Path, textures: ImageSet) -> None:
    wide = replace(SHORT, init_from=str(trained), model=replace(SHORT.model, width=8))
    with pytest.raises(
        UsageError, match=r"init_from: \'backbone.stem.0.weight' has shape \(8, 3, 3, 3\) here and shape \(4,"
    ):
        begun(wide, textures)
    with pytest.raises(CheckpointError, match="no model 'cifar11'"):
        begun(replace(SHORT, init_from="cifar11"), textures)


def test_the_card_says_where_it_began_and_what_that_took(trained: Path, textures: ImageSet, tmp_path: Path) -> None:
    second = tmp_path / "second"
    run = Run(replace(SHORT, epochs=1, init_from=str(trained)), second, Split.of(textures))
    run.train()
    first = load_model(trained)
    assert load_model(second).info["init_from"]["fingerprint"] == first.fingerprint
    assert f"started from the weights of `{trained}` ({first.fingerprint})" in load_model(second).card
    run.trainer.start = replace(first, info={"hours": 1.5, "init_from": {"hours": 2.25}})
    run.save(8)
    stated = {"model": str(trained), "fingerprint": first.fingerprint, "hours": 3.75}
    assert load_model(second).info["init_from"] == stated


def test_what_is_kept_is_a_mean_with_the_beginning(trained: Path, textures: ImageSet, tmp_path: Path) -> None:
    """The same steps with and without: only the result is another, between the two ends; its prototypes are those learnt."""
    config, split = replace(SHORT, init_from=str(trained), epochs=2), Split.of(textures)
    runs = {share: Run(replace(config, wise_ft=share), tmp_path / str(share), split) for share in (0.0, 0.25)}
    for run in runs.values():
        run.train()
    first, last, mean = (
        network.state_dict()
        for network in (load_model(trained).network, runs[0.0].trainer.result(), runs[0.25].trainer.result())
    )
    assert first["prototypes"].shape == last["prototypes"].shape
    for name, found in mean.items():
        mixed = found.is_floating_point() and name != "prototypes"
        torch.testing.assert_close(found, 0.25 * first[name] + 0.75 * last[name] if mixed else last[name])
    for one, other in zip(*(run.trainer.network.parameters() for run in runs.values()), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(UsageError, match="set --init-from"):
        replace(SHORT, wise_ft=0.5)


def test_a_killed_run_resumes_and_does_not_start_again(trained: Path, textures: ImageSet, tmp_path: Path) -> None:
    config, split = replace(SHORT, init_from=str(trained), epochs=2, wise_ft=0.25), Split.of(textures)
    Run(config, tmp_path / "whole", split).train()
    killed = Run(config, tmp_path / "killed", split)
    (tmp_path / "killed").mkdir()
    for step in range(5):
        killed.trainer.step(step)
    killed.save(5)
    Run(config, tmp_path / "killed", split).train()
    whole, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert whole == again
    Run(replace(SHORT, seed=1, epochs=1), tmp_path / "other", split).train()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(tmp_path / "other" / name, trained / name)
    with pytest.raises(UsageError, match="started from other weights"):
        Run(config, tmp_path / "killed", split).train()


def test_what_the_model_had_trained_is_not_started_anew(trained: Path, textures: ImageSet) -> None:
    run = Trainer(replace(SHORT, init_from=str(trained)), Split.of(textures))
    before = run.network.prototypes.detach().clone()
    run.begin_joint(8, run.start)  # at the first step
    assert torch.equal(run.network.prototypes, before)
    run.begin_joint(8)  # after steps of cross-entropy alone, which have moved the projections away
    assert not torch.equal(run.network.prototypes, before)


def test_a_classifier_for_other_classes_is_drawn(trained: Path, textures: ImageSet) -> None:
    others = Split.of(replace(textures, classes=tuple(f"other {name}" for name in textures.classes)))
    config = replace(SHORT, init_from=str(trained))
    ours, drawn = Trainer(config, others).network, initial_network(config)
    theirs = load_model(trained).network
    assert torch.equal(ours.classifier.weight, drawn.classifier.weight)
    assert torch.equal(ours.get_parameter("projector.0.weight"), theirs.get_parameter("projector.0.weight"))


def test_a_classifier_for_other_classes_is_not_interpolated(trained: Path, textures: ImageSet) -> None:
    others = Split.of(replace(textures, classes=tuple(f"other {name}" for name in textures.classes)))
    run = Trainer(replace(SHORT, init_from=str(trained), wise_ft=0.5, ema_decay=0.0), others)
    with torch.no_grad():
        for weight in run.network.parameters():
            weight.add_(1.0)
    mean, last, first = run.result().state_dict(), run.network.state_dict(), load_model(trained).network.state_dict()
    assert torch.equal(mean["classifier.weight"], last["classifier.weight"])
    torch.testing.assert_close(mean["projector.0.weight"], first["projector.0.weight"] + 0.5)


def test_a_classifier_made_from_data_chooses_the_nearest_class_mean(trained: Path, textures: ImageSet) -> None:
    others = Split.of(replace(textures, classes=tuple(f"other {name}" for name in textures.classes)))
    config = replace(SHORT, init_from=str(trained), init_classifier_from_data=True)
    network, labels = Trainer(config, others).network, torch.from_numpy(others.train.labels)
    with eval_mode(network), torch.no_grad():
        z = network.project(torch.from_numpy(others.train.images))
        means = torch.stack([z[labels == label].mean(0) for label in range(len(others.train.classes))])
        found = network.classifier(z).softmax(-1)
    expected = (-torch.cdist(z, means).square() / (2 * config.loss.tau)).softmax(-1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    known = Trainer(config, Split.of(textures)).network.classifier.weight
    assert torch.equal(known, load_model(trained).network.get_parameter("classifier.weight"))


def test_the_share_is_selected_on_the_validation_images(trained: Path, textures: ImageSet) -> None:
    """Weights that were destroyed lose to the initial ones; of equals, what changes least is taken."""
    run = Trainer(replace(SHORT, init_from=str(trained), select_wise_ft=True, ema_decay=0.0), Split.of(textures))
    run.select_share()
    assert run.share == 1.0, "nothing was trained yet: all shares are alike"
    with torch.no_grad():
        run.network.classifier.weight.neg_()
        run.network.classifier.bias.neg_()
    run.select_share()
    assert run.share > 0.5
    assert measure_accuracy(run.result(), run.split.validation) >= measure_accuracy(run.network, run.split.validation)


def test_prototypes_of_other_classes_are_made_from_the_data(trained: Path, textures: ImageSet) -> None:
    others = Split.of(replace(textures, classes=tuple(f"other {name}" for name in textures.classes)))
    run = Trainer(replace(SHORT, init_from=str(trained)), others)
    before = run.network.prototypes.detach().clone()
    run.begin_joint(8, run.start)
    assert not torch.equal(run.network.prototypes, before)


def test_presets_start_from_models_that_are_there() -> None:
    starts = [read_preset(path).get("init_from") for path in preset_names().values()]
    assert set(filter(None, starts)) <= set(known_models())
    assert any(starts)


def test_a_fork_has_the_heads_of_the_model_too(textures: ImageSet, tmp_path: Path) -> None:
    """A run with a head, alone, starts with the model's; a fork of a run without heads must as well."""
    split, headed = Split.of(textures), replace(SHORT.model, heads=("rotation",))
    Run(replace(SHORT, objective="ttt", model=headed, epochs=2), tmp_path / "trained", split).train()
    trunk = replace(SHORT, init_from=str(tmp_path / "trained"), epochs=2)
    other = replace(trunk, objective="ttt", model=headed)
    Run(trunk, tmp_path / "trunk", split).train()
    fork(tmp_path / "trunk", other, tmp_path / "branched", split)
    for name in ("branched", "alone"):
        Run(other, tmp_path / name, split).train()
    branched, alone = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("branched", "alone"))
    assert branched == alone


def test_weights_that_are_not_numbers_are_not_blamed_on_the_learning_rate(
    trained: Path, textures: ImageSet, tmp_path: Path
) -> None:
    model = load_model(trained)
    with torch.no_grad():
        as_network(model.network).classifier.weight[0, 0] = math.nan
    save_model(tmp_path / "broken", as_network(model.network), model.classes, model.info, model.card)
    config = replace(SHORT, init_from=str(tmp_path / "broken"))
    with pytest.raises(TrainingCollapsed, match=r"'classifier.weight' of the model '.*broken' are not numbers, before"):
        Run(config, tmp_path / "new", Split.of(textures)).train()
    assert not (tmp_path / "new" / "resume.safetensors").exists()
    Run(replace(config, epochs=0.2, stop_on_collapse=False), tmp_path / "told", Split.of(textures)).train()


def test_a_state_that_is_not_numbers_is_not_resumed(trained: Path, textures: ImageSet) -> None:
    state = load_state(trained)
    assert state
    state.groups["weights"]["prototypes"][0] = math.inf
    save_state(trained, replace(state, step=9))
    with pytest.raises(TrainingCollapsed, match=r"'prototypes' of the run in .* are not numbers"):
        Run(SHORT, trained, Split.of(textures)).train()
