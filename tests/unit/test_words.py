"""Docstrings, comments and messages are in plain words: subject first, no riddles of pronouns."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIRECTORIES = ("trainyard", "runner")

HEADS = r"(?:Who|Whoever|What|Of|In what)\b"
_WORDS = r"\b(?:anew|goes on|go on|of ours|what it has left|nobody|whoever)\b"
BANNED = re.compile(
    rf"^{HEADS}|[.!?] {HEADS}|"
    r"\b(?:anew|goes on|go on|of ours|what it has left|somebody|nobody|whoever)\b"
)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each docstring, block of comments and text of three words or more, with its line."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.count(" ") >= 2:
                yield node.lineno, " ".join(node.value.split())

    yield from comments(source)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of comments; lines that follow each other are one."""
    first, last = 0, -1
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


def test_a_block_of_comments_is_one_text() -> None:
    source = "x = 1\n# one\n# two\ny = 2  # three\n"
    assert list(comments(source)) == [(2, "one two three")]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_the_code_is_in_plain_words(directory: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:80]}"
        for path in sorted((ROOT / directory).rglob("*.py"))
        for line, text in texts(path.read_text())
        if BANNED.search(text)
    ]
    assert found == []
