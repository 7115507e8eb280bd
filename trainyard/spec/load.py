"""Read a cluster file, a job's or an image's directory; the one place that says who wins: defaults < file < --set."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import stat_result
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from trainyard.errors import Problem, RequestError
from trainyard.paths import shown
from trainyard.spec import overrides as flags
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.fields import Section
from trainyard.spec.image import ImageFile
from trainyard.spec.job import JobSpec
from trainyard.spec.problems import problems_of, value_text, where
from trainyard.spec.show import default_paths
from trainyard.spec.yaml_source import KeyPath, Source, UnreadableError, compose

CLUSTER_FILE = "cluster file"
JOB_FILE = "job file"
JOB_FILE_NAME = "job.yaml"
IMAGE_FILE = "image file"
IMAGE_FILE_NAME = "image.yaml"

LARGEST = 1024 * 1024
MOST_SHOWN = 100

Model = TypeVar("Model", bound=Section)
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class LoadedCluster:
    """A cluster file as resolved: the spec, where it came from, and which values nobody wrote."""

    spec: ClusterSpec
    source: Path
    defaults: frozenset[KeyPath]


def load_cluster(path: Path, *, overrides: Sequence[str] = (), backend: str | None = None) -> LoadedCluster:
    """Return the cluster that a file describes; `backend` is the flag of that name.

    Raises RequestError with every problem at once.
    """
    source = _source(path, CLUSTER_FILE, overrides)
    if backend is not None and isinstance(source.value, Mapping):
        source = flags.put(source, flags.Override(("backend",), backend, "--backend"))
    spec = _validated(ClusterSpec, source, CLUSTER_FILE, context={"path": path})
    return LoadedCluster(spec, path, default_paths(spec))


def load_job(directory: Path, *, overrides: Sequence[str] = ()) -> JobSpec:
    """Return the job of a directory that holds a job.yaml. Raises RequestError with every problem at once."""
    if directory.is_file():
        raise _refusal(
            JOB_FILE, (Problem(shown(directory), f"is a file: give the directory that holds {JOB_FILE_NAME}"),)
        )
    source = _source(directory / JOB_FILE_NAME, JOB_FILE, overrides)
    name = directory.resolve().name
    problems = list(_name_problems(name, directory))
    if isinstance(source.value, Mapping):
        if "name" in source.value:
            problems.append(
                Problem(where(("name",), source), "must not be given: a job's name is its directory's name")
            )
        source = replace(source, value={**source.value, "name": name})
    source = replace(source, problems=(*problems, *source.problems))
    return _validated(JobSpec, source, JOB_FILE, context={"directory": directory})


def load_image(directory: Path, *, overrides: Sequence[str] = ()) -> ImageFile:
    """Return what a directory's image.yaml says. Raises RequestError with every problem at once."""
    source = _source(directory / IMAGE_FILE_NAME, IMAGE_FILE, overrides)
    return _validated(ImageFile, source, IMAGE_FILE, context={"directory": directory})


def _source(path: Path, kind: str, overrides: Sequence[str]) -> Source:
    """Return the values of a file with the flags on top: who wins is decided here and nowhere else."""
    text = _read_text(path, kind=kind)
    try:
        source = compose(text, origin=shown(path))
    except UnreadableError as error:
        raise _refusal(kind, (error.problem,)) from error
    if not isinstance(source.value, Mapping):
        problem = Problem(source.places[()], f"must be a mapping of keys to values, got {value_text(source.value)}")
        raise _refusal(kind, source.problems or (problem,))
    return flags.apply(source, overrides)


def _validated(model: type[Model], source: Source, kind: str, *, context: dict[str, Path]) -> Model:
    """Return the model of a source; its fields' defaults fill what neither file nor flags gave."""
    try:
        spec = model.model_validate(source.value, context=context)
    except ValidationError as error:
        raise _refusal(kind, (*source.problems, *problems_of(error, model, source))) from error
    if source.problems:
        raise _refusal(kind, source.problems)
    return spec


def _name_problems(name: str, directory: Path) -> Sequence[Problem]:
    if _JOB_NAME.fullmatch(name):
        return ()
    rule = "letters, digits, '.', '_' and '-', start with a letter or digit, at most 80 characters"
    return (Problem(shown(directory), f"must have a name of {rule}: it is the job's name, got {value_text(name)}"),)


def _read_text(path: Path, *, kind: str) -> str:
    """Return the text of a cluster or job file (`kind` says which). Raises RequestError if there is none to be had."""
    origin = shown(path)
    try:
        _check(path.stat(), origin, kind)
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise _refused(kind, origin, "does not exist") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refused(kind, origin, f"cannot be read: {reason}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = content[error.start]
        raise _refused(kind, f"{origin}:{line}", f"is not UTF-8 text: it contains the byte 0x{wrong:02X}") from error


def _check(status: stat_result, origin: str, kind: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise _refused(kind, origin, f"is a directory, not a {kind}")
    if not stat.S_ISREG(status.st_mode):
        raise _refused(kind, origin, "is not a regular file")
    if status.st_size > LARGEST:
        size = f"{status.st_size:,} bytes" if status.st_size < 2 * LARGEST else f"{status.st_size / 2**20:.1f} MiB"
        raise _refused(kind, origin, f"is {size} large, and a {kind} has at most 1 MiB")


def _refused(kind: str, where: str, message: str) -> RequestError:
    return _refusal(kind, (Problem(where, message),))


def _refusal(kind: str, problems: tuple[Problem, ...]) -> RequestError:
    count = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
    rest = len(problems) - MOST_SHOWN
    hint = f"{rest:,} more problems are not shown." if rest > 0 else None
    return RequestError(f"the {kind} is wrong: {count}", problems=problems[:MOST_SHOWN], hint=hint)
