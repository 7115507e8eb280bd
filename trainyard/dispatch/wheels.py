"""The wheels that a job sends: files, or built from packages and cached."""

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

# Ray finds a wheel in its working directory by this prefix. Trainyard adds it to the names in
# job.yaml; an imported runtime_env.yaml may have it already.
WHEELS = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/"
_TAIL = 12
# Matches a pyproject.toml whose version comes from a plugin of its build system.
_DYNAMIC = re.compile(r"""^dynamic\s*=\s*\[[^\]]*["']version["']""", re.MULTILINE)
# Environment variables on which a wheel's version or content may depend.
_VERSIONS = (
    "SETUPTOOLS_SCM_",
    "PBR_VERSION",
    "PDM_BUILD_SCM_VERSION",
    "POETRY_DYNAMIC_VERSIONING_",
    "SOURCE_DATE_EPOCH",
)


def wheels_of(env: RuntimeEnv, directory: Path, problems: list[Problem]) -> tuple[Path, ...]:
    """Return wheel files and package directories; other paths are problems."""
    keys = {name: f"wheels.{index}" for index, name in enumerate(env.wheels)}
    for installer in ("uv", "pip"):
        for name in getattr(env, installer):
            if name.startswith(WHEELS):
                keys[name.removeprefix(WHEELS)] = installer

    for name, key in keys.items():
        path = directory / name
        where = f"runtime_env.{key}"
        if path.is_dir():
            if not any((path / file).is_file() for file in ("pyproject.toml", "setup.py")):
                problems.append(Problem(where, f"no pyproject.toml in {name}"))
        elif path.suffix != ".whl" or not path.is_file():
            problems.append(Problem(where, f"no such wheel file: {name}"))

    return tuple((directory / name).resolve() for name in keys)


def built(paths: Sequence[Path], progress: Progress) -> tuple[Path, ...]:
    """Build a wheel of each package directory, unless the cache has it.

    Returns all wheels in the order of `paths`. Raises RequestError if a build
    fails.
    """
    places = {path: _place(path) for path in paths if path.is_dir()}
    run_steps([_step(package, place) for package, place in places.items()], progress)
    wheels = []
    for path in paths:
        place = places.get(path)
        wheels.append(next(place.glob("*.whl")) if place else path)
    return tuple(wheels)


def packed(wheels: Sequence[Path]) -> Package | None:
    """Pack the wheels for Ray, or raise RequestError if they are too big."""
    if not wheels:
        return None
    listed = Listing(Path(), tuple(sent_file(wheel, wheel.name) for wheel in wheels), ())
    if listed.size >= PART_LIMIT:
        sizes = f"{formats.size(listed.size)} in all, at most {formats.size(PART_LIMIT)}"
        problem = Problem("runtime_env.wheels", sizes)
        raise RequestError("the wheels are too big for Ray", problems=(problem,))
    return pack(listed)


def _place(package: Path) -> Path:
    """Return the cache directory of a package's wheel.

    Its name depends on the package's content and version sources.
    """
    content = pack(listing(package)).name.removesuffix(".zip")
    variables = sorted(os.environ.items())
    versions = {name: value for name, value in variables if name.startswith(_VERSIONS)}
    described = git.described(package) if _is_of_git(package) else None
    if versions or described:
        content += f"-{hashlib.sha256(repr((versions, described)).encode()).hexdigest()[:16]}"
    return cache_home(os.environ) / "wheels" / content


def _is_of_git(package: Path) -> bool:
    """Say whether git may set the version: pyproject.toml has no fixed one."""
    file = package / "pyproject.toml"
    if file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
    else:
        text = ""
    return bool(_DYNAMIC.search(text)) or "[project]" not in text


def copied(package: Path, directory: Path) -> Path:
    """Copy a package without its ignored files.

    A build must not change the original. If the package's version comes from
    git, its repository is cloned, with uncommitted changes.
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
    """Clone a repository and its uncommitted changes, or raise RequestError."""
    # Git LFS files stay pointers: a download may take minutes and need a login.
    environ = {**os.environ, "GIT_LFS_SKIP_SMUDGE": "1"}
    ended = programs.run(["git", "clone", "--quiet", "--shared", str(top), str(clone)], env=environ)
    if ended.code != 0:
        what = f"{top} cannot be cloned, and a package takes its version from it"
        lines = "\n  | ".join([what, *ended.tail[-_TAIL:]])
        raise RequestError(lines, hint="Fix what git reports, then repeat the command.")

    for name in git.changed(top):
        if os.path.lexists(top / name):
            _copy(top / name, clone / name)
        else:
            (clone / name).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file and its mode, unless the same symbolic link is there."""
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
    """Build a wheel with uv, or else pip, and move it to `place` when complete.

    Raises RequestError with the end of the build's output.
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
            raise RequestError(lines, hint="Fix the build's error, then repeat the command.")
        for wheel in Path(made).glob("*.whl"):
            wheel.replace(place / wheel.name)
