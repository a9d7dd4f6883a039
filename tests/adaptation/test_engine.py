"""How images run: on which threads, and how few calls stand between the command and a gradient step."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch import Tensor

import ttaps
from helpers.small_model import QUICK, write_image, write_model
from ttaps.adaptation import Ttaps
from ttaps.adaptation.engine import CarriedState, map_images
from ttaps.cli import main

PACKAGE = str(Path(ttaps.__file__).parent)


def calls(frame: FrameType | None) -> list[str]:
    """Return the functions of this package that are under way in a thread, the outermost first."""
    found: list[str] = []
    while frame:
        if frame.f_code.co_filename.startswith(PACKAGE):
            found.insert(0, frame.f_code.co_name)
        frame = frame.f_back
    return found


def test_eight_calls_from_the_command_to_the_gradient_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames of the package in the calling thread plus those in the thread that takes the step, without the loss itself."""
    main_frame, taken = sys._getframe(), []
    loss = Ttaps.loss

    def watched(self: Ttaps, scores: Tensor, assignment: Tensor | None = None) -> Tensor:
        caller = next(frame for frame in sys._current_frames().values() if main_frame in ancestors(frame))
        taken.append(calls(caller) + [name for name in calls(sys._getframe()) if name != "loss"])
        return loss(self, scores, assignment)

    monkeypatch.setattr(Ttaps, "loss", watched)
    model, image_file = write_model(tmp_path / "small"), write_image(tmp_path / "noise.png")
    assert main(["adapt", str(model), str(image_file), *QUICK]) == 0
    (names,) = taken
    assert names[0] == "main"
    assert names[-3:] == ["map_images", "adapt_one", "gradient_steps"]
    assert len(names) <= 8, names


def ancestors(frame: FrameType | None) -> list[FrameType]:
    found = []
    while frame:
        found.append(frame)
        frame = frame.f_back
    return found


def test_images_share_a_state_only_where_one_is_given() -> None:
    def count(image: Tensor, key: int, state: CarriedState) -> Tensor:
        seen = int(state.weights["seen"]) if state.weights else 0
        state.weights = {"seen": torch.tensor(seen + 1)}
        return torch.tensor([[seen, key, len(image)]])

    images = torch.zeros(5, 3, 2, 2)
    assert map_images(count, images, range(5)).tolist() == [[0, key, 1] for key in range(5)]
    state = CarriedState()
    assert map_images(count, images, range(5), 2, state).tolist() == [[0, 0, 2], [1, 2, 2], [2, 4, 1]]
    assert map_images(count, images[:1], [9], 1, state).tolist() == [[3, 9, 1]]
    with pytest.raises(IndexError):
        map_images(count, images, range(4))
