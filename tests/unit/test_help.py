"""The output of `trainyard` and `trainyard COMMAND --help`."""

from __future__ import annotations

import shlex

import pytest
from invoke.parser.context import ParserContext
from invoke.program import Program

from trainyard.tasks import help, namespace
from trainyard.tasks.grammar import checked

CONTEXTS = {str(context.name): context for context in namespace.to_contexts()}
CORE = ParserContext(args=Program(namespace=namespace).core_args())
WIDEST = 110


def page(name: str) -> str:
    return help.of_task(name, namespace[name].__doc__ or "", CONTEXTS[name])


def test_the_overview_has_every_command_once() -> None:
    listed = [name for names in help.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(namespace.task_names)


@pytest.mark.parametrize("example", [line for lines in help.EXAMPLES.values() for line in lines])
def test_examples_are_command_lines_that_are_taken(example: str) -> None:
    program, *words = shlex.split(example.partition(" -- ")[0])
    assert program == "trainyard"
    assert checked(words, CONTEXTS, CORE)[0] == words[0] in CONTEXTS


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("train.dispatch", "trainyard train.dispatch JOB_DIR [FLAGS]"),
        ("train.logs", "trainyard train.logs [RUN] [FLAGS]"),
        ("cluster.scale", "trainyard cluster.scale [SIZES...] [FLAGS]"),
        ("cluster.new", "trainyard cluster.new NAME [HOSTS...] [FLAGS]"),
        ("train.import", "trainyard train.import [SOURCE] [FLAGS] [-- COMMAND...]"),
    ],
)
def test_usage_shows_arguments_as_they_are_typed(name: str, usage: str) -> None:
    assert page(name).splitlines()[0] == f"Usage: {usage}"


@pytest.mark.parametrize("columns", [20, 80, 140])
def test_pages_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    summaries = {
        name: (namespace[name].__doc__ or "").splitlines()[0] for name in namespace.task_names
    }
    lines = help.overview(summaries).splitlines()
    assert all(len(line) <= max(min(columns, WIDEST), 64) for line in lines)
    # At 20 columns a text keeps 30.
    for name in CONTEXTS:
        flags = page(name).partition("\nFlags\n")[2].partition("\n\n")[0]
        assert all(len(line) <= max(min(columns, WIDEST), 64) for line in flags.splitlines()), name


def test_the_page_of_all_commands_has_whole_sentences() -> None:
    """The page takes the first line of a docstring: a wrapped one would be cut off."""
    for name in namespace.task_names:
        assert (namespace[name].__doc__ or "").partition("\n")[0].endswith("."), name
