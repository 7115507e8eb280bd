"""What a job file must get right beyond the kinds of its values; each rule raises what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from trainyard.spec.complaints import Complaint, complain
from trainyard.spec.fields import RAY_AUTH_VARIABLES, check_variables
from trainyard.spec.placeholders import check_placeholders

MOST_TASKS = 100_000
KEY_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*$"
TASK_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._=,+-]{0,99}$"
Scalar = str | bool | int | float


def scalar_text(value: Scalar) -> str:
    """Return a value of the matrix as a command sees it; booleans as YAML writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_scalar(value: object) -> object:
    """Return a value that a command can be given as text."""
    if not isinstance(value, Scalar):
        raise ValueError("must be text, a number, true or false")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain a NUL character")
    return value


def check_matrix_key(key: str) -> str:
    """Return a key that can stand in braces."""
    if not re.fullmatch(KEY_PATTERN[1:-1], key):
        raise ValueError("must be letters, digits, '_' and '-', and start with a letter")
    return key


def check_matrix(matrix: Mapping[str, Sequence[Scalar]]) -> None:
    """Complain about keys without values, values that are there twice, and too many combinations."""
    complain(_matrix_complaints(matrix))


def check_command(command: Sequence[str], known: Collection[str] | None) -> None:
    """Complain about an empty command, and about placeholders that are not `known` (None: cannot be told)."""
    if not command:
        complain([Complaint((), "must not be empty: it is a list of a program and its arguments")])
    if not command[0].strip():
        complain([Complaint((0,), "must not be empty: it is the program to run", command[0])])
    if known is not None:
        check_placeholders(dict(enumerate(command)), known)


def check_variables_of_tasks(env: Mapping[str, str]) -> None:
    """Complain about variables of tasks that Trainyard sets itself."""
    check_variables(env, _reserved)


def check_task_name(name: str) -> str:
    """Return a task's name that is also good as a file's name."""
    if not re.fullmatch(TASK_PATTERN[1:-1], name) or ".." in name:
        raise ValueError(
            "must be letters, digits and any of . _ = , + - without '..', "
            "start with a letter or digit, at most 100 characters"
        )
    return name


def check_tasks(names: Sequence[str], *, has_command: bool, has_matrix: bool) -> None:
    """Complain about names that are there twice, and about a list beside a command or a matrix."""
    complain(_task_complaints(names, has_command, has_matrix))


def check_something_to_run(*, is_tasks: bool, has_command: bool) -> None:
    """Complain about a job that runs nothing."""
    if not is_tasks and not has_command:
        complain([Complaint(("command",), "is missing: give command, or tasks", root=True)])


def check_gpus(gpus: float) -> float:
    """Return GPUs as Ray can give them: a share of one in steps of 0.0001, or whole ones."""
    is_share = 0 <= gpus < 1 and math.isclose(gpus * 10_000, round(gpus * 10_000), abs_tol=1e-6)
    if not is_share and not gpus.is_integer():
        raise ValueError("must be a fraction below 1 (in steps of 0.0001) or a whole number")
    return gpus


def check_cpus(cpus: float) -> float:
    """Return CPUs in the steps that Ray counts in."""
    if not math.isclose(cpus * 10_000, round(cpus * 10_000), abs_tol=1e-6):
        raise ValueError("must be in steps of 0.0001")
    return cpus


def check_output(path: str) -> str:
    """Return an output's path inside the task's directory, in its shortest form. Raises for every way out of it."""
    parts = PurePosixPath(path).parts
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:|\\", path):
        raise ValueError("must be relative to the task's directory")
    if ".." in parts or "\\" in path:
        raise ValueError("must stay inside the task's directory: no '..' and no '\\'")
    if not parts:
        raise ValueError("must be a part of the task's directory, not all of it")
    if not path.isprintable():
        raise ValueError("must be printable characters")
    return str(PurePosixPath(path))


def check_installers(*, uv: bool, pip: bool) -> None:
    """Complain about two installers: Ray accepts one (ray.runtime_env)."""
    if uv and pip:
        complain([Complaint((), "has both uv and pip: Ray accepts one of them")])


def check_placement(name: str | None, group: str | None) -> None:
    """Complain unless a placement names exactly one thing."""
    if (name is None) == (group is None):
        complain([Complaint((), "must have one of: name, group")])


def check_wheels(wheels: Sequence[str], directory: Path | None) -> None:
    """Complain about wheels that are not there."""
    complain(_file_complaints(wheels, directory, suffix=".whl"))


def check_files(files: Sequence[str], directory: Path | None) -> None:
    """Complain about files and directories that are not there."""
    complain(_file_complaints(files, directory, suffix=""))


def _reserved(name: str) -> str | None:
    if name.startswith("TRAINYARD_"):
        return "is set by Trainyard: names that begin with TRAINYARD_ are its own"
    if name == "CUDA_VISIBLE_DEVICES":
        return "is set by Trainyard: it follows from resources.gpus"
    return "is set by Trainyard (see auth in the cluster file)" if name in RAY_AUTH_VARIABLES else None


def _matrix_complaints(matrix: Mapping[str, Sequence[Scalar]]) -> Iterator[Complaint]:
    for key, values in matrix.items():
        if not values:
            yield Complaint((key,), "must have at least one value")
        seen: set[str] = set()
        for index, text in enumerate(map(scalar_text, values)):
            if text in seen:
                yield Complaint((key, index), "is there twice", values[index])
            seen.add(text)
    count = math.prod(len(values) for values in matrix.values())
    if count > MOST_TASKS:
        yield Complaint((), f"makes {count:,} tasks, and a job has at most {MOST_TASKS:,}")


def _task_complaints(names: Sequence[str], has_command: bool, has_matrix: bool) -> Iterator[Complaint]:
    if not names:
        yield Complaint((), "must have at least one task")
    if len(names) > MOST_TASKS:
        yield Complaint((), f"has {len(names):,} tasks, and a job has at most {MOST_TASKS:,}")
    if has_command:
        yield Complaint((), "must not be given together with command: each task has its own")
    if has_matrix:
        yield Complaint((), "must not be given together with matrix: list every task, or use command and matrix")
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            yield Complaint((index, "name"), f"is also the name of tasks.{first[name]}", name)


def _file_complaints(files: Sequence[str], directory: Path | None, *, suffix: str) -> Iterator[Complaint]:
    """Yield what is wrong with paths relative to a job's directory; without a directory there is nothing to look at."""
    seen: set[str] = set()
    for index, file in enumerate(files):
        if not file.endswith(suffix):
            yield Complaint((index,), f"must end in {suffix}", file)
        elif file in seen:
            yield Complaint((index,), "is there twice", file)
        elif directory is not None and not _exists(directory / file, suffix):
            yield Complaint((index,), "does not exist (paths are relative to the job's directory)", file)
        seen.add(file)


def _exists(path: Path, suffix: str) -> bool:
    try:
        return path.is_file() if suffix else path.exists()
    except (OSError, ValueError):  # a name that is too long, or unreadable: as good as absent
        return False
