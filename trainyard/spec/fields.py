"""The kinds of values that all files use, and how a rule says everything that is wrong with one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

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

NOTHING = object()
NAME_PATTERN = r"^[a-z][a-z0-9-]{0,39}$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
HIDDEN = "(hidden)"
SHOWN_HIDDEN = "was hidden when this file was written: put the value"
# Not TOKENIZERS_PARALLELISM, which every user of Hugging Face's libraries sets.
SECRET_NAME = re.compile(r"token(?:s?$|_)|passw|secret|credential|(?:api|access|private|ssh)_?key", re.IGNORECASE)

# How Ray's token gets to a node; the token itself never stands in a file (design.md, section 7).
RAY_AUTH_VARIABLES = frozenset({"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"})


@dataclass(frozen=True)
class Complaint:
    """What is wrong below (or with `root`, instead of) the place where a rule stands."""

    path: KeyPath
    message: str
    value: object = NOTHING
    suggestion: str = ""
    root: bool = False


class ComplaintsError(ValueError):
    """Several complaints at once; pydantic hands it on, `problems` takes it apart."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self.complaints = tuple(complaints)
        super().__init__("; ".join(complaint.message for complaint in self.complaints))


def complain(complaints: Iterable[Complaint]) -> None:
    found = tuple(complaints)
    if found:
        raise ComplaintsError(found)


def rule(complaints: Callable[[Any], Iterable[Complaint]]) -> AfterValidator:
    """Return a validator that accepts a value about which there are no complaints."""

    def validate(value: Any) -> Any:
        complain(complaints(value))
        return value

    return AfterValidator(validate)


def pattern(expression: str, message: str, *, most: int | None = None) -> Callable[[str], str]:
    """Return a check that hands text on which an expression matches as a whole. It raises ValueError."""
    compiled = re.compile(expression)

    def check(text: str) -> str:
        if (most is not None and len(text) > most) or not compiled.fullmatch(text):
            raise ValueError(message)
        return text

    return check


def matching(expression: str, message: str, *, most: int | None = None) -> AfterValidator:
    """Return a validator that accepts text of a pattern, at most so long."""
    return AfterValidator(pattern(expression, message, most=most))


def setting(default: Any, description: str, **limits: Any) -> Any:
    """Return the field of a key that may be left out."""
    return Field(default=default, description=description, **limits)


class Section(BaseModel):
    """A part of a file: no conversions, nothing unknown, never changed afterwards."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="after")
    def _check_complaints(self) -> Section:
        complain(self.complaints())
        return self

    def complaints(self) -> Iterator[Complaint]:
        """Yield what is wrong with values that are right each by itself."""
        yield from ()


def _writable(text: str) -> str:
    """Return text that a process can be given: arguments and variables end at a NUL byte."""
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must not contain half of a surrogate pair")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return _writable(text)


def repeated(texts: Iterable[str]) -> Iterator[Complaint]:
    """Complain about every entry of a list that it has before."""
    first: dict[str, int] = {}
    for index, text in enumerate(texts):
        if first.setdefault(text, index) != index:
            yield Complaint((index,), "is there twice", text)


def same_names(names: Sequence[str], section: str) -> Iterator[Complaint]:
    """Complain about every entry of a section whose name an earlier one has."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            yield Complaint((index, "name"), f"is also the name of {section}.{first[name]}", name)


def unusable(variables: Mapping[str, str], reserved: Callable[[str], str | None]) -> Iterator[Complaint]:
    """Complain about variables that Trainyard sets itself (`reserved` says why), and about values that `show` hid."""
    for name, value in variables.items():
        if reason := reserved(name) or (SHOWN_HIDDEN if value == HIDDEN else None):
            yield Complaint((name,), reason)


def _size(written: object, info: ValidationInfo) -> int:
    """Return bytes: from text in a file, or as they are where a spec is made by code."""
    if info.context is None and isinstance(written, int) and not isinstance(written, bool):
        return written
    return units.parse_size(written)


def _duration(written: object, info: ValidationInfo) -> float:
    """Return seconds: from text in a file, or as they are where a spec is made by code."""
    if info.context is None and isinstance(written, int | float) and not isinstance(written, bool):
        return written
    return units.parse_duration(written)


# YAML has lists, frozen models have tuples: the one conversion that strictness lets through.
Listed = Annotated[tuple[Entry, ...], Strict(False)]
# Legal as a host name's part, a Kubernetes object and a directory.
Name = Annotated[
    str,
    matching(
        NAME_PATTERN[1:-1],
        "must be lower-case letters, digits and '-', start with a letter, at most 40 characters",
    ),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN}),
]
Text = Annotated[str, AfterValidator(_writable)]
Filled = Annotated[str, AfterValidator(_filled), WithJsonSchema({"type": "string", "minLength": 1})]
AbsolutePath = Annotated[
    Filled, matching(r"(?!.*(?:^|/)\.\.(?:/|$))/[^:]*", "must be an absolute path, without '..' and ':'")
]
VariableName = Annotated[
    str,
    matching(VARIABLE_PATTERN[1:-1], "must be the name of an environment variable: letters, digits and '_'"),
    WithJsonSchema({"type": "string", "pattern": VARIABLE_PATTERN}),
]
Variables = Annotated[
    dict[VariableName, Text],
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": VARIABLE_PATTERN},
            "additionalProperties": {"type": "string"},
        }
    ),
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(units.format_size, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": units.SIZE_PATTERN, "examples": ["4GiB", "500MB"]}),
]
Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(units.format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN, "examples": ["90s", "5m", "2h"]}),
]
