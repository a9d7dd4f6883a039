"""torchrun reads its own options by prefix, and refuses what could be two of them: none of ours may be such a prefix."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tyro
from torch.distributed.run import get_args_parser

from ttaps.cli.commands import Evaluate, Train


def options(kind: type) -> Iterator[str]:
    """Return all options of a command as they are typed."""
    parser = tyro.extras.get_parser(kind)
    for action in parser._actions:
        yield from (option for option in action.option_strings if option.startswith("--") and option != "--help")


@pytest.mark.parametrize(("command", "kind"), [("train", Train), ("evaluate", Evaluate)])
def test_torchrun_leaves_every_option_to_us(command: str, kind: type) -> None:
    torchrun = get_args_parser()
    theirs = [option for action in torchrun._actions for option in action.option_strings]
    ours = list(options(kind))
    assert len(ours) > 10
    for option in ours:
        assert not [other for other in theirs if other.startswith(option)], option
        given = torchrun.parse_args(["--nproc-per-node", "2", "-m", "ttaps", command, option, "value"])
        assert given.training_script_args == [command, option, "value"]


def test_torchrun_refuses_an_ambiguous_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    """So the test above would notice one."""
    with pytest.raises(SystemExit):
        get_args_parser().parse_args(["-m", "ttaps", "train", "--rdzv", "value"])
    assert "ambiguous option" in capsys.readouterr().err
