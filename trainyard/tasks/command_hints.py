"""Commands that a message names get the flags that were typed: copied and typed, they mean the same thing.

Messages everywhere say `invoke image.push`; what is made below tasks/ knows nothing of the command line. Here a flag
is added where the named task knows it, and the message does not give its own.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

# What says which thing is meant, and how it is written, in the order in which people type it.
_FLAGS = {
    "image": "",
    "file": "-f",
    "base": "--base",
    "platform": "--platform",
    "backend": "--backend",
    "set_": "--set",
}
# What is a flag of image.* is a value of the cluster file for the others.
_VALUES = {"image": "image", "base": "build.base", "platform": "build.platform"}
_OF_CLUSTERS = ("cluster.", "smoke.")
_COMMAND = re.compile(
    r"\binvoke (?P<task>(?:cluster|image|registry|smoke|train)\.[a-z]+)(?P<rest>(?:(?!\binvoke )[^`\n;])*)"
)
# What leads the command in the message: IMAGE, where nothing but flags follows, and its cluster file.
_LEAD = re.compile(r"(?P<image> (?!-)[\w./:@-]+(?= -|$))?(?: -f (?P<file>\S+?)(?=[.,):]*(?: |$)))?")
_OWN = re.compile(r" (-[a-z]|--[a-z][a-z-]*)(?![\w-])")


@dataclass(frozen=True)
class Flags:
    """Which task was typed, and those of its flags that say which thing is meant."""

    task: str = ""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)


_typed: ContextVar[Flags | None] = ContextVar("typed", default=None)


def remember(task: str, values: Mapping[str, object]) -> None:
    """Keep what a task was called with: the commands in messages repeat it."""
    _typed.set(Flags(task, {name: _texts(values[name]) for name in _FLAGS if values.get(name)}))


def override(overrides: Sequence[str]) -> None:
    """Keep what a command means besides what was typed, as `--set`: other commands need it, this one says it itself."""
    flags = _typed.get() or Flags()
    implied = [override for override in overrides if override not in flags.values.get("set_", ())]
    _typed.set(Flags(flags.task, {**flags.values, "implied": implied}))


def complete(text: str) -> str:
    """Return a message with our commands as this user has to type them: `invoke ...` or `trainyard ...`, with flags."""
    flags = _typed.get()
    if flags and flags.values:
        text = _COMMAND.sub(lambda found: _with_flags(found, flags), text)
    if Path(sys.argv[0]).name != "trainyard":
        return text
    return re.sub(r"\binvoke (?=(?:-\S+ )*(?:[a-z]+\.[a-z]|init\b|TASK\b)|--)", "trainyard ", text)


def _with_flags(found: re.Match[str], flags: Flags) -> str:
    from trainyard.tasks import namespace

    task, rest = found["task"], found["rest"]
    lead = _LEAD.match(rest)
    if task not in namespace.task_names or lead is None or _is_another(lead["file"], flags):
        return found[0]
    known = {argument.name for argument in namespace[task].get_arguments()}
    own = {*_OWN.findall(rest), "" if lead["image"] else "-"}
    # An override that the message itself names, it may name to be left out.
    added = [
        flag
        for flag in _missing(task, known, own, flags)
        if f" {flag}" not in (found.string if flag.startswith("--set ") else rest)
    ]
    # Values last: what was a flag of image.* may have become one.
    added.sort(key=lambda flag: flag.startswith("--set "))
    return " ".join([f"invoke {task}{lead[0]}", *added]) + rest[lead.end() :]


def _is_another(file: str | None, flags: Flags) -> bool:
    """Say whether a command names another cluster file than was typed: then it is about another cluster."""
    return file is not None and [file] != [shlex.quote(typed) for typed in flags.values.get("file", ())]


def _missing(task: str, known: set[str], own: set[str], flags: Flags) -> Iterator[str]:
    """Yield what was typed and the command lacks, written as it takes it."""
    for value in flags.values.get("implied", ()) if task != flags.task and "set_" in known else ():
        yield from (f"--set {shlex.quote(override)}" for override in _overrides(value, flags.task, task))
    for name, value in ((each, value) for each in _FLAGS for value in flags.values.get(each, ())):
        if name == "set_" and name in known:
            yield from (f"--set {shlex.quote(override)}" for override in _overrides(value, flags.task, task))
        elif name == "file" and "set_" not in known:
            continue  # a choice among runs: a run's own name says all, and `--set cluster.name=...` may have been typed
        elif name in known and _FLAGS[name] not in own:
            yield f"{_FLAGS[name]} {shlex.quote(value)}".strip()
        elif name in _VALUES and task.startswith(_OF_CLUSTERS):
            yield f"--set {shlex.quote(f'{_VALUES[name]}={value}')}"


def _overrides(written: str, typed_for: str, task: str) -> Sequence[str]:
    """Return a `--set` as another task takes it: train.* means the job's values, and the cluster's by `cluster.`."""
    of_job, for_job = typed_for.startswith("train."), task.startswith("train.")
    if of_job == for_job:
        return (written,)
    if for_job:
        return (f"cluster.{written}",)
    return (written.removeprefix("cluster."),) if written.startswith("cluster.") else ()


def _texts(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list) else ()
