"""Commands in messages get the flags that were typed: copied and typed, they mean the same.

Messages everywhere say `trainyard image.push`; code below tasks/ knows nothing of the command line.
Here a flag is added where the named command takes it, which tasks/ tells (`install`). A command
that names a cluster file of its own is left as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# The flags that say which thing is meant, in the order in which users type them.
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
# An IMAGE that the message itself names: nothing but flags follows.
_IMAGE = re.compile(r" (?!-)[\w./:@-]+(?= -|$)")
_OWN = re.compile(r" (-[a-z]|--[a-z][a-z-]*)(?![\w-])")


@dataclass(frozen=True)
class Flags:
    """Which task was typed, and those of its flags that say which thing is meant."""

    task: str = ""
    given: tuple[tuple[str, str], ...] = ()


# Returns the arguments of a command, by its name; None for a name that is no command.
_arguments: Callable[[str], set[str] | None] | None = None
_typed: ContextVar[Flags] = ContextVar("typed", default=Flags())  # noqa: B039 - it is frozen


def install(arguments: Callable[[str], set[str] | None]) -> None:
    """Let messages complete the commands whose arguments this function knows."""
    global _arguments
    _arguments = arguments


def remember(task: str, values: Mapping[str, Any]) -> None:
    """Keep the flags of a task, each a text or a list: the commands in messages repeat them."""
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
    """Keep overrides that a command implies, as `--set`: other commands need them."""
    flags = _typed.get()
    given = list(flags.given)
    for override in overrides:
        if ("set_", override) not in flags.given:
            given.append(("implied", override))
    _typed.set(Flags(flags.task, tuple(given)))


def complete(text: str) -> str:
    """Return a message with its commands as this user has to type them, with flags."""
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
            # The message may name an override to be left out.
            is_there = f" {flag}" in command.string
        else:
            is_there = flag.partition(" ")[0] in own_flags
        if not is_there:
            words.append(flag)
    return " ".join(words) + rest[len(lead) :]


def _repeated(task: str, known: set[str], flags: Flags) -> Iterator[str]:
    """Yield flags as the command takes them; a resumed run has them recorded."""
    if task == "train.resume":
        return

    # Without --set, -f is a choice among runs: a run's own name says all.
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
    """Return a `--set` as another task takes it: train.* writes the cluster's as `cluster.PATH`."""
    of_job = typed_for.startswith(("train.", "tune."))
    for_job = task.startswith(("train.", "tune."))
    if for_job and not of_job:
        return f"cluster.{written}"
    if of_job and not for_job:
        if written.startswith("cluster."):
            return written.removeprefix("cluster.")
        return ""
    return written
