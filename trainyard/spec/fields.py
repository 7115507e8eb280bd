"""Types of values for all files, and validators that report all problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from trainyard.spec import units
from trainyard.spec.yaml_source import KeyPath

Entry = TypeVar("Entry")

# Marks a missing value, because None is a value.
NOTHING = object()
NAME_PATTERN = r"^[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
# Variables that a file may not set: Trainyard or Ray sets them, or they are about the login to Ray,
# whose token must not be in a file.
_OURS = re.compile(
    r"TRAINYARD_.*|CUDA_VISIBLE_DEVICES|PWD|RAY_ADDRESS|RAY_AUTH_(?:MODE|TOKEN|TOKEN_PATH)"
)


@dataclass(frozen=True)
class Complaint:
    """A problem with a value.

    `path` is relative to the checked value. The message quotes `value`, unless
    it is NOTHING.
    """

    path: KeyPath
    message: str
    value: object = NOTHING
    suggestion: str = ""


class ComplaintsError(ValueError):
    """Several complaints in one error, which spec/problems.py splits."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self.complaints = tuple(complaints)
        super().__init__("; ".join(complaint.message for complaint in self.complaints))


def complain(complaints: Iterable[Complaint]) -> None:
    every = tuple(complaints)
    if every:
        raise ComplaintsError(every)


def rule(complaints: Callable[[Any], Iterable[Complaint]]) -> AfterValidator:
    def validate(value: Any) -> Any:
        complain(complaints(value))
        return value

    return AfterValidator(validate)


def takes_text_alone(kind: Any, keys: Sequence[str]) -> bool:
    """Say whether the key at this path accepts only text or None."""
    origin = get_origin(kind)
    inner = get_args(kind)
    if origin is Annotated:
        return takes_text_alone(inner[0], keys)
    if origin in (Union, UnionType):
        return all(takes_text_alone(option, keys) for option in inner if option is not NoneType)
    if not keys:
        return kind is str
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(keys[0])
        return field is not None and takes_text_alone(field.annotation, keys[1:])
    if origin in (dict, Mapping):
        return takes_text_alone(inner[1], keys[1:])
    if inner:
        return takes_text_alone(inner[0], keys[1:])
    return False


def pattern(expression: str, message: str) -> Callable[[str], str]:
    """Return a check that `expression` matches the whole text."""
    compiled = re.compile(expression)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(message)
        return text

    return check


def matching(expression: str, message: str) -> AfterValidator:
    return AfterValidator(pattern(expression, message))


def setting(default: Any, description: str, **limits: Any) -> Any:
    return Field(default=default, description=description, **limits)


def check_relative(path: str) -> str:
    """Shorten a path; raise ValueError if it may leave the task's directory."""
    parts = PurePosixPath(path).parts
    if (
        not parts
        or ".." in parts
        or path.startswith(("/", "~"))
        or re.search(r"^[A-Za-z]:|\\", path)
    ):
        raise ValueError("must be a path inside the task's directory, without '..' and '\\'")
    return str(PurePosixPath(path))


class Section(BaseModel):
    """A frozen part of a file, without conversions and unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="after")
    def _check_complaints(self) -> Section:
        complain(self.complaints())
        return self

    def complaints(self) -> Iterator[Complaint]:
        """Yield problems of values that are valid alone, but not together."""
        yield from ()


def same_names(names: Sequence[str], section: str) -> Iterator[Complaint]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            yield Complaint((index, "name"), f"is also the name of {section}.{first[name]}", name)


def is_set_by_trainyard(name: str, value: str) -> bool:
    # RAY_ADDRESS=auto is harmless: like Trainyard's own value, it means the task's cluster.
    return bool(_OURS.fullmatch(name)) and (name, value) != ("RAY_ADDRESS", "auto")


def _unusable(variables: Mapping[str, str]) -> Iterator[Complaint]:
    for name, value in variables.items():
        if is_set_by_trainyard(name, value):
            yield Complaint((name,), "is set by Trainyard")


def _without_program(words: Sequence[str]) -> Iterator[Complaint]:
    if not words or not words[0]:
        yield Complaint((), "must be a list of a program and its arguments")


def _read_by(parse: Callable[[object], float]) -> BeforeValidator:
    """Read a file's values with `parse`.

    Code makes models without a validation context, and may pass plain numbers.
    """

    def read(written: object, info: ValidationInfo) -> object:
        is_number = isinstance(written, int | float) and not isinstance(written, bool)
        if info.context is None and is_number:
            return written
        return parse(written)

    return BeforeValidator(read)


# YAML has lists, frozen models have tuples. No other value of a file is converted.
Listed = Annotated[tuple[Entry, ...], Strict(False)]
# A name becomes part of the names of hosts, Kubernetes objects and directories.
Name = Annotated[
    str,
    matching(
        NAME_PATTERN[1:-1],
        "must be lower-case letters, digits and '-', start with a letter, not end with '-', at "
        "most 40 characters",
    ),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN}),
]
Filled = Annotated[str, Field(min_length=1)]
AbsolutePath = Annotated[
    Filled,
    matching(r"(?!.*(?:^|/)\.\.(?:/|$))/[^:]*", "must be an absolute path, without '..' and ':'"),
]
VariableName = Annotated[
    str,
    matching(
        VARIABLE_PATTERN[1:-1],
        "must be the name of an environment variable: letters, digits and '_'",
    ),
    WithJsonSchema({"type": "string", "pattern": VARIABLE_PATTERN}),
]
Variables = Annotated[
    dict[VariableName, str],
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": VARIABLE_PATTERN},
            "additionalProperties": {"type": "string"},
        }
    ),
]
OwnVariables = Annotated[Variables, rule(_unusable)]
Command = Annotated[
    Listed[str],
    rule(_without_program),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
]
Size = Annotated[
    int,
    _read_by(units.parse_size),
    PlainSerializer(units.format_size, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": units.SIZE_PATTERN, "examples": ["4GiB", "500MB"]}
    ),
]
Duration = Annotated[
    float,
    _read_by(units.parse_duration),
    PlainSerializer(units.format_duration, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": units.DURATION_PATTERN, "examples": ["90s", "5m", "2h"]}
    ),
]
