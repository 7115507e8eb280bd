"""The kinds of values that both files use: names, sizes, durations, environments, secrets by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    Strict,
    ValidationInfo,
    WithJsonSchema,
)

from trainyard.spec import units
from trainyard.spec.complaints import Complaint, complain

Entry = TypeVar("Entry")

NAME_PATTERN = r"^[a-z][a-z0-9-]{0,39}$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
HIDDEN = "(hidden)"
SHOWN_HIDDEN = "was hidden when this file was written: put the value"
# Not TOKENIZERS_PARALLELISM, which every user of Hugging Face's libraries sets.
SECRET_NAME = re.compile(r"token(?:s?$|_)|passw|secret|credential|(?:api|access|private|ssh)_?key", re.IGNORECASE)

# How Ray's token gets to a node; the token itself never stands in a file (design.md, section 7).
RAY_AUTH_VARIABLES = frozenset({"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"})


class Section(BaseModel):
    """A part of a file: no conversions, nothing unknown, never changed afterwards."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


def check_name(name: str) -> str:
    """Return a name that is legal as a host name's part, a Kubernetes object and a directory."""
    if not re.fullmatch(NAME_PATTERN[1:-1], name):
        raise ValueError("must be lower-case letters, digits and '-', start with a letter, at most 40 characters")
    return name


def check_variable_name(name: str) -> str:
    """Return the name of an environment variable."""
    if not re.fullmatch(VARIABLE_PATTERN[1:-1], name):
        raise ValueError("must be the name of an environment variable: letters, digits and '_'")
    return name


def check_text(text: str) -> str:
    """Return text that a process can be given: arguments and variables end at a NUL byte."""
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must not contain half of a surrogate pair")
    return text


def check_filled(text: str) -> str:
    """Return text that says something."""
    if not text.strip():
        raise ValueError("must not be empty")
    return check_text(text)


def check_unique(texts: Collection[str]) -> None:
    """Complain about every entry of a list that was there before."""
    first: dict[str, int] = {}
    complain(
        Complaint((index,), "is there twice", text)
        for index, text in enumerate(texts)
        if first.setdefault(text, index) != index
    )


def check_variables(variables: Mapping[str, str], reserved: Callable[[str], str | None]) -> None:
    """Complain about variables that Trainyard sets itself (`reserved` says why), and about values that `show` hid."""
    complain(
        Complaint((name,), reason)
        for name, value in variables.items()
        if (reason := reserved(name) or (SHOWN_HIDDEN if value == HIDDEN else None))
    )


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
Name = Annotated[str, AfterValidator(check_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]
Text = Annotated[str, AfterValidator(check_text)]
Filled = Annotated[str, AfterValidator(check_filled), WithJsonSchema({"type": "string", "minLength": 1})]
VariableName = Annotated[
    str, AfterValidator(check_variable_name), WithJsonSchema({"type": "string", "pattern": VARIABLE_PATTERN})
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
