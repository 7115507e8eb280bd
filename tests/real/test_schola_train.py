"""schola-train, the command of images/schola: what it makes of its arguments before Schola sees them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trainyard import paths

SCRIPT = paths.shipped("images") / "schola" / "files" / "usr" / "local" / "bin" / "schola-train"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a directory with a `python` that prints what it was called with, and fails as a training would."""
    (tmp_path / "python").write_text('#!/bin/sh\nshift 2\nprintf "%s\\n" "$@"\nexit 3\n')
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def train(path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{path}:{os.environ['PATH']}", **environ}
    return subprocess.run(
        [str(SCRIPT), *arguments], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30
    )


def test_the_exit_code_is_the_trainings_and_no_key_is_waited_for(path: Path) -> None:
    done = train(path, "--timesteps", "100", "--map", "a b")
    assert (done.returncode, done.stdout.splitlines()) == (3, ["--timesteps", "100", "--map", "a b"])


@pytest.mark.parametrize("arguments", [("--num-cpus", "2"), ("--num-cpus=2",)])
def test_cpus_are_the_jobs_business(path: Path, arguments: tuple[str, ...]) -> None:
    done = train(path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "schola-train: --num-cpus starts a Ray of its own and fails on a cluster; set resources: in job.yaml instead\n"
    )


def test_checkpoints_come_home_unless_they_go_elsewhere(path: Path) -> None:
    assert train(path, "--x", TRAINYARD_OUTPUT="/out").stdout.splitlines() == ["--checkpoint-dir", "/out/ckpt", "--x"]
    given = ["--checkpoint-dir", "/mine"]
    assert train(path, *given, TRAINYARD_OUTPUT="/out").stdout.splitlines() == given
