"""The kinds of values that a job file has: matrix, commands, resources, outputs, variables of tasks."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from trainyard.spec.fields import (
    RAY_AUTH_VARIABLES,
    Complaint,
    Filled,
    Listed,
    Text,
    Variables,
    matching,
    repeated,
    rule,
    unusable,
)
from trainyard.spec.placeholders import unknown

MOST_TASKS = 100_000
KEY_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*$"
TASK_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._=,+-]{0,99}$"
Scalar = str | bool | int | float


def scalar_text(value: Scalar) -> str:
    """Return a value of the matrix as a command sees it; booleans as YAML writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked_scalar(value: object) -> object:
    """Return a value that a command can be given as text."""
    if not isinstance(value, Scalar):
        raise ValueError("must be text, a number, true or false")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain a NUL character")
    return value


def _matrix_complaints(matrix: Mapping[str, Sequence[Scalar]]) -> Iterator[Complaint]:
    for key, values in matrix.items():
        if not values:
            yield Complaint((key,), "must have at least one value")
        for twice in repeated(map(scalar_text, values)):
            yield Complaint((key, *twice.path), twice.message, values[int(twice.path[0])])
    count = math.prod(len(values) for values in matrix.values())
    if count > MOST_TASKS:
        yield Complaint((), f"makes {count:,} tasks, and a job has at most {MOST_TASKS:,}")


def command_complaints(command: Sequence[str], known: Collection[str] | None) -> Iterator[Complaint]:
    """Complain about an empty command, and about placeholders that are not `known` (None: cannot be told)."""
    if not command:
        yield Complaint((), "must not be empty: it is a list of a program and its arguments")
    elif not command[0].strip():
        yield Complaint((0,), "must not be empty: it is the program to run", command[0])
    elif known is not None:
        yield from unknown(dict(enumerate(command)), known)


def _reserved(name: str) -> str | None:
    if name.startswith("TRAINYARD_"):
        return "is set by Trainyard: names that begin with TRAINYARD_ are its own"
    if name == "CUDA_VISIBLE_DEVICES":
        return "is set by Trainyard: it follows from resources.gpus"
    return "is set by Trainyard (see auth in the cluster file)" if name in RAY_AUTH_VARIABLES else None


def _whole_or_share(gpus: float) -> float:
    """Return GPUs as Ray can give them: a share of one in steps of 0.0001, or whole ones."""
    is_share = 0 <= gpus < 1 and math.isclose(gpus * 10_000, round(gpus * 10_000), abs_tol=1e-6)
    if not is_share and not gpus.is_integer():
        raise ValueError("must be a fraction below 1 (in steps of 0.0001) or a whole number")
    return gpus


def _in_steps(cpus: float) -> float:
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


def file_complaints(files: Sequence[str], directory: Path | None, *, suffix: str = "") -> Iterator[Complaint]:
    """Yield what is wrong with paths relative to a job's directory; without a directory none is looked for."""
    yield from repeated(files)
    for index, file in enumerate(files):
        if not file.endswith(suffix):
            yield Complaint((index,), f"must end in {suffix}", file)
        elif directory is not None and not _exists(directory / file, suffix):
            yield Complaint((index,), "does not exist (paths are relative to the job's directory)", file)


def _exists(path: Path, suffix: str) -> bool:
    try:
        return path.is_file() if suffix else path.exists()
    except (OSError, ValueError):  # a name that is too long, or unreadable: as good as absent
        return False


MatrixValue = Annotated[Scalar, BeforeValidator(_checked_scalar)]
MatrixKey = Annotated[str, matching(KEY_PATTERN[1:-1], "must be letters, digits, '_' and '-', and start with a letter")]
Matrix = Annotated[
    dict[MatrixKey, Listed[MatrixValue]],
    rule(_matrix_complaints),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": KEY_PATTERN},
            "additionalProperties": {
                "type": "array",
                "items": {"type": ["string", "number", "boolean"]},
                "minItems": 1,
                "uniqueItems": True,
            },
        }
    ),
]
Command = Annotated[Listed[Text], WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1})]
TaskName = Annotated[
    str,
    matching(
        rf"(?!.*\.\.){TASK_PATTERN[1:-1]}",
        "must be letters, digits and any of . _ = , + - without '..', "
        "start with a letter or digit, at most 100 characters",
    ),
    WithJsonSchema({"type": "string", "pattern": TASK_PATTERN}),
]
TaskVariables = Annotated[Variables, rule(lambda env: unusable(env, _reserved))]
Outputs = Annotated[Listed[Annotated[Filled, AfterValidator(check_output)]], rule(repeated)]
Packages = Annotated[Listed[Filled], rule(repeated)]
Cpus = Annotated[float, AfterValidator(_in_steps)]
Gpus = Annotated[float, AfterValidator(_whole_or_share)]
