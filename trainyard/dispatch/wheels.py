"""Wheels that a job sends along: files as they are, and packages of this machine, built once for
each content.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainyard.dispatch.package import Listing, Package, listing, pack, sent_file
from trainyard.errors import Problem, RequestError
from trainyard.paths import cache_home
from trainyard.results import formats
from trainyard.seams import git, programs
from trainyard.seams.ray_api import PART_LIMIT
from trainyard.spec.job import RuntimeEnv
from trainyard.steps import YES, Progress, Step, no
from trainyard.steps import run as run_steps

# What Ray wants before each wheel. It is written for the user; in a runtime_env.yaml it may stand
# already.
WHEELS = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/"
_TAIL = 12
# A pyproject.toml that leaves the version to a plugin of its build system.
_DYNAMIC = re.compile(r"""^dynamic\s*=\s*\[[^\]]*["']version["']""", re.MULTILINE)
# Variables that such plugins take a version from.
_VERSIONS = (
    "SETUPTOOLS_SCM_",
    "PBR_VERSION",
    "PDM_BUILD_SCM_VERSION",
    "POETRY_DYNAMIC_VERSIONING_",
    "SOURCE_DATE_EPOCH",
)


def wheels_of(env: RuntimeEnv, directory: Path, problems: list[Problem]) -> tuple[Path, ...]:
    """Return the wheels and the directories of packages that a job names; what is neither is added
    to the problems.
    """
    names = {name: f"wheels.{index}" for index, name in enumerate(env.wheels)}
    for kind in ("uv", "pip"):
        names |= {
            name.removeprefix(WHEELS): kind
            for name in getattr(env, kind)
            if name.startswith(WHEELS)
        }

    for name, key in names.items():
        path = directory / name
        if path.is_dir() and not any(
            (path / file).is_file() for file in ("pyproject.toml", "setup.py")
        ):
            problems.append(Problem(f"runtime_env.{key}", f"no pyproject.toml in {name}"))
        elif not path.is_dir() and not (path.suffix == ".whl" and path.is_file()):
            problems.append(Problem(f"runtime_env.{key}", f"no such wheel file: {name}"))

    return tuple((directory / name).resolve() for name in names)


def built(paths: Sequence[Path], progress: Progress) -> tuple[Path, ...]:
    """Build the wheels of packages whose content is new; return the wheels. Raises RequestError."""
    places = {path: _place(path) for path in paths if path.is_dir()}
    run_steps([_step(package, place) for package, place in places.items()], progress)
    return tuple(next(places[path].glob("*.whl")) if path in places else path for path in paths)


def packed(wheels: Sequence[Path]) -> Package | None:
    """Return a package that holds nothing but wheels, if there are any. Raises RequestError for
    more than Ray takes.
    """
    listed = Listing(Path(), tuple(sent_file(wheel, wheel.name) for wheel in wheels), ())
    if listed.size >= PART_LIMIT:
        sizes = f"{formats.size(listed.size)} in all, at most {formats.size(PART_LIMIT)}"
        raise RequestError(
            "the wheels are too big for Ray", problems=(Problem("runtime_env.wheels", sizes),)
        )
    return pack(listed) if wheels else None


def _place(package: Path) -> Path:
    """Return where the wheel of a package's content is kept, and of all else that decides its
    version.
    """
    content = pack(listing(package)).name.removesuffix(".zip")
    said = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VERSIONS)}
    described = None
    if _is_of_git(package):
        described = git.described(package)
    if said or described:
        content += f"-{hashlib.sha256(repr((said, described)).encode()).hexdigest()[:16]}"
    return cache_home(os.environ) / "wheels" / content


def _is_of_git(package: Path) -> bool:
    """Say whether a package's version may come from git: no version stands in its
    pyproject.toml.
    """
    file = package / "pyproject.toml"
    if file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
    else:
        text = ""
    return bool(_DYNAMIC.search(text)) or "[project]" not in text


def copied(package: Path, directory: Path) -> Path:
    """Copy a package, without what ignore files name, so that a build leaves nothing in it; return
    where it is.

    A package whose version comes from git is copied with its repository: a clone, with what is
    changed in it.
    """
    top = None
    if _is_of_git(package) and git.described(package):
        top = git.top(package)

    if top is None:
        copy = directory / package.name
    else:
        clone = directory / top.name
        _clone(top, clone)
        copy = clone / package.resolve().relative_to(top.resolve())

    found = listing(package)
    for file in found.files:
        _copy(file.path, copy / file.name)

    for name in found.empty_directories:
        (copy / name).mkdir(parents=True, exist_ok=True)

    return copy


def _clone(top: Path, clone: Path) -> None:
    """Clone a repository as its files are now. Raises RequestError with git's words."""
    # Files of Git LFS stay pointers: to fetch them may take minutes and a login.
    environ = {**os.environ, "GIT_LFS_SKIP_SMUDGE": "1"}
    ended = programs.run(["git", "clone", "--quiet", "--shared", str(top), str(clone)], env=environ)
    if ended.code != 0:
        lines = "\n  | ".join(
            [
                f"{top} cannot be cloned, and a package takes its version from it",
                *ended.tail[-_TAIL:],
            ]
        )
        raise RequestError(lines, hint="Mend what git says, then repeat the command.")

    for name in git.changed(top):
        if os.path.lexists(top / name):
            _copy(top / name, clone / name)
        else:
            (clone / name).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its mode; a link that git keeps as a link stays what it is."""
    if source.is_symlink() and target.is_symlink() and source.readlink() == target.readlink():
        return
    if not source.is_dir():
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _step(package: Path, place: Path) -> Step:
    return Step(
        f"wheel:{package.name}",
        f"Build a wheel of {package.name}",
        done=lambda: YES if any(place.glob("*.whl")) else no("its content is new"),
        do=partial(_build, package, place),
        deadline=10.0,
    )


def _build(package: Path, place: Path) -> None:
    """Build with uv, where there is none with this Python's pip; the wheel gets its place once it
    is whole.
    """
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as made, tempfile.TemporaryDirectory() as directory:
        source = str(copied(package, Path(directory)))
        ended = programs.run(["uv", "build", "--wheel", "--out-dir", made, source], env=os.environ)
        if ended.code == programs.NOT_FOUND:
            pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", made, source]
            ended = programs.run(pip, env=os.environ)
        if ended.code != 0:
            lines = "\n  | ".join([f"no wheel could be built of {package}", *ended.tail[-_TAIL:]])
            raise RequestError(lines, hint="Mend what it says, then repeat the command.")
        for wheel in Path(made).glob("*.whl"):
            wheel.replace(place / wheel.name)
