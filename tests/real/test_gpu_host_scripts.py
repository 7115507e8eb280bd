"""Scripts that check a host with a GPU before a cluster runs images/X there; `docker` is a fake."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trainyard import paths

pytestmark = pytest.mark.core

IMAGES = ("isaac-lab", "isaac-ray", "schola")
# Reads a step's program from standard input, as the real `docker run --interactive` does.
READS = 'echo "docker $*" | head -1; case "$*" in *" -") cat > /dev/null ;; esac'
GIVEN = {"schola": ["/opt/unreal/Game.sh"]}


def checked(tmp_path: Path, image: str, *, docker: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "docker").write_text(f"#!/bin/sh\n{docker}\n")
    (tmp_path / "docker").chmod(0o755)
    script = paths.shipped("images") / image / "check-on-a-gpu-host.sh"
    return subprocess.run(
        [str(script), "trainyard/x:1", *GIVEN.get(image, [])],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "ACCEPT_EULA": "Y"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("image", IMAGES)
def test_each_step_runs_in_the_image_with_the_gpus(tmp_path: Path, image: str) -> None:
    done = checked(tmp_path, image, docker=READS)
    ran = [line for line in done.stdout.splitlines() if line.startswith("docker ")]
    assert done.returncode == 0, done.stderr
    assert len(ran) == done.stdout.count("should print:") >= 4
    assert all(" --gpus all " in line and " trainyard/x:1 " in line for line in ran)
    assert done.stdout.splitlines()[-1] == "all is well"


@pytest.mark.parametrize("image", IMAGES)
def test_the_first_step_that_fails_is_the_last(tmp_path: Path, image: str) -> None:
    done = checked(tmp_path, image, docker="echo no driver >&2; exit 1")
    assert (done.returncode, done.stderr) == (1, "no driver\n")
    assert done.stdout.count("should print:") == 1


@pytest.mark.parametrize("image", IMAGES)
def test_python_programs_in_the_scripts_compile(image: str) -> None:
    script = (paths.shipped("images") / image / "check-on-a-gpu-host.sh").read_text()
    programs = [part.split("\nEND\n")[0] for part in script.split("<<'END'\n")[1:]]
    assert programs
    for program in programs:
        compile(program, image, "exec")


@pytest.mark.parametrize("image", IMAGES)
def test_a_script_for_the_host_makes_no_new_image(image: str) -> None:
    ignored = (paths.shipped("images") / image / ".dockerignore").read_text()
    assert "check-on-a-gpu-host.sh" in ignored.splitlines()
