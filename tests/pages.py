"""README and docs, read as commands: tests/large/test_pages.py runs their fenced blocks.

A fenced block `sh` is commands; `console` is a transcript, whose lines after `$ ` are commands.
HTML comments before a block are directives for it (DIRECTIVES). `<!-- begins after:
README.md#install -->` names the section whose blocks run before those of a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Directives in HTML comments. `not run here: REASON`: the block is not run. `exit CODE`: its last
# command exits so. `file: PATH`: the block is written to that file. `begins after: PAGE#SECTION`:
# the blocks of that section run before all blocks of this page.
DIRECTIVES = ("not run here", "exit", "file", "begins after")
COMMANDS = ("sh", "console")

_FENCE = re.compile(r"```(\w*)$")
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->$")
_HEADING = re.compile(r"(#+) (.*)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page; `line` is the number of its first line."""

    line: int
    language: str
    lines: tuple[str, ...]
    directives: dict[str, str] = field(default_factory=dict)

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the block's commands: all lines of `sh`; of a transcript, those after a prompt."""
        if self.language == "sh":
            return self.lines
        return tuple(line[2:] for line in self.lines if line.startswith(("$ ", "> ")))

    @property
    def is_run(self) -> bool:
        """Return whether the block holds commands, and no comment says `not run here`."""
        return self.language in COMMANDS and "not run here" not in self.directives


@dataclass(frozen=True)
class Page:
    """A page; `sections` maps each heading's anchor to the line numbers of its section."""

    name: str
    blocks: tuple[Block, ...]
    begins_after: tuple[str, ...]
    sections: dict[str, range]
    problems: tuple[str, ...]


def names() -> list[str]:
    """Return README and the pages of docs without the decisions, which describe a past day."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def read(name: str, text: str) -> Page:
    """Read a page's blocks, directives and sections; an unknown directive is a problem."""
    lines = text.splitlines()
    blocks: list[Block] = []
    problems: list[str] = []
    begins_after: list[str] = []
    pending: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        comment, fence = _COMMENT.match(line), _FENCE.match(line)
        if comment:
            key, _, value = comment[1].partition(" " if comment[1].startswith("exit ") else ": ")
            if key not in DIRECTIVES:
                problems.append(f"{name}:{number}: no comment says {comment[1]!r}")
            elif key == "begins after":
                begins_after.append(value)
            else:
                pending[key] = value
        elif fence:
            end = lines.index("```", number)
            blocks.append(Block(number + 1, fence[1], tuple(lines[number:end]), pending))
            number, pending = end + 1, {}
        elif line.startswith("    ") and not _continues_a_list(lines[: number - 1]):
            problems.append(
                f"{name}:{number}: an indented block: write ```sh, ```console or ```text"
            )
        elif line:
            pending = {}

    return Page(name, tuple(blocks), tuple(begins_after), _sections(lines), tuple(problems))


def _continues_a_list(before: Sequence[str]) -> bool:
    """Return whether the last line without indentation begins an entry of a list."""
    margin = next((line for line in reversed(before) if line and not line.startswith(" ")), "")
    return bool(re.match(r"([*-]|\d+\.) ", margin))


def _sections(lines: Sequence[str]) -> dict[str, range]:
    """Return the lines of each section by its anchor, as GitHub makes it."""
    headings: list[tuple[int, int, str]] = []
    fenced = False
    for number, line in enumerate(lines, 1):
        fenced ^= line.startswith("```")
        if not fenced and (heading := _HEADING.match(line)):
            anchor = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
            headings.append((number, len(heading[1]), anchor))

    sections = {}
    for number, rank, anchor in headings:
        later = (other for other, its_rank, _ in headings if other > number and its_rank <= rank)
        sections[anchor] = range(number, next(later, len(lines) + 1))
    return sections


def to_run(page: Page, pages: dict[str, Page]) -> Iterator[tuple[str, Block]]:
    """Yield the blocks to run or to write, in order, each with the name of its page."""
    for place in page.begins_after:
        name, _, anchor = place.partition("#")
        lines = pages[name].sections[anchor]
        yield from (
            (name, block) for block in pages[name].blocks if block.line in lines and _matters(block)
        )
    yield from ((page.name, block) for block in page.blocks if _matters(block))


def _matters(block: Block) -> bool:
    return block.is_run or "file" in block.directives


def flags(text: str) -> Iterator[tuple[str, str]]:
    """Yield (task, '') for each `trainyard TASK` in a text, then (task, flag) for its flags."""
    for task, rest in re.findall(r"\btrainyard ([a-z]+\.[a-z-]+|init)\b([^`\n]*)", text):
        # The line may continue with another command, or with the one that a job runs.
        own = re.split(r"&&|\|\||;|\||#| -- |\btrainyard\b", rest)[0]
        yield task, ""
        yield from ((task, flag) for flag in re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", own))
