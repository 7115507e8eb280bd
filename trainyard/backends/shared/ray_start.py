"""Parameters of `ray start` in other tools' files and in cluster files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainyard.spec.ray_nodes import MADE_FROM, may_be_given
from trainyard.spec.units import format_size

# Trainyard sets these parameters itself, so they need no note.
_ALWAYS = ("address", "autoscaling-config", "block", "head")
# Trainyard uses the same values, so they need no note.
_ALIKE = {
    "dashboard-host": "0.0.0.0",  # noqa: S104
    "dashboard-port": "8265",
    "include-dashboard": "true",
    "port": "6379",
}
# The keys of a cluster file for parameters that are whole numbers.
_NUMBERS = {"num-cpus": "cpus", "num-gpus": "gpus"}
# Parameters for which a cluster file has keys of its own.
_WITH_KEYS = (*_NUMBERS, "memory", "resources", "labels")


def is_for_a_shell(value: object) -> bool:
    """Say whether a value needs a shell, which Trainyard does not use."""
    return any(sign in str(value) for sign in "$`")


def placed(written: Mapping[str, object], name: str) -> tuple[dict[str, Any], list[str]]:
    """Return a group's `ray_start`, and notes on the other parameters.

    `written` excludes parameters with a cluster file key of their own, such as
    num-cpus. `name` is the group's.
    """
    found: dict[str, Any] = {}
    notes = []
    for key, value in written.items():
        if key in _ALWAYS or _ALIKE.get(key) == str(value):
            continue

        if is_for_a_shell(value):
            notes.append(
                f"{key} of {name}: {value} needs a shell to expand it; Trainyard uses none"
            )
        elif may_be_given(key):
            found[key] = _typed(value)
        elif key in MADE_FROM:
            notes.append(f"{key} of {name} ({value}): follows from {MADE_FROM[key]} here")
        else:
            notes.append(f"{key} of {name}: this parameter of `ray start` has no place here")

    return found, notes


def keyed(
    written: Mapping[str, Any], name: str
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return a group's keys, the parameters without one, and notes.

    A parameter that needs a shell is among those without a key.
    """
    found: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    notes: list[str] = []
    for key, value in written.items():
        if key not in _WITH_KEYS or is_for_a_shell(value):
            rest[key] = value
        elif key in _NUMBERS:
            found[_NUMBERS[key]] = int(value)
        elif key == "memory":
            found["memory"] = format_size(int(value))
        elif key == "labels":
            found["labels"] = labels_of(str(value))
        else:
            custom, notes = resources(json.loads(value), name)
            found |= custom
    return found, rest, notes


def labels_of(text: str) -> dict[str, str]:
    """Parse `--labels`: `a=b,c=d`, or JSON, which older Rays take."""
    if text.startswith("{"):
        found: dict[str, str] = json.loads(text)
        return found
    return dict(pair.split("=", 1) for pair in text.split(","))


def commands(line: str) -> list[list[str]] | None:
    """Split a shell line into the words of its commands.

    Returns None if the line uses more than `;` and `&&`.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in (";", "&&"):
                found.append([])
            elif word and set(word) <= set(";&|<>()"):
                return None
            else:
                found[-1].append(word)
    except ValueError:
        return None

    return [each for each in found if each]


def parameters(words: Sequence[str]) -> dict[str, str] | None:
    """Return the parameters of `ray start`; None if one lacks the `--`.

    A flag has the value "".
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        key, is_given, value = rest.pop(0).partition("=")
        if not key.startswith("--"):
            return None
        if not is_given and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[key.removeprefix("--")] = value
    return found


def resources(
    written: Mapping[str, Any], name: str, *, amount_of: Callable[[Any], float] = float
) -> tuple[dict[str, Any], list[str]]:
    """Return resources under a cluster file's keys, and notes on the others.

    `amount_of` converts an amount to a number; `name` is the node's group.
    """
    found: dict[str, Any] = {}
    custom: dict[str, int] = {}
    notes = []
    rest = {**written}
    if store := rest.pop("object_store_memory", None):
        notes.append(
            f"object_store_memory of {name} ({store}): follows from "
            f"{MADE_FROM['object-store-memory']} here"
        )

    for key, value in rest.items():
        amount = amount_of(value)
        if key == "memory":
            found["memory"] = format_size(int(amount))
        elif amount != int(amount):
            notes.append(f"resources of {name}: {key} is {value}, and nodes have whole numbers")
        elif key in ("CPU", "GPU"):
            found[f"{key.lower()}s"] = int(amount)
        elif not amount:
            notes.append(f"resources of {name}: {key} is {value}, which is the same as none")
        else:
            custom[key] = int(amount)

    if custom:
        found["resources"] = custom

    return found, notes


def _typed(value: object) -> object:
    """Convert a value: other tools write only text, and a flag as ""."""
    text = str(value)
    if text in ("", "true", "True"):
        return True
    if text.isdecimal():
        return int(text)
    return text
