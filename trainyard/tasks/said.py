"""Commands that a message names get the flags that were typed: copied and typed, they mean the same thing.

Whoever writes `invoke image.push` into a hint may know nothing of the command line. A flag is added only where the
named task knows it, and where the message does not give its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from invoke.collection import Collection
from invoke.parser.context import ParserContext

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
class Line:
    """What was typed: the task, and those of its flags that say which thing is meant; empty where that is not known."""

    task: str = ""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)


def line_of(contexts: Sequence[object]) -> Line:
    """Return what was typed, as Invoke parsed it; of several tasks in one line nobody knows which one speaks."""
    only = contexts[0] if len(contexts) == 1 else None
    if not isinstance(only, ParserContext) or not only.name:
        return Line()
    given = only.as_kwargs
    return Line(only.name, {name: _texts(given[name]) for name in _FLAGS if given.get(name)})


def completed(text: str, given: Line, tasks: Collection) -> str:
    """Return a message with what was typed added to every command that it names."""
    return _COMMAND.sub(lambda found: _completed(found, given, tasks), text) if given.values else text


def _completed(found: re.Match[str], given: Line, tasks: Collection) -> str:
    task, rest = found["task"], found["rest"]
    lead = _LEAD.match(rest)
    if task not in tasks.task_names or lead is None or _is_another(lead["file"], given):
        return found[0]
    known = {argument.name for argument in tasks[task].get_arguments()}
    own = {*_OWN.findall(rest), "" if lead["image"] else "-"}
    added = [one for one in _missing(task, known, own, given) if f" {one}" not in rest]
    # Values last: what was a flag of image.* may have become one.
    added.sort(key=lambda one: one.startswith("--set "))
    return " ".join([f"invoke {task}{lead[0]}", *added]) + rest[lead.end() :]


def _is_another(file: str | None, given: Line) -> bool:
    """Say whether a command names another cluster file than was typed: then it is about another cluster."""
    return file is not None and [file] != [shlex.quote(one) for one in given.values.get("file", ())]


def _missing(task: str, known: set[str], own: set[str], given: Line) -> Iterator[str]:
    """Yield what was typed and the command lacks, written as it takes it."""
    for name, value in ((each, value) for each in _FLAGS for value in given.values.get(each, ())):
        if name == "set_" and name in known:
            yield from (f"--set {shlex.quote(one)}" for one in _set(value, given.task, task))
        elif name == "file" and "set_" not in known:
            continue  # a choice among runs: a run's own name says all, and `--set cluster.name=...` may have been typed
        elif name in known and _FLAGS[name] not in own:
            yield f"{_FLAGS[name]} {shlex.quote(value)}".strip()
        elif name in _VALUES and task.startswith(_OF_CLUSTERS):
            yield f"--set {shlex.quote(f'{_VALUES[name]}={value}')}"


def _set(written: str, typed_for: str, task: str) -> Sequence[str]:
    """Return a `--set` as another task takes it: train.* means the job's values, and the cluster's by `cluster.`."""
    of_job, for_job = typed_for.startswith("train."), task.startswith("train.")
    if of_job == for_job:
        return (written,)
    if for_job:
        return (f"cluster.{written}",)
    return (written.removeprefix("cluster."),) if written.startswith("cluster.") else ()


def _texts(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(str(one) for one in value) if isinstance(value, list) else ()
