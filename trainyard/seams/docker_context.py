"""Which files of a directory a build sees: Docker's own reading of .dockerignore."""

from __future__ import annotations

from pathlib import Path

from docker.utils.build import exclude_paths

IGNORE_FILE = ".dockerignore"


def files(directory: Path) -> list[str]:
    """Return files and directories by their path in a directory, without what its .dockerignore leaves out."""
    found = exclude_paths(str(directory), _patterns(directory), dockerfile="Dockerfile")
    return sorted(path for path in found if path != IGNORE_FILE)


def _patterns(directory: Path) -> list[str]:
    try:
        lines = (directory / IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
