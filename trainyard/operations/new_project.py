"""Write missing project files; list the lines that existing files lack."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard import __version__, paths, versions
from trainyard.dispatch import ignore, wheels
from trainyard.errors import PrerequisiteError, TrainyardError, in_a_line
from trainyard.seams import git, installed
from trainyard.steps import Progress

WORKFLOW = ".github/workflows/train.yml"
GITIGNORE = ".gitignore"
# Listed one by one: project/ may hold other files, such as bytecode that pip compiles there.
SHIPPED = (WORKFLOW, GITIGNORE, "jobs/spirals/job.yaml", "jobs/spirals/train.py")
CLUSTER = f"clusters/{paths.DEFAULT_CLUSTER}.yaml"
REQUIREMENTS = "requirements.txt"
WHEELS = "wheels"
NAME_LIMIT = 40
# Lines for .gitignore: a usual .gitignore for Python ignores wheels/, from which CI installs
# Trainyard.
KEEP_WHEELS = (f"!/{WHEELS}/", f"!/{WHEELS}/*.whl")
_ANY_REQUIREMENT = re.compile(r"(?m)^\s*[^#\n]*\btrainyard[-_]ray\b")


@dataclass(frozen=True)
class Requirement:
    """The text of requirements.txt, and the wheel that it names, if any.

    `problem` says why the text does not name Trainyard.
    """

    text: str
    wheel: Path | None = None
    problem: str = ""


@dataclass(frozen=True)
class Made:
    """The files that were written, and those that existed and are unchanged.

    `add` has lines that the user should add to existing files. `remarks` says
    what else the user must do.
    """

    written: tuple[str, ...]
    existed: tuple[str, ...]
    add: Mapping[str, Sequence[str]]
    remarks: tuple[str, ...]


def make(directory: Path, progress: Progress) -> Made:
    """Write the project files that a directory lacks.

    Raises PrerequisiteError for a file that cannot be written.
    """
    with tempfile.TemporaryDirectory() as built:
        requirement = requirement_for(directory, Path(built), progress)
        texts = contents(directory, requirement)
        existed = tuple(name for name in texts if os.path.lexists(directory / name))
        written = [name for name in texts if name not in existed]
        for name in written:
            write(directory / name, texts[name].encode())

        wheel = requirement.wheel
        if wheel and not (directory / WHEELS / wheel.name).exists():
            written.append(f"{WHEELS}/{wheel.name}")
            write(directory / written[-1], wheel.read_bytes())

    add = {}
    for name in existed:
        lines = _lacking(name, directory / name, texts[name])
        if lines:
            add[name] = lines

    remarks = filter(None, (requirement.problem, _not_at_the_top(directory)))
    return Made(tuple(written), existed, add, tuple(remarks))


def contents(directory: Path, requirement: Requirement) -> dict[str, str]:
    """Return the text of each project file, by path; the wheel is left out."""
    texts = {name: (paths.shipped("project") / name).read_text() for name in SHIPPED}
    if requirement.wheel and _is_ignored(directory / WHEELS / requirement.wheel.name):
        texts[GITIGNORE] += "\n".join(["# CI installs Trainyard from here.", *KEEP_WHEELS, ""])
    texts[REQUIREMENTS] = requirement.text
    cluster = (paths.shipped("clusters") / f"{paths.DEFAULT_CLUSTER}.yaml").read_text()
    # Named after the project: two projects on one machine then have two clusters.
    texts[CLUSTER] = re.sub(r"(?m)^name: \S+", f"name: {name_of(directory)}", cluster, count=1)
    return texts


def requirement_for(directory: Path, built: Path, progress: Progress) -> Requirement:
    """Return CI's requirement of this Trainyard: an address or a new wheel.

    The wheel of an installed package is written into `built`. The text is empty
    if the directory's requirements.txt already names Trainyard.
    """
    existing = directory / REQUIREMENTS
    if existing.is_file() and _ANY_REQUIREMENT.search(existing.read_text(errors="replace")):
        return Requirement("")

    distribution = installed.find()
    if distribution is None:
        return _without("Trainyard is not installed here")

    origin = installed.origin(distribution.read_text("direct_url.json"))
    if origin.address:
        return Requirement(f"{versions.DISTRIBUTION}[local] @ {origin.address}\n")

    try:
        if origin.checkout:
            (wheel,) = wheels.built([origin.checkout], progress)
        else:
            wheel = installed.write_wheel(distribution, built)
    except TrainyardError as error:
        return _without(in_a_line(error))
    except OSError as error:
        return _without(f"no wheel can be made of the installed Trainyard: {error}")

    return Requirement(f"./{WHEELS}/{wheel.name}[local]\n", wheel)


def name_of(directory: Path) -> str:
    """Make a cluster name of the directory's name."""
    letters = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return letters[:NAME_LIMIT].strip("-") or paths.DEFAULT_CLUSTER


def _without(why: str) -> Requirement:
    """Return a requirements.txt with only comments: CI fails at once."""
    wheel = f"trainyard_ray-{__version__}-py3-none-any.whl"
    text = (
        "# Trainyard is on no package index: write the address of its wheel, or put the wheel "
        "into wheels/.\n"
        f"# {versions.DISTRIBUTION}[local] @ https://HOST/{wheel}\n"
        f"# ./{WHEELS}/{wheel}[local]\n"
    )
    problem = f"{REQUIREMENTS} does not name Trainyard, and CI will fail: {why}"
    return Requirement(text, problem=problem)


def _lacking(name: str, path: Path, text: str) -> list[str]:
    """Return lines that an existing .gitignore or requirements.txt lacks."""
    if name not in (GITIGNORE, REQUIREMENTS) or not path.is_file():
        return []
    existing = {line.strip().strip("/") for line in path.read_text(errors="replace").splitlines()}
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if line.strip("/") not in existing]


def _is_ignored(path: Path) -> bool:
    """Say whether git would ignore this wheel by the existing ignore files."""
    directory = path.parents[1].resolve()
    rules = ignore.rules_for(directory)
    wheels_directory = directory / WHEELS
    sources = (
        ignore.source_of(wheels_directory, rules, is_directory=True),
        ignore.source_of(wheels_directory / path.name, rules, is_directory=False),
    )
    return any(sources)


def _not_at_the_top(directory: Path) -> str:
    """Return a remark if the project is below the top of its repository."""
    top = git.top(directory)
    if top is None or top == directory.resolve():
        return ""
    return (
        f"GitHub runs only workflows at the top of a repository: move {WORKFLOW} to {top}, "
        "and give its job `defaults: {run: {working-directory: "
        f"{directory.resolve().relative_to(top)}}}}}`"
    )


def write(path: Path, content: bytes) -> None:
    """Write a file and the directories above it. Raises PrerequisiteError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise PrerequisiteError(f"cannot write {path}: {error.strerror}") from error
