"""Add the user's flags to commands in messages, so that they can be copied.

Only tasks/ knows the command line. Messages of other code name plain commands,
such as `trainyard image.push`. This module adds those of the user's flags that
the command accepts, as the function from `install` says. A command that already
has `-f` is unchanged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# The flags that choose a cluster or an image, by argument, in the order in which users type them.
_FLAGS = {
    "image": "",
    "file": "-f",
    "base": "--base",
    "platform": "--platform",
    "backend": "--backend",
    "set_": "--set",
}
_COMMAND = re.compile(
    r"\btrainyard "
    r"(?P<task>(?:cluster|image|registry|smoke|train|tune)\.[a-z]+)(?P<rest>(?:(?!\btrainyard "
    r")[^`\n;])*)"
)
# Matches an IMAGE that the message itself names, if only flags follow.
_IMAGE = re.compile(r" (?!-)[\w./:@-]+(?= -|$)")
_OWN = re.compile(r" (-[a-z]|--[a-z][a-z-]*)(?![\w-])")


@dataclass(frozen=True)
class Flags:
    """The running task of Invoke, and its flags as pairs (argument, value).

    The arguments are those of _FLAGS, and "implied": a `--set` that the command
    itself implies.
    """

    task: str = ""
    given: tuple[tuple[str, str], ...] = ()


# Set by `install`: returns a command's arguments by its name, None for an unknown name.
_arguments: Callable[[str], set[str] | None] | None = None
_typed: ContextVar[Flags] = ContextVar("typed", default=Flags())  # noqa: B039 - it is frozen


def install(arguments: Callable[[str], set[str] | None]) -> None:
    global _arguments
    _arguments = arguments


def remember(task: str, values: Mapping[str, Any]) -> None:
    """Keep the task's flags, each a string or a list, for later messages."""
    lists = {}
    for name, value in values.items():
        if value:
            lists[name] = [value] if isinstance(value, str) else value

    given = []
    for name in _FLAGS:
        for value in lists.get(name, ()):
            given.append((name, value))
    _typed.set(Flags(task, tuple(given)))


def override(overrides: Sequence[str]) -> None:
    """Remember implied overrides, as `--set` in commands of other tasks.

    The running task's own command in a message does not get them.
    """
    flags = _typed.get()
    given = list(flags.given)
    for override in overrides:
        if ("set_", override) not in flags.given:
            given.append(("implied", override))
    _typed.set(Flags(flags.task, tuple(given)))


def complete(text: str) -> str:
    """Add the user's flags to the commands in a message."""
    flags = _typed.get()
    if not flags.given:
        return text
    return _COMMAND.sub(lambda command: _with_flags(command, flags), text)


def _with_flags(command: re.Match[str], flags: Flags) -> str:
    task = command["task"]
    rest = command["rest"]
    own_flags = _OWN.findall(rest)
    known = _arguments(task) if _arguments else None
    if known is None or "-f" in own_flags:
        return command[0]

    image = _IMAGE.match(rest)
    lead = image[0] if image else ""
    if image:
        known = known - {"image"}

    words = [f"trainyard {task}{lead}"]
    for flag in _repeated(task, known, flags):
        if flag.startswith("--set "):
            # Searched in the whole message: if the message tells the user to leave an override out,
            # the command must not get that override.
            is_there = f" {flag}" in command.string
        else:
            is_there = flag.partition(" ")[0] in own_flags
        if not is_there:
            words.append(flag)
    return " ".join(words) + rest[len(lead) :]


def _repeated(task: str, known: set[str], flags: Flags) -> Iterator[str]:
    """Yield the flags to add to a command.

    train.resume gets none, because the record of its run has them.
    """
    if task == "train.resume":
        return

    # A command without --set uses -f only to choose among runs. Messages name the run itself.
    takes_file = "set_" in known and task != "tune.resume"
    for name, value in flags.given:
        if name == "image" and task.startswith(("cluster.", "smoke.")):
            name = "set_"
            value = f"image={value}"

        if name == "set_" or (name == "implied" and task != flags.task):
            name = "set_"
            value = _override(value, flags.task, task)

        if value and name in known and (name != "file" or takes_file):
            yield f"{_FLAGS[name]} {shlex.quote(value)}".strip()


def _override(written: str, typed_for: str, task: str) -> str:
    """Convert a `--set` of the task `typed_for` for another; "" if impossible.

    train.* and tune.* write `cluster.PATH` for the `PATH` of other commands.
    """
    of_job = typed_for.startswith(("train.", "tune."))
    for_job = task.startswith(("train.", "tune."))
    if for_job and not of_job:
        return f"cluster.{written}"
    if of_job and not for_job:
        if written.startswith("cluster."):
            return written.removeprefix("cluster.")
        return ""
    return written
