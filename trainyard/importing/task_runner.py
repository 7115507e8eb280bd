"""Convert a file of Isaac Lab's task_runner into a job."""

from __future__ import annotations

import ast
import operator
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainyard.importing import shell
from trainyard.importing.job import Imported, note_of_training, training
from trainyard.spec.fields import Complaint, Filled, Listed, Section
from trainyard.spec.load import load_other
from trainyard.spec.units import format_size

# An expression has at most LONGEST characters. Its result is at most LARGEST, which is more than
# any number of GPUs, CPUs or bytes.
LONGEST = 100
LARGEST = 10**18
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def number(written: object) -> float:
    """Evaluate a number or arithmetic, as `10*1024**3`. Raises ValueError."""
    try:
        if isinstance(written, bool) or len(str(written)) > LONGEST:
            raise ValueError
        return _value(ast.parse(str(written).strip(), mode="eval").body)
    except (ValueError, SyntaxError, ArithmeticError, TypeError, RecursionError) as error:
        raise ValueError("must be a number, or arithmetic such as 10*1024**3") from error


def _value(node: ast.AST) -> float:
    """Evaluate part of an expression.

    Raises ValueError, also above LARGEST, and the errors of the operators.
    """
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            result: float = value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=inner):
            if isinstance(sign, ast.USub):
                result = -_value(inner)
            else:
                result = _value(inner)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first = _value(left)
            second = _value(right)
            # 2**(10**9) would take minutes.
            if isinstance(op, ast.Pow) and not 0 <= second <= 64:
                raise ValueError
            result = _OPERATORS[type(op)](first, second)
        case _:
            raise ValueError

    if not abs(result) <= LARGEST:
        raise ValueError

    return result


def _line(text: object) -> str:
    if not isinstance(text, str) or not shell.split(text):
        raise ValueError("must be the words after `python`, as text")
    # Called only to raise ValueError for a quotation that does not end.
    shell.commands(text)
    return text


Number = Annotated[float, BeforeValidator(number), Field(ge=0)]


class NodeSection(Section):
    """A task's node, by host name or by Ray's id, which every start changes."""

    specific: Literal["any", "hostname", "node_id"] = "any"
    hostname: Filled | None = None
    node_id: Filled | None = None

    def complaints(self) -> Iterator[Complaint]:
        if self.specific != "any" and self.name is None:
            yield Complaint((self.specific,), f"must be there, since `specific` is {self.specific}")

    @property
    def name(self) -> str | None:
        if self.specific == "node_id":
            return self.node_id
        if self.specific == "hostname":
            return self.hostname
        return None


class TaskSection(Section):
    """One task of task_runner; memory in bytes."""

    name: Filled
    py_args: Annotated[str, BeforeValidator(_line)]
    num_gpus: Number | None = None
    num_cpus: Number | None = None
    memory: Number | None = None
    node: NodeSection = NodeSection()


class TaskRunnerFile(Section):
    """The content of a file of task_runner."""

    pip: Listed[Filled] | None = None
    py_modules: Listed[Filled] | None = None
    concurrent: bool = False
    tasks: Listed[TaskSection]


def read(file: Path, *, python: str) -> Imported:
    """Return a file's job. Raises RequestError with every problem."""
    found = load_other(file, TaskRunnerFile, "task_runner file")
    files: dict[str, Path] = {}
    tasks = _with_names([_task(task, files, python, file.parent) for task in found.tasks])
    # Ray would put these modules on Python's path. Here they are sent to the top of the job's
    # directory, and PYTHONPATH includes that directory.
    modules = [str((file.parent / name).resolve()) for name in found.py_modules or ()]

    runtime_env = {}
    if found.pip:
        runtime_env["pip"] = list(found.pip)
    if modules:
        runtime_env["files"] = modules

    job = {
        "tasks": tasks,
        "together": found.concurrent,
        "runtime_env": runtime_env,
        "env": {"PYTHONPATH": "."} if modules else {},
    }

    notes = tuple(
        note for each in tasks if (note := note_of_training(each["name"], each["command"]))
    )
    return Imported(file.stem, {key: value for key, value in job.items() if value}, files, notes)


def _task(
    task: TaskSection, files: dict[str, Path], python: str, directory: Path
) -> dict[str, Any]:
    """Return one task.

    Adds to `files` each file below `directory` that the task's words name.
    """
    # task_runner joins the words in the same way.
    line = " ".join([python, *task.py_args.split()])
    if shell.is_needed(line):
        own = shell.command(line)
        for commands in shell.commands(line):
            for word in chain.from_iterable(each.words for each in commands):
                if _name_below(word, directory):
                    files[os.path.normpath(word)] = directory / word
    else:
        words = shell.split(task.py_args)
        near = {word: name for word in words if (name := _name_below(word, directory))}
        files.update({name: directory / name for name in near.values()})
        own = [*shlex.split(python), *(near.get(word, word) for word in words)]

    command, more, needed = training(own)
    files.update(needed)
    memory = None

    if task.memory is not None:
        memory = format_size(int(task.memory))

    resources = {"cpus": task.num_cpus, "gpus": task.num_gpus, "memory": memory}
    found = {
        "name": task.name,
        "command": command,
        "resources": {key: value for key, value in resources.items() if value is not None},
        "node": {"name": task.node.name} if task.node.name else {},
        **more,
    }

    return {key: value for key, value in found.items() if value}


def _name_below(word: str, directory: Path) -> str | None:
    """Return the relative path if a word names a file below `directory`."""
    if word.startswith("/"):
        return None
    try:
        found = (directory / word).resolve()
        if not found.is_file():
            return None
    except (OSError, ValueError):
        # The word is no possible file name: too long, or with a zero byte.
        return None
    root = directory.resolve()
    if found.is_relative_to(root):
        return str(found.relative_to(root))
    return None


def _with_names(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give tasks names that a job file accepts; equal names get a number."""
    names = []
    for task in tasks:
        names.append(re.sub(r"[^A-Za-z0-9._=,+-]+", "-", task["name"]).strip("-.")[:90] or "task")

    named = []
    for number, (task, name) in enumerate(zip(tasks, names, strict=True), 1):
        if names.count(name) > 1:
            name = f"{name}-{number}"
        named.append({**task, "name": name})
    return named
