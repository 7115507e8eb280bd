"""The token of a Ray cluster that somebody else runs: where the cluster file says that it is."""

from __future__ import annotations

from pathlib import Path

from trainyard.backends.contract import Tools
from trainyard.errors import PrerequisiteError


def of_environment(name: str, tools: Tools) -> str:
    """Return what an environment variable holds. Raises PrerequisiteError if it is not set."""
    token = tools.environ.get(name, "").strip()
    if not token:
        raise PrerequisiteError(
            f"the cluster's token is expected in ${name}, which is not set",
            where=str(tools.source) if tools.source else None,
            hint=f"Set it without showing it: read -rs {name} && export {name}",
        )
    return token


def of_file(written: str, tools: Tools) -> str:
    """Return what a file holds; a relative path is the cluster file's neighbour. Raises PrerequisiteError."""
    path = Path(written).expanduser()
    if not path.is_absolute() and tools.source:
        path = tools.source.parent / path
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise PrerequisiteError(
            f"the cluster's token cannot be read: {error.strerror}",
            where=str(path),
            hint="Ask whoever runs the cluster for the file.",
        ) from error
    if not token:
        raise PrerequisiteError("the file with the cluster's token is empty", where=str(path))
    return token
