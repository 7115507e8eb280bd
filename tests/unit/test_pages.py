"""README and docs: all names in them exist, and blocks that are not run give a reason.

tests/large/test_pages.py runs the rest.
"""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
from invoke.parser.context import ParserContext, to_flag
from invoke.program import Program

from tests import pages
from tests.pages import COMMANDS, ROOT
from trainyard.tasks import namespace

ALL = {name: pages.read(name, (ROOT / name).read_text()) for name in pages.names()}


def flags_of(task: str) -> set[str]:
    """Return the flags that a task takes, those of the program itself included."""
    arguments = [*namespace[task].get_arguments(), *Program().core_args()]
    inverse = ParserContext(args=namespace[task].get_arguments()).inverse_flags
    named = {to_flag(name) for argument in arguments for name in argument.names}
    # Invoke takes --cfg_class for --cfg-class.
    return {flag.replace("_", "-") for flag in (*named, *inverse)}


@pytest.mark.parametrize("name", pages.names())
def test_each_command_and_flag_that_a_page_names_exists(name: str) -> None:
    known = {task: flags_of(task) for task in namespace.task_names}
    named = set(pages.flags((ROOT / name).read_text()))
    assert {task for task, _ in named} <= known.keys()
    assert {
        (task, flag) for task, flag in named if flag and flag.replace("_", "-") not in known[task]
    } == set()


@pytest.mark.parametrize("name", pages.names())
def test_each_block_of_a_page_is_run_or_says_why_not(name: str) -> None:
    page = ALL[name]
    empty = [
        block.line for block in page.blocks if block.language in COMMANDS and not block.commands
    ]
    reasons = [block.directives.get("not run here", "none") for block in page.blocks]
    named = [path for reason in reasons for path in re.findall(r"tests/[\w/]+\.py", reason)]
    absent = [path for path in named if not (ROOT / path).exists()]
    assert (page.problems, empty, absent, "" in reasons) == ((), [], [], False)


@pytest.mark.parametrize("name", sorted(ALL))
def test_sections_that_a_page_begins_after_exist(name: str) -> None:
    places = [place.partition("#") for place in ALL[name].begins_after]
    assert [anchor for page, _, anchor in places if anchor not in ALL[page].sections] == []


PAGE = dedent(
    """\
    # A page
    <!-- begins after: README.md#install -->
    ## First, install!

    - an entry

        of two paragraphs

    ```sh
    make demo
    ```

    <!-- file: a.yaml -->

    ```yaml
    a: 1
    ```
    <!-- not run here: it needs an account -->
    ```sh
    aws login
    ```
    ### Below
    <!-- exit 2 -->
    ```console
    $ trainyard cluster.up \\
    >   -f a
    error: no such file
    ```
    ## Second
    <!-- not run here: a Kubernetes -->
    ```sh
    kubectl get nodes
    ```
        indented
    <!-- not runn: x -->
    """
)


def test_a_page_is_read() -> None:
    page = pages.read("docs/a.md", PAGE)
    assert page.begins_after == ("README.md#install",)
    assert page.sections["first-install"] == range(3, 29)
    assert page.sections["second"] == range(29, 36)
    assert page.problems == (
        "docs/a.md:34: an indented block: write ```sh, ```console or ```text",
        "docs/a.md:35: no comment says 'not runn: x'",
    )

    assert [(block.line, block.language, block.directives) for block in page.blocks] == [
        (10, "sh", {}),
        (16, "yaml", {"file": "a.yaml"}),
        (20, "sh", {"not run here": "it needs an account"}),
        (25, "console", {"exit": "2"}),
        (32, "sh", {"not run here": "a Kubernetes"}),
    ]

    assert page.blocks[3].commands == ("trainyard cluster.up \\", "  -f a")


def test_a_page_runs_after_the_sections_that_it_names() -> None:
    readme = pages.read(
        "README.md", "## Install\n```sh\npip install .\n```\n## Use\n```sh\ntrainyard init\n```\n"
    )
    page = pages.read("docs/a.md", PAGE)
    found = pages.to_run(page, {"README.md": readme})
    assert [(name, block.lines[0]) for name, block in found] == [
        ("README.md", "pip install ."),
        ("docs/a.md", "make demo"),
        ("docs/a.md", "a: 1"),
        ("docs/a.md", "$ trainyard cluster.up \\"),
    ]


def test_flags_of_commands_in_a_text() -> None:
    text = (
        "Use `trainyard cluster.up --recreate -f lab && cd x --y`, or trainyard train.import "
        "-- python --headless."
    )
    assert list(pages.flags(text)) == [
        ("cluster.up", ""),
        ("cluster.up", "--recreate"),
        ("cluster.up", "-f"),
        ("train.import", ""),
    ]
