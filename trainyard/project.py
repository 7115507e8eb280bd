"""`trainyard init`: a project of one's own, with a cluster file, a job that runs, and a CI workflow that runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from trainyard import __version__, paths
from trainyard.errors import PrerequisiteError, Problem, RequestError

NAME_LIMIT = 40


def contents(directory: Path) -> Mapping[Path, str]:
    """Return the files of a new project there, none of which may exist. Raises RequestError."""
    ours = paths.shipped("project")
    found = {path.relative_to(ours): path.read_text() for path in sorted(ours.rglob("*")) if path.is_file()}
    found[Path("requirements.txt")] = f"trainyard[local]=={__version__}\n"
    cluster = (paths.shipped("clusters") / f"{paths.DEFAULT_CLUSTER}.yaml").read_text().replace("invoke ", "trainyard ")
    # Two projects on one machine have two clusters.
    named = re.sub(r"(?m)^name: \S+", f"name: {_name(directory)}", cluster, count=1)
    found[Path("clusters") / f"{paths.DEFAULT_CLUSTER}.yaml"] = named
    there = [directory / name for name in found if (directory / name).exists()]
    if there:
        raise RequestError(
            f"{directory} has files that a new project would overwrite",
            problems=tuple(Problem(str(path), "is there") for path in there),
            hint="Name another directory: trainyard init DIRECTORY",
        )
    return {directory / name: text for name, text in found.items()}


def write(contents: Mapping[Path, str]) -> None:
    """Write the files. Raises PrerequisiteError if that is not allowed here."""
    for path, text in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            raise PrerequisiteError(f"cannot write {path}: {error.strerror}") from error


def _name(directory: Path) -> str:
    """Return a cluster's name made of a directory's."""
    letters = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return letters[:NAME_LIMIT].strip("-") or paths.DEFAULT_CLUSTER
