"""Begin a project: a cluster file, a job that runs, and a CI workflow that runs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from trainyard import __version__, paths
from trainyard.errors import PrerequisiteError, Problem, RequestError
from trainyard.tasks.command import Call, task
from trainyard.tasks.report import Report

NAME_LIMIT = 40


@task(positional=["directory"], help={"directory": "Where to (default: here); it is made if it is not there."})
def init(call: Call, directory: str = ".") -> Report:
    """Write a project: a cluster file, a job that runs, a CI workflow that runs it. Overwrites nothing."""
    files = contents(Path(directory))
    for path, text in files.items():
        _write(path, text)
    names = [str(path) for path in files]
    enter = "" if directory == "." else f"cd {shlex.quote(directory)} && "
    return Report({"directory": directory, "files": names}, names, next=f"{enter}trainyard cluster.up")


def contents(directory: Path) -> Mapping[Path, str]:
    """Return the files of a new project there, none of which may exist. Raises RequestError."""
    ours = paths.shipped("project")
    found = {path.relative_to(ours): path.read_text() for path in sorted(ours.rglob("*")) if path.is_file()}
    found[Path("requirements.txt")] = f"trainyard[local]=={__version__}\n"
    cluster = (paths.shipped("clusters") / f"{paths.DEFAULT_CLUSTER}.yaml").read_text().replace("invoke ", "trainyard ")
    # Two projects on one machine have two clusters.
    named = re.sub(r"(?m)^name: \S+", f"name: {_name(directory)}", cluster, count=1)
    found[Path("clusters") / f"{paths.DEFAULT_CLUSTER}.yaml"] = named
    existing = [directory / name for name in found if (directory / name).exists()]
    if existing:
        raise RequestError(
            f"{directory} has files that a new project would overwrite",
            problems=tuple(Problem(str(path), "exists") for path in existing),
            hint="Name another directory: trainyard init DIRECTORY",
        )
    return {directory / name: text for name, text in found.items()}


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise PrerequisiteError(f"cannot write {path}: {error.strerror}") from error


def _name(directory: Path) -> str:
    letters = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return letters[:NAME_LIMIT].strip("-") or paths.DEFAULT_CLUSTER
