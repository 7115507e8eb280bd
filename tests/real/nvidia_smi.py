"""A stand-in for nvidia-smi that prints what the real one does, `[N/A]` included."""

from __future__ import annotations

import os
from pathlib import Path

from tests.real.yard import Yard

STAND_IN = """#!/bin/sh
count=$(cat "$(dirname "$0")/count")
index=0
while [ $index -lt $count ]; do
  case "$1" in
    -L) echo "GPU $index: NVIDIA L4 (UUID: GPU-000$index)" ;;
    *)  echo "$index, [N/A]" ;;
  esac
  index=$((index + 1))
done
"""


def install(yard: Yard, *, gpus: int, program: str = STAND_IN) -> Path:
    """Put the stand-in on the PATH of a yard's commands and nodes; return its directory.

    The number in its file `count` is the number of GPUs.
    """
    directory = yard.home / "programs"
    directory.mkdir()
    (directory / "nvidia-smi").write_text(program)
    (directory / "nvidia-smi").chmod(0o755)
    (directory / "count").write_text(str(gpus))
    yard.environ["PATH"] = f"{directory}:{os.environ['PATH']}"
    return directory
