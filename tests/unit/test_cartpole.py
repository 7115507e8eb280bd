"""The example job: the same seed trains the same policy, interrupted or not."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainyard.results.scalars import read_directory

Train = Callable[..., dict[str, Any]]
JOB = Path(__file__).parents[2] / "jobs" / "cartpole"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """Load train.py as Trainyard ships it: a file, not a package."""
    spec = importlib.util.spec_from_file_location("cartpole_train", JOB / "train.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def train(program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Train:
    """Return a function that trains briefly, in named directories, and returns result.json."""

    def run(*flags: str, output: str, checkpoint: str) -> dict[str, Any]:
        monkeypatch.setenv("TRAINYARD_OUTPUT", str(tmp_path / output))
        monkeypatch.setenv("TRAINYARD_CHECKPOINT", str(tmp_path / checkpoint))
        monkeypatch.setattr(sys, "argv", ["train.py", "--episodes", "1", *flags])
        program.main()
        found = json.loads((tmp_path / output / "result.json").read_text())
        return {name: value for name, value in found.items() if name != "seconds"}

    return run


def curve(directory: Path) -> dict[str, list[tuple[float, float]]]:
    """Return what the event files of a directory say."""
    found = read_directory(directory, points=1000, tags=10)[""]
    return {
        tag: [(step, value) for step, value, _ in curve.points()] for tag, curve in found.items()
    }


def test_the_same_seed_trains_the_same_policy(train: Train) -> None:
    first = train("--seed", "3", "--iterations", "12", output="a", checkpoint="ca")
    again = train("--seed", "3", "--iterations", "12", output="b", checkpoint="cb")
    other = train("--seed", "4", "--iterations", "12", output="c", checkpoint="cc")
    assert first == again
    assert first["weights"] != other["weights"]


def test_a_resumed_training_equals_an_uninterrupted_one(train: Train, tmp_path: Path) -> None:
    whole = train("--iterations", "14", output="whole", checkpoint="cw")
    train("--iterations", "6", output="first", checkpoint="c")
    resumed = train("--iterations", "14", output="second", checkpoint="c")
    assert resumed == whole
    assert curve(tmp_path / "second") == curve(tmp_path / "whole")
