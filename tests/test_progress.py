"""What a person sees while waiting."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ttaps.progress import bar


@pytest.mark.parametrize("width", [80, 120])
def test_count_and_times_stay_in_sight_on_a_narrow_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    note = "loss 12.222  swav 5.704  ce 2.303  ent -0.004  accuracy 0.125  1234 images/s"
    with bar(console) as progress:
        progress.add_task("jt+ent", total=46_800, completed=12_345, note=note)
        progress.below = note
    file = console.file
    assert isinstance(file, io.StringIO)
    shown, below = file.getvalue().split("\n")[:2]
    for part in ("jt+ent", "━", "12345/46800", "0:00:00", "left", "loss 12.222"):
        assert part in shown
    assert note in below
