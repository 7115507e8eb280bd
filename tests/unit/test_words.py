"""Docstrings, comments, messages and names of tests are in plain words, subject first."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("trainyard", "runner", "images", "jobs", "project")
# Their strings are names and data of tests, no messages.
OURS = ("tests", "benchmarks")

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
WORDS = r"\b(?:anew|goes on|go on|of ours|what it has left|nobody|whoever)\b"
HEADS = r"(?:Who|Whoever|What|Of|In what)\b"
IN_MESSAGES = re.compile(WORDS, re.IGNORECASE)
IN_CODE = re.compile(rf"^{HEADS}|[.!?] {HEADS}|(?i:{WORDS}|\bsomebody\b)")


def violations(source: str, *, with_strings: bool) -> Iterator[str]:
    """Yield the docstrings, comments and strings with a banned word: line, and how they begin."""
    documented: set[int] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            docstring = ast.get_docstring(node)
            if docstring:
                documented.add(id(node.body[0].value))  # type: ignore[attr-defined]
                if IN_CODE.search(" ".join(docstring.split())):
                    yield f"{node.body[0].lineno}: {docstring[:80]}"

    for node in ast.walk(tree):
        if id(node) in documented or not isinstance(node, ast.Constant):
            continue
        if with_strings and isinstance(node.value, str) and IN_MESSAGES.search(node.value):
            yield f"{node.lineno}: {node.value[:80]}"

    for line, comment in comments(source):
        if IN_CODE.search(comment):
            yield f"{line}: {comment[:80]}"


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of comments; lines that follow each other are one."""
    first = 0
    last = -1
    words: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue

        line = token.start[0]
        if line != last + 1 and words:
            yield first, " ".join(words)
            words = []
        if not words:
            first = line
        words.append(token.string.lstrip("# "))
        last = line

    if words:
        yield first, " ".join(words)


def test_names_of_tests_begin_with_their_subject() -> None:
    names = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.append(node.name)

    riddles = re.compile(r"test_(?:who|whoever|what|whatever|where|of|in_what)_")
    assert [name for name in names if len(name) > 70 or riddles.match(name)] == []


def wide_docstrings(source: str) -> Iterator[int]:
    """Yield the lines of docstrings above 80 columns; help, which commands print, may be wider."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, DOCUMENTED) or not ast.get_docstring(node):
            continue
        decorators = getattr(node, "decorator_list", [])
        if any("task" in ast.unparse(decorator) for decorator in decorators):
            continue

        text = node.body[0]
        for number in range(text.lineno, (text.end_lineno or 0) + 1):
            if len(lines[number - 1]) > 80:
                yield number


@pytest.mark.parametrize("directory", ["trainyard", "runner"])
def test_docstrings_have_at_most_80_columns(directory: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / directory).rglob("*.py"))
        for number in wide_docstrings(path.read_text())
    ]
    assert found == []


def test_a_block_of_comments_is_one_text() -> None:
    source = "x = 1\n# one\n# two\ny = 2  # three\n"
    assert list(comments(source)) == [(2, "one two three")]


@pytest.mark.parametrize("directory", [*SHIPPED, *OURS])
def test_the_code_is_in_plain_words(directory: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{text}"
        for path in sorted((ROOT / directory).rglob("*.py"))
        for text in violations(path.read_text(), with_strings=directory in SHIPPED)
    ]
    assert found == []
