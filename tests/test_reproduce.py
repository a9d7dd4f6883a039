"""A whole table from nothing: what the grids ask for, that it resumes after a stop, and that the estimate counts right."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.small_model import write_image
from helpers.small_training import SHORT
from ttaps import reproduce as work
from ttaps.adaptation.spec import parse_methods
from ttaps.cli import main
from ttaps.cli.train import spell
from ttaps.data import ImageSet
from ttaps.errors import UsageError
from ttaps.evaluation.frame import load_rows
from ttaps.evaluation.run import evaluate
from ttaps.evaluation.store import Store
from ttaps.files import file_lock
from ttaps.model.checkpoint import Model, load_model
from ttaps.progress import Bar
from ttaps.reproduce import Grid, GridJob, open_job_data, read_grid
from ttaps.training.config import find_preset, read_preset, train_config
from ttaps.training.data import Split
from ttaps.training.trainer import Trainer

PRESETS = ("paper-cifar10", "paper-cifar100", "small", "smoke")


@pytest.mark.parametrize("name", PRESETS)
def test_grids_do_all_of_one_seed_before_the_next(name: str) -> None:
    path = find_preset(name, grids=True)
    grid, jobs = read_grid(path)
    assert f"#   ttaps reproduce {name}" in path.read_text()
    seeds = [seed for column in grid.columns for _ in column.prototypes or (1,) for seed in column.seeds or grid.seeds]
    assert [job.train.seed for job in jobs] == sorted(seeds)
    assert len({(job.name, job.images_per_corruption) for job in jobs}) == len(jobs)
    assert grid.gpu == name.startswith("paper")


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_the_papers_grid_trains_the_papers_presets(data: str) -> None:
    grid, jobs = read_grid(find_preset(f"paper-{data}", grids=True))
    assert (grid.data, grid.seeds, grid.images_per_corruption, grid.corruptions) == (f"{data}-c", (0, 1, 2), None, ())
    for job in jobs:
        if job.train.objective not in ("baseline", "jt", "jt+ent"):
            continue
        values = read_preset(find_preset(f"paper/{job.train.objective}"))
        preset = train_config(values | {"data": data}, where="preset")
        model = replace(preset.model, num_prototypes=job.train.model.num_prototypes)
        assert job.train == replace(preset, seed=job.train.seed, model=model)
    sizes = {job.train.model.num_prototypes for job in jobs if job.train.objective == "jt+ent"}
    assert sizes == ({30, 300, 3000} if data == "cifar10" else {300})


def test_the_small_grid_has_sixteen_filters() -> None:
    _, jobs = read_grid(find_preset("small", grids=True))
    assert {job.train.model.width for job in jobs} == {16}
    names = {job.name: job.train for job in jobs}
    assert Counter(train.objective for train in names.values()) == {
        "baseline": 3,
        "jt": 3,
        "jt+ent": 5,
        "ttt": 1,
        "mt3": 1,
    }
    assert Counter(train.model.num_prototypes for train in names.values()) == {300: 11, 30: 1, 3000: 1}


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ('methods = ["ttasp"]', "Unknown method 'ttasp' .*did you mean 'ttaps'"),
        ('methods = ["ttt"]', "Method 'ttt' needs training with objective ttt"),
        ("prototypes = [30, 30]", "two columns train a model called jt\\+ent-K30-seed0"),
        ("train.epohcs = 3", "unknown key 'epohcs' .*did you mean 'epochs'"),
        ("color = 3", "unknown key 'color'"),
        ("train = 3", "train must be a table of settings"),
        ("train.epochs.a = 1", "epochs must be float"),
        ("methods = []", "at least one method in every column"),
    ],
)
def test_a_wrong_grid_is_refused_before_any_work(column: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(f'about = ""\ndata = "sample"\n[[columns]]\nconfig = "smoke"\n{column}\n')
    with pytest.raises(UsageError, match=complaint):
        read_grid(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'data = "sample"',
        'data = "sample"\n[[columns]]\nprototypes = [3]',
        "columns = [1]",
        'data = "sample"\ncolumns = 3',
    ],
)
def test_a_grid_without_data_or_columns(text: str, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(UsageError, match=r"grid.toml needs data = ... and \[\[columns\]\]"):
        read_grid(tmp_path / "grid.toml")


def test_an_unknown_grid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "smal"]) == 2
    assert "did you mean 'small'" in capsys.readouterr().err


def test_smoke_stopped_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped after three of six models; the same command does the rest, and then there is nothing left to do."""
    monkeypatch.setitem(sys.modules, "umap", None)  # umap takes its time
    command = ["reproduce", "smoke", "--out", str(tmp_path), "--threads", "1"]
    with monkeypatch.context() as patched:
        left = iter(range(2))

        def stopped(*arguments: Any, **options: Any) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            evaluate(*arguments, **options)

        patched.setattr("ttaps.evaluation.run.evaluate", stopped)
        assert main(command) == 130
    made = sorted(path.name for path in (tmp_path / "models").iterdir())
    assert made == ["baseline-K30-seed0", "jt+ent-K10-seed0", "jt+ent-K30-seed0"]
    before = {name: (tmp_path / "models" / name / "model.safetensors").stat().st_mtime_ns for name in made}

    assert main(command) == 0
    printed = capsys.readouterr().out
    assert all(label in printed for label in ("source (baseline)", "source (jt+ent, K=10)", "ttaps (jt+ent, K=30)"))
    assert all((tmp_path / "models" / n / "model.safetensors").stat().st_mtime_ns == t for n, t in before.items())
    assert (tmp_path / "report.html").exists()
    maps = {path.stem for path in (tmp_path / "figures").glob("projections-*.png")}
    assert {name.rsplit("-", 1)[0] for name in maps} == {f"projections-sample-{name.lower()}" for name in made}
    models = [load_model(path) for path in (tmp_path / "models").iterdir()]
    assert Counter(model.info["objective"] for model in models) == {"baseline": 2, "jt+ent": 4}
    assert all(model.info["step"] == model.info["steps"] == 8 for model in models)
    with Store(tmp_path / "results", write=False) as store:
        experiments = store.experiments()
        assert Counter(e.method for e in experiments.values()) == {"source": 6, "ttaps": 4}
        assert all(e.model.endswith(f"-seed{e.seed}") for e in experiments.values())
    assert load_rows([tmp_path / "results"]).groupby(["spec", "fingerprint"]).size().tolist() == [6] * 10

    monkeypatch.setattr(work, "_fastest", lambda run, step: 3600.0)
    monkeypatch.setattr(work, "seconds_per_image", lambda config, method, images: 60.0)
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-3].split() == ["sum", "0", "0.0", "seconds", "0", "0.0", "seconds"]
    grid, jobs = read_grid(find_preset("smoke", grids=True))
    other = [replace(job, methods=tuple(parse_methods("augment"))) for job in jobs]
    ((_, data), *_) = open_job_data(grid, jobs, None)
    assert work.count_rows(tmp_path, jobs[0], data, jobs[0].plan(data)) == 6 * len(jobs[0].methods)
    assert work.count_rows(tmp_path, other[0], data, other[0].plan(data)) == 0
    assert main([*command[:3], str(tmp_path / "new"), "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert plan.splitlines()[-3].split() == ["sum", "48", "2.0", "days", "60", "60", "minutes"]
    assert not (tmp_path / "new").exists()


def small_grid(folder: Path, data: str, classes: tuple[str, str] = ("cat", "dog")) -> tuple[Grid, list[GridJob]]:
    """A grid that trains on a folder of images of 8 pixels, and evaluates on ``data``."""
    for name in (f"{label}/{number}.png" for label in classes for number in range(5)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(folder / name, 8, 8)
    path = folder.with_suffix(".toml")
    path.write_text(
        f'data = "{data}"\ntrain = {{data = "{folder}", objective = "baseline", epochs = 1, batch_size = 4, schedule.resolutions = [8], '
        'model = {image_size = 8, num_classes = 2, width = 4, num_groups = 4}}\n[[columns]]\nconfig = "smoke"\n'
    )
    return read_grid(path)


def test_a_second_column_evaluates_the_same_model_on_fewer_images(tmp_path: Path) -> None:
    """It is trained, and counted, once; with as many images, or other settings of training, it is refused."""
    small_grid(tmp_path / "pets", str(tmp_path / "pets"))
    path, column = tmp_path / "pets.toml", '[[columns]]\nconfig = "smoke"\n'
    head = f"images_per_corruption = 4\n{path.read_text()}{column}"
    path.write_text(f'{head}methods = ["augment[num_views=2]"]\nimages_per_corruption = 2\n')
    grid, jobs = read_grid(path)
    opened = open_job_data(grid, jobs, None)
    left = work.estimate(grid, jobs, opened, tmp_path, "cpu")
    assert [(each.steps > 0, each.rows) for each in left] == [(True, 4), (False, 2)]
    work.reproduce(grid, jobs, tmp_path / "out", None)
    rows = load_rows([tmp_path / "out" / "results"])
    assert rows.groupby("spec").size().to_dict() == {"source": 4, "augment[num_views=2]": 2}
    assert [(e.steps, e.rows) for e in work.estimate(grid, jobs, opened, tmp_path / "out", "cpu")] == [(0, 0), (0, 0)]
    for wrong in ("", "images_per_corruption = 2\ntrain.epochs = 3\n"):
        path.write_text(head + wrong)
        with pytest.raises(UsageError, match="two columns train a model called"):
            read_grid(path)


def test_images_of_another_size_than_32_are_trained_on_and_evaluated(tmp_path: Path) -> None:
    grid, jobs = small_grid(tmp_path / "pets", str(tmp_path / "pets"))
    work.reproduce(grid, jobs, tmp_path / "out", None)
    rows = load_rows([tmp_path / "out" / "results"])
    assert len(rows) == 10
    assert rows["file"].tolist()[:2] == ["cat/0.png", "cat/1.png"]


def test_data_that_does_not_fit_is_refused_before_any_training(tmp_path: Path) -> None:
    small_grid(tmp_path / "birds", "sample", classes=("duck", "owl"))
    for data, complaint in (
        ("sample", r"shape \(3, 32, 32\), model 'baseline-K30-seed0' wants \(3, 8, 8\)"),
        (str(tmp_path / "birds"), "birds has 2 classes .'duck', ...., model 'baseline-K30-seed0' knows 2 .'cat'"),
    ):
        with pytest.raises(UsageError, match=complaint):
            work.reproduce(*small_grid(tmp_path / "pets", data), tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


def test_a_model_that_another_process_works_on_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has begun the first model, and ends without finishing it while this one does the second."""
    grid, (job,) = small_grid(tmp_path / "pets", str(tmp_path / "pets"))
    jobs = [replace(job, train=replace(job.train, seed=seed)) for seed in (0, 1)]
    other, order = ExitStack(), []
    other.enter_context(file_lock(tmp_path / "out" / f".{jobs[0].name}.lock", "working on this model"))

    def end(model: Model, *arguments: Any, **options: Any) -> None:
        order.append(model.name)
        other.close()

    monkeypatch.setattr("ttaps.evaluation.run.evaluate", end)
    work.reproduce(grid, jobs, tmp_path / "out", None)
    assert order == [jobs[1].name, jobs[0].name]


def test_a_finished_model_without_its_state_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, jobs = small_grid(tmp_path / "pets", str(tmp_path / "pets"))
    work.reproduce(grid, jobs, tmp_path / "out", None)
    (tmp_path / "out" / "models" / jobs[0].name / "resume.safetensors").unlink()
    monkeypatch.delattr("ttaps.training.run.Run.train")
    work.reproduce(grid, jobs, tmp_path / "out", None)
    (left,) = work.estimate(grid, jobs, open_job_data(grid, jobs, None), tmp_path / "out", "cpu")
    assert (left.steps, left.rows) == (0, 0)


def test_a_plan_shows_one_bar_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of rich refuse a second."""
    shown: list[Bar] = []

    def start(one: Bar) -> None:
        assert not shown
        shown.append(one)

    monkeypatch.setattr(Bar, "start", start)
    monkeypatch.setattr(Bar, "stop", lambda one: shown.clear())
    grid, jobs = small_grid(tmp_path / "pets", str(tmp_path / "pets"))
    (plan,) = work.estimate(grid, jobs, open_job_data(grid, jobs, None), tmp_path, "cpu")
    assert (plan.steps, plan.rows) == (2, 10)


def test_every_kind_of_step_is_timed_once_and_counted(textures: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two resolutions, with the joint loss and before it: the sum over steps of what a step of their kind takes."""
    timed: list[int] = []

    def seconds(run: Trainer, step: int) -> float:
        timed.append(step)
        return run.schedule.size(step) + 100.0 * (run.schedule.joint_weight(step) > 0)

    monkeypatch.setattr(work, "_fastest", seconds)
    run = Trainer(SHORT, Split.of(textures))
    expected = sum(seconds(run, step) for step in range(run.schedule.steps))
    timed.clear()
    assert work.training_seconds(SHORT, Split.of(textures), "cpu") == expected
    assert len(timed) == 3  # 6 pixels without and with the joint loss, 8 pixels with it


def test_times_are_spelled_in_the_unit_that_suits_them() -> None:
    assert [spell(s) for s in (0.5, 100, 600, 7200, 864_000)] == [
        "0.5 seconds", "100 seconds", "10 minutes", "2.0 hours", "10 days",
    ]  # fmt: skip
