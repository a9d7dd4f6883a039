"""Evaluation of methods whose results depend on the order: one corruption after the other, from the trained model on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

import ttaps
from helpers.small_evaluation import CORRUPTIONS, results, small_benchmark, small_model
from ttaps.adaptation import Bn, Memo, Method, Source, Tent, Ttaps
from ttaps.errors import UsageError
from ttaps.evaluation.plan import Item, Shard, stratified_order
from ttaps.evaluation.run import ExperimentRun, evaluate
from ttaps.evaluation.store import Row, Store
from ttaps.report.columns import load_results
from ttaps.report.tables import make_tables
from ttaps.rng import derive_seed

ONLINE = Ttaps(steps=2, num_pairs=2, lr=1.0, momentum=0.9, online=True)
BATCHES = Tent(batch_size=3, lr=0.1)
METHODS: list[Method] = [
    ONLINE,
    BATCHES,
    Memo(num_views=3, lr=0.1, online=True),
    Tent(batch_size=2, online=True, lr=0.1),
]


class Stopped(Exception):
    """What stops a run in its middle."""


def run(folder: Path, method: Method, stop_after: int = 1000, limit: int | None = None) -> None:
    groups: list[int] = []
    save = ExperimentRun.save

    def watched(run: ExperimentRun, rows: list[Row]) -> None:
        save(run, rows)
        groups.append(len(rows))
        if len(groups) == stop_after:
            raise Stopped

    with patch.object(ExperimentRun, "save", watched):
        data, methods = small_benchmark(), [Source(), method]
        evaluate(small_model(), data, methods, folder=folder, group=2, plan=data.plan(limit))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name} {method.protocol}")
def test_rows_are_those_of_one_stream_for_each_corruption(method: Method, tmp_path: Path) -> None:
    run(tmp_path, method)
    data, order = small_benchmark(), stratified_order(small_benchmark().labels).tolist()
    rows = {row.item: row for row in results(tmp_path)[method.name, 0]}
    assert len(rows) == 18
    for corruption in CORRUPTIONS:
        items = [Item(corruption, 5, image) for image in order]
        keys = [derive_seed(0, data.name, *item) for item in items]
        traces = method.adapt(small_model().network, data.read(items), keys)
        for item, trace in zip(items, traces, strict=True):
            assert rows[item].confidence == tuple(trace.max(-1).values.tolist())


@pytest.mark.parametrize("method", METHODS[:2], ids=lambda method: method.name)
def test_stopped_and_resumed_gives_the_same_rows(method: Method, tmp_path: Path) -> None:
    run(tmp_path / "whole", method)
    with pytest.raises(Stopped):
        run(tmp_path / "parts", method, stop_after=11)  # nine groups of source, then the middle of a stream
    assert 0 < len(results(tmp_path / "parts")[method.name, 0]) < 18
    run(tmp_path / "parts", method)
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


CONTINUAL = Tent(batch_size=2, continual=True, lr=0.1)


def test_continual_is_one_stream_over_all_corruptions(tmp_path: Path) -> None:
    run(tmp_path, CONTINUAL)
    data, order = small_benchmark(), stratified_order(small_benchmark().labels).tolist()
    items = [Item(corruption, 5, image) for corruption in CORRUPTIONS for image in order]
    keys = [derive_seed(0, data.name, *item) for item in items]
    traces = CONTINUAL.adapt(small_model().network, data.read(items), keys)
    rows = {row.item: row for row in results(tmp_path)["tent", 0]}
    assert [rows[item].confidence for item in items] == [tuple(trace.max(-1).values.tolist()) for trace in traces]
    run(tmp_path / "online", replace(CONTINUAL, continual=False))
    online = {row.item: row for row in results(tmp_path / "online")["tent", 0]}
    same = [rows[item] == online[item] for item in items]
    assert all(same[:6])  # the first corruption begins at the trained model either way
    assert not any(same[6:])


def test_a_continual_stream_that_was_stopped_starts_again_and_gives_the_same_rows(tmp_path: Path) -> None:
    run(tmp_path / "whole", CONTINUAL)
    with pytest.raises(Stopped):
        run(tmp_path / "parts", CONTINUAL, stop_after=14)  # nine groups of source, then inside the second corruption
    assert len(results(tmp_path / "parts")["tent", 0]) == 10
    run(tmp_path / "parts", CONTINUAL)
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_another_stream_is_another_experiment(tmp_path: Path) -> None:
    """What comes before an image is part of its result: fewer images, or other corruptions, make other rows."""
    whole = small_benchmark()
    fewer = replace(whole, corruptions=whole.corruptions[::-1])
    for data, limit in ((whole, None), (whole, 4), (fewer, None), (whole, 6)):
        evaluate(small_model(), data, [CONTINUAL], folder=tmp_path, plan=data.plan(limit))
    with Store(tmp_path, write=False) as store:
        protocols = [experiment.protocol for experiment in store.experiments().values()]
    assert [re.sub("[0-9a-f]{6}", "HASH", one) for one in protocols] == [
        "continual, batches of 2, 3 x 6 images (HASH)",
        "continual, batches of 2, 3 x 4 images (HASH)",
        "continual, batches of 2, 3 x 6 images (HASH)",
    ]
    assert len(set(protocols)) == 3
    columns = make_tables(load_results([tmp_path]))[0].columns
    assert sorted(column.label for column in columns) == sorted(
        f"tent[lr=0.1,online=true,continual=true,batch_size=2] ({protocol})" for protocol in protocols
    )


def test_store_says_what_was_kept(tmp_path: Path) -> None:
    data = small_benchmark()
    for method in (Tent(), Tent(online=True), Tent(batch_size=3), Ttaps(steps=1, num_pairs=2, keep_momentum=True)):
        evaluate(small_model(), data, [method], folder=tmp_path, plan=data.plan(3))
    with Store(tmp_path, write=False) as store:
        experiments = list(store.experiments().values())
    assert [experiment.protocol for experiment in experiments] == [
        "episodic",
        "online",
        "batches of 3",
        "momentum leak",
    ]
    assert [experiment.spec for experiment in experiments] == [
        "tent",
        "tent[online=true]",
        "tent[batch_size=3]",
        "ttaps[steps=1,num_pairs=2,keep_momentum=true]",
    ]


@pytest.mark.parametrize("method", [ONLINE, BATCHES], ids=lambda method: method.name)
def test_work_that_depends_on_the_order_is_not_shared(method: Method, tmp_path: Path) -> None:
    data = small_benchmark()
    with pytest.raises(UsageError, match="depend on the order of the images, so the work cannot be shared"):
        evaluate(small_model(), data, [method], folder=tmp_path, plan=data.plan(shard=Shard(0, 2)))


def test_a_limit_never_cuts_a_batch(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="take a multiple of 3"):
        run(tmp_path, BATCHES, limit=4)
    run(tmp_path, BATCHES, limit=3)
    run(tmp_path / "whole", BATCHES)
    first = {row.item: row for row in results(tmp_path)["tent", 0]}
    whole = {row.item: row for row in results(tmp_path / "whole")["tent", 0]}
    assert len(first) == 9
    assert all(whole[item] == row for item, row in first.items())


def test_a_method_the_model_cannot_serve_is_refused_before_the_data_is_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'bn' needs BatchNorm layers .* supports source, augment, t3a, lame, tent"):
        ttaps.evaluate(small_model(), tmp_path / "no data", [Bn()], out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
