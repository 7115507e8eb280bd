"""The kinds of values that both files use: names, sizes, durations, environments, secrets by name."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Strict, WithJsonSchema

from trainyard.spec import units

Entry = TypeVar("Entry")

NAME_PATTERN = r"^[a-z][a-z0-9-]{0,39}$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
HIDDEN = "(hidden)"
SECRET_NAME = re.compile(r"token|passw|secret|credential|api_?key|private_?key", re.IGNORECASE)


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


# YAML has lists, frozen models have tuples: the one conversion that strictness lets through.
Listed = Annotated[tuple[Entry, ...], Strict(False)]
Name = Annotated[str, AfterValidator(check_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]
Text = Annotated[str, AfterValidator(check_text)]
Filled = Annotated[str, AfterValidator(check_filled), WithJsonSchema({"type": "string", "minLength": 1})]
VariableName = Annotated[
    str, AfterValidator(check_variable_name), WithJsonSchema({"type": "string", "pattern": VARIABLE_PATTERN})
]
Size = Annotated[
    int,
    BeforeValidator(units.parse_size),
    WithJsonSchema({"type": "string", "pattern": units.SIZE_PATTERN, "examples": ["4GiB", "500MB"]}),
]
Duration = Annotated[
    float,
    BeforeValidator(units.parse_duration),
    WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN, "examples": ["90s", "5m", "2h"]}),
]
