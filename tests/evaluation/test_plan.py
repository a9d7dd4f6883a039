"""The order of work: every prefix is fair, every shard is fair, and together the shards are the whole."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from ttaps.errors import UsageError
from ttaps.evaluation.plan import Item, Plan, Shard, stratified_order

CORRUPTIONS = ("fog", "snow", "frost")


def labels(n: int = 200, classes: int = 10) -> NDArray[np.int64]:
    return np.random.default_rng(3).permutation(n).astype(np.int64) % classes


def test_every_prefix_has_the_classes_in_balance() -> None:
    drawn = labels()[stratified_order(labels())]
    counts = np.cumsum(np.eye(10, dtype=int)[drawn], axis=0)
    assert sorted(stratified_order(labels())) == list(range(200))
    assert (counts.max(1) - counts.min(1)).max() == 1


def test_a_rare_class_is_used_up_first_and_the_others_stay_in_balance() -> None:
    rare = np.array([0] * 50 + [1] * 50 + [2] * 3)
    counts = np.cumsum(np.eye(3, dtype=int)[rare[stratified_order(rare)]], axis=0)
    assert np.abs(counts[:, 0] - counts[:, 1]).max() == 1
    assert counts[8].tolist() == [3, 3, 3]


def test_the_order_is_shuffled_and_always_the_same() -> None:
    assert stratified_order(labels())[:6].tolist() == [29, 2, 180, 148, 16, 169]


def test_every_prefix_has_the_corruptions_in_balance() -> None:
    plan = Plan(labels(), CORRUPTIONS, (1, 5))
    seen: Counter[tuple[str, int]] = Counter({(name, severity): 0 for name in CORRUPTIONS for severity in (1, 5)})
    for item in plan:
        seen[item.corruption, item.severity] += 1
        assert max(seen.values()) - min(seen.values()) <= 1
    assert set(seen.values()) == {200}


def test_a_limit_takes_the_first_and_the_same_images_of_every_corruption() -> None:
    first = list(Plan(labels(), CORRUPTIONS, (5,), images_per_corruption=7))
    assert first == list(Plan(labels(), CORRUPTIONS, (5,)))[:21]
    assert len(first) == len(Plan(labels(), CORRUPTIONS, (5,), images_per_corruption=7)) == 21
    numbers = {name: [item.image for item in first if item.corruption == name] for name in CORRUPTIONS}
    assert numbers["fog"] == numbers["snow"] == numbers["frost"]
    assert len(Plan(labels(), CORRUPTIONS, (5,), images_per_corruption=1000)) == 600


@pytest.mark.parametrize("count", [2, 3, 5, 7, 40])
def test_shards_share_the_work_evenly_and_fairly(count: int) -> None:
    whole = list(Plan(labels(), CORRUPTIONS, (5,), images_per_corruption=40))
    shards = [list(Plan(labels(), CORRUPTIONS, (5,), 40, Shard(index, count))) for index in range(count)]
    assert sorted(item for shard in shards for item in shard) == sorted(whole)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1 + len(CORRUPTIONS) // 2
    for index, shard in enumerate(shards):
        assert len(Plan(labels(), CORRUPTIONS, (5,), 40, Shard(index, count))) == len(shard)
        seen = Counter(item.corruption for item in shard)
        assert max(seen.values()) - min(seen[name] for name in CORRUPTIONS) <= 2


def test_shards_as_people_and_torchrun_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Shard.parse("1/4") == Shard(0, 4)
    assert Shard.of_rank() == Shard(0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert Shard.of_rank() == Shard(2, 3)
    for wrong in ("0/4", "5/4", "1/0", "half", "1", "-1/2"):
        with pytest.raises(UsageError, match="shard"):
            Shard.parse(wrong)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="not 0"):
        Plan(labels(), CORRUPTIONS, (5,), images_per_corruption=0)
    assert next(iter(Plan(labels(), ("fog",), (5,), images_per_corruption=1))) == Item(
        "fog", 5, int(stratified_order(labels())[0])
    )
