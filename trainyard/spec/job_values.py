"""The kinds of values that a job file has: matrix, placeholders, resources, names of tasks, outputs."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from trainyard.spec.fields import Complaint, Filled, Listed, matching, rule
from trainyard.wording import did_you_mean

MOST_TASKS = 100_000
KEY_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*$"
TASK_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._=,+-]{0,99}$"
Scalar = str | bool | int | float

# `{{` and `}}` stand for the braces themselves.
_MARK = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*)\}|[{}]")


def scalar_text(value: Scalar) -> str:
    """Return a value of the matrix as a command sees it; booleans as YAML writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every placeholder replaced; the text was checked before."""
    return _MARK.sub(lambda mark: values[mark[1]] if mark[1] else mark[0][0], text)


def unused(keys: Collection[str], texts: Iterable[str]) -> Iterator[Complaint]:
    """Complain about every key of the matrix that no text names: its tasks would all do the same."""
    named = {mark[1] for text in texts for mark in _MARK.finditer(text)}
    for key in keys:
        if key not in named:
            yield Complaint(("matrix", key), f"is used nowhere: write {{{key}}} into command or env")


def unknown(section: str, texts: Mapping[str, str] | Mapping[int, str], known: Collection[str]) -> Iterator[Complaint]:
    """Complain about every placeholder that is not known, and about every brace on its own."""
    for key, text in texts.items():
        for mark in _MARK.finditer(text):
            name = mark[1]
            if name is None and len(mark[0]) == 1:
                meant = f"; write '{mark[0] * 2}' for the character itself"
                yield Complaint((section, key), f"has a single '{mark[0]}'", text, meant)
            elif name is not None and name not in known:
                listed = f"the matrix has {', '.join(known)}" if known else "there is no matrix"
                meant = did_you_mean(name, known) or f"; write '{{{{{name}}}}}' for the text itself"
                yield Complaint((section, key), f"names {{{name}}}, but {listed}", text, meant)


def _checked_scalar(value: object) -> object:
    """Return a value that a command can be given as text."""
    if not isinstance(value, Scalar):
        raise ValueError("must be text, a number, true or false")
    return value


def _matrix_complaints(matrix: Mapping[str, Sequence[Scalar]]) -> Iterator[Complaint]:
    for key, values in matrix.items():
        if not values:
            yield Complaint((key,), "must not be empty")
    count = math.prod(len(values) for values in matrix.values())
    if count > MOST_TASKS:
        yield Complaint((), f"makes {count:,} tasks, and a job has at most {MOST_TASKS:,}")


def _whole_or_share(gpus: float) -> float:
    """Return GPUs as Ray can give them: a share of one, or whole ones."""
    if gpus > 1 and not gpus.is_integer():
        raise ValueError("must be a fraction below 1 or a whole number")
    return gpus


def _check_output(path: str) -> str:
    """Return an output's path inside the task's directory, in its shortest form. Raises for every way out of it."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or path.startswith(("/", "~")) or re.search(r"^[A-Za-z]:|\\", path):
        raise ValueError("must be a path inside the task's directory, without '..' and '\\'")
    return str(PurePosixPath(path))


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
TaskName = Annotated[
    str,
    matching(
        rf"(?!.*\.\.){TASK_PATTERN[1:-1]}",
        "must be letters, digits and any of . _ = , + - without '..', "
        "start with a letter or digit, at most 100 characters",
    ),
    WithJsonSchema({"type": "string", "pattern": TASK_PATTERN}),
]
Outputs = Listed[Annotated[Filled, AfterValidator(_check_output)]]
Gpus = Annotated[float, AfterValidator(_whole_or_share)]
