"""What travels to the cluster for one job: its directory, the files it names elsewhere, its wheels, the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import trainyard_runner

from trainyard.dispatch.package import Listing, Package, SentFile, listing, pack, sized
from trainyard.errors import Problem, RequestError
from trainyard.seams.ray_api import PART_LIMIT
from trainyard.spec import JobSpec


@dataclass(frozen=True)
class Sending:
    """Everything to send, still unpacked; wheels travel apart because Ray itself has to find them."""

    job: Listing
    wheels: Listing | None


def of_job(directory: Path, job: JobSpec) -> Sending:
    """List what a job sends. Raises RequestError naming every extra file or wheel that is missing or in the way."""
    found = listing(directory)
    problems: list[Problem] = []
    extra = _extra_files(found, job.runtime_env.files, problems)
    wheels = _wheels(found.directory, job.runtime_env.wheels, problems)
    if problems:
        raise RequestError(f"job {job.name} names files that cannot be sent", problems=tuple(problems))
    files = tuple(sorted((*found.files, *extra), key=lambda file: file.name))
    return Sending(replace(found, files=files), Listing(found.directory, wheels, ()) if wheels else None)


def runner_package() -> Package:
    """Pack the runner, as importable from a zip."""
    found = listing(Path(trainyard_runner.__file__).parent)
    sources = tuple(file for file in found.files if file.name.endswith(".py"))
    return pack(replace(found, files=sources), prefix="trainyard_runner/")


def _extra_files(found: Listing, names: Sequence[str], problems: list[Problem]) -> list[SentFile]:
    """Return the files of `runtime_env.files` that the listing lacks.

    What lies in the job directory keeps its place (an ignore file left it out); anything else lands at the top of the
    job under its own last name.
    """
    taken = {file.name for file in found.files}
    tops = {name.split("/", 1)[0] for name in taken}
    extra: list[SentFile] = []
    for index, name in enumerate(names):
        path = (found.directory / name).resolve()
        inside = path.is_relative_to(found.directory)
        place = path.relative_to(found.directory).as_posix() if inside else path.name
        if not path.exists():
            problems.append(Problem(f"runtime_env.files.{index}", f"no such file or directory: {name}"))
        elif not inside and place in tops:
            problems.append(Problem(f"runtime_env.files.{index}", f"the job directory has a {place!r} already"))
        else:
            tops.add(place)
            extra += [file for file in _placed(path, place) if file.name not in taken]
    return extra


def _placed(path: Path, place: str) -> list[SentFile]:
    if path.is_dir():
        return [replace(file, name=f"{place}/{file.name}") for file in listing(path).files]
    found = path.stat()
    return [SentFile(place, path, found.st_size, executable=bool(found.st_mode & 0o100))]


def _wheels(directory: Path, names: Sequence[str], problems: list[Problem]) -> tuple[SentFile, ...]:
    wheels: list[SentFile] = []
    for index, name in enumerate(names):
        path = directory / name
        if path.suffix != ".whl" or not path.is_file():
            problems.append(Problem(f"runtime_env.wheels.{index}", f"no such wheel file: {name}"))
        else:
            wheels.append(SentFile(path.name, path, path.stat().st_size))
    size = sum(wheel.size for wheel in wheels)
    if size >= PART_LIMIT:
        problems.append(Problem("runtime_env.wheels", f"{sized(size)} in all, at most {sized(PART_LIMIT)}"))
    return tuple(wheels)
