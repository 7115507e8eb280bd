"""Commands that a message names get the flags that were typed: copied and typed, they mean the same
thing.

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

# What says which thing is meant, and how it is written, in the order in which people type it.
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
    """Keep what a task was called with, each a text or a list: the commands in messages repeat
    it.
    """
    lists = {}
    for name, value in values.items():
        if value:
            lists[name] = [value] if isinstance(value, str) else value
    _typed.set(
        Flags(task, tuple((name, value) for name in _FLAGS for value in lists.get(name, ())))
    )


def override(overrides: Sequence[str]) -> None:
    """Keep what a command means besides what was typed, as `--set`: other commands need it, this
    one says it itself.
    """
    flags = _typed.get()
    implied = [
        ("implied", override) for override in overrides if ("set_", override) not in flags.given
    ]
    _typed.set(Flags(flags.task, (*flags.given, *implied)))


def complete(text: str) -> str:
    """Return a message with its commands as this user has to type them, with flags."""
    flags = _typed.get()
    if not flags.given:
        return text
    return _COMMAND.sub(lambda command: _with_flags(command, flags), text)


def _with_flags(command: re.Match[str], flags: Flags) -> str:
    task, rest = command["task"], command["rest"]
    own = _OWN.findall(rest)
    known = _arguments(task) if _arguments else None
    if known is None or "-f" in own:
        return command[0]

    image = _IMAGE.match(rest)
    lead = image[0] if image else ""
    if image:
        known = known - {"image"}

    added = [
        flag for flag in _repeated(task, known, flags) if not _is_said(flag, own, command.string)
    ]
    return " ".join([f"trainyard {task}{lead}", *added]) + rest[len(lead) :]


def _is_said(flag: str, own: Sequence[str], message: str) -> bool:
    """Say whether a command has the flag, or its message names the override: it may name it to be
    left out.
    """
    if flag.startswith("--set "):
        return f" {flag}" in message
    return flag.partition(" ")[0] in own


def _repeated(task: str, known: set[str], flags: Flags) -> Iterator[str]:
    """Yield what was typed and the command knows, written as it takes it; a resumed run has its
    flags recorded.
    """
    if task == "train.resume":
        return

    for name, value in flags.given:
        if name == "image" and task.startswith(("cluster.", "smoke.")):
            name, value = "set_", f"image={value}"

        if name == "set_" or (name == "implied" and task != flags.task):
            name, value = "set_", _override(value, flags.task, task)

        # Without --set, -f is a choice among runs: a run's own name says all.
        if (
            value
            and name in known
            and (name != "file" or ("set_" in known and task != "tune.resume"))
        ):
            yield f"{_FLAGS[name]} {shlex.quote(value)}".strip()


def _override(written: str, typed_for: str, task: str) -> str:
    """Return a `--set` as another task takes it: train.* means the job's values, and the cluster's
    by `cluster.`.
    """
    of_job, for_job = (name.startswith(("train.", "tune.")) for name in (typed_for, task))
    if for_job and not of_job:
        return f"cluster.{written}"
    if of_job and not for_job:
        if written.startswith("cluster."):
            return written.removeprefix("cluster.")
        return ""
    return written
