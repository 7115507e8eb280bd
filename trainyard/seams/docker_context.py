"""Which files of a directory a build sees: Docker's own reading of .dockerignore."""

from __future__ import annotations

from pathlib import Path

from docker.utils.build import exclude_paths

from trainyard.errors import RequestError

IGNORE_FILE = ".dockerignore"


def files(directory: Path) -> list[str]:
    """Return files and directories by their path in a directory, without what its .dockerignore leaves out.

    Raises RequestError for a directory or a .dockerignore that cannot be read.
    """
    try:
        found = exclude_paths(str(directory), _patterns(directory), dockerfile="Dockerfile")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            "a part of the image cannot be read",
            where=str(error),
            hint="Make it readable for you, or name it in the image's .dockerignore.",
        ) from error
    return sorted(path for path in found if path != IGNORE_FILE)


def _patterns(directory: Path) -> list[str]:
    path = directory / IGNORE_FILE
    if not path.exists():
        return []
    if not path.is_file():
        raise OSError(f"{path} is no file")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
