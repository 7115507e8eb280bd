"""Commands in messages repeat what was typed, where they take it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke.parser import Parser
from invoke.program import Program

import trainyard
from trainyard.console.command_hints import complete, remember
from trainyard.tasks import namespace
from trainyard.tasks.grammar import checked

PARSER = Parser(contexts=namespace.to_contexts())


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    remember("", {})


def printed_after(line: str, message: str) -> str:
    """Return a message as it is printed after a command line."""
    (typed,) = PARSER.parse_argv(checked(line.split(), PARSER.contexts, Program().initial_context))
    remember(str(typed.name), typed.as_kwargs)
    return complete(message)


@pytest.mark.parametrize(
    ("line", "message", "printed"),
    [
        (
            "image.lint mine -f fe-a",
            "Build it: trainyard image.build mine",
            "Build it: trainyard image.build mine -f fe-a",
        ),
        (
            "image.lint mine -f fe-a",
            "Build it: trainyard image.build",
            "Build it: trainyard image.build mine -f fe-a",
        ),
        (
            "cluster.up -f fe-a --set head.cpus=2",
            "If that is meant: trainyard cluster.up --recreate",
            "If that is meant: trainyard cluster.up -f fe-a --set head.cpus=2 --recreate",
        ),
        (
            "registry.up -f a",
            "`trainyard registry.trust` says",
            "`trainyard registry.trust -f a` says",
        ),
        (
            "registry.up -f a",
            "all of it (trainyard registry.down --purge), then",
            "all of it (trainyard registry.down -f a --purge), then",
        ),
        (
            "image.verify mine -f a --base b:1",
            "trainyard cluster.up",
            "trainyard cluster.up --set image=mine -f a",
        ),
        (
            "cluster.up --set name=x",
            "trainyard train.dispatch J",
            "trainyard train.dispatch J --set cluster.name=x",
        ),
        (
            "cluster.up -f a --backend local",
            "trainyard smoke.run",
            "trainyard smoke.run -f a --backend local",
        ),
        (
            "cluster.up -f a --backend local",
            "trainyard cluster.up -f b",
            "trainyard cluster.up -f b",
        ),
        ("cluster.up -f a", "trainyard train.logs RUN", "trainyard train.logs RUN"),
        (
            "cluster.up --set head.cpus=2 --set kuberay.context=b",
            "leave out --set kuberay.context=b, or first: trainyard cluster.down",
            "leave out --set kuberay.context=b, or first: trainyard cluster.down --set head.cpus=2",
        ),
    ],
)
def test_commands_in_messages_repeat_the_typed_arguments(
    line: str, message: str, printed: str
) -> None:
    assert printed_after(line, message) == printed


def test_values_are_quoted_as_a_shell_wants_them() -> None:
    remember("cluster.up", {"set_": ["env={A: 1}"]})
    assert complete("trainyard cluster.up") == "trainyard cluster.up --set 'env={A: 1}'"


def test_every_command_in_a_message_names_a_task_and_flags_that_it_has() -> None:
    wrong = []
    for path in sorted(Path(trainyard.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                wrong += [f"{path.name}: {one}" for one in _wrong(node.value)]
    assert wrong == []


def _wrong(text: str) -> list[str]:
    found = re.finditer(
        r"\btrainyard ((?:cluster|image|registry|smoke|train)\.[a-z]+)((?:(?!trainyard "
        r")[^`\n;.,)])*)",
        text,
    )
    return [
        one[0]
        for one in found
        if one[1] not in PARSER.contexts
        or not all(_has(one[1], flag) for flag in re.findall(r" (--?[a-z][a-z-]*)", one[2]))
    ]


def _has(task: str, flag: str) -> bool:
    context = PARSER.contexts[task]
    return flag in context.flags or flag in context.inverse_flags


def test_next_commands_contain_no_placeholders() -> None:
    """NAME, RUN, JOB_DIR and the like are for hints, which may leave something to fill in."""
    blanks = []
    for path in sorted(Path(trainyard.__file__).parent.glob("tasks/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "next":
                blanks += re.findall(r"trainyard [^']*\b[A-Z_]{3,}\b", ast.unparse(node))
    assert blanks == []
