"""Print one result: a document for machines on stdout, or tables and the next command for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from trainyard.printable import visible
from trainyard.tasks.command_hints import complete

if TYPE_CHECKING:
    from rich.console import Console

    from trainyard.backends.contract import NodeStatus
    from trainyard.steps import PlannedStep, StepResult


def say(text: object, *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print lines; what clusters, tasks and files of others put into them is shown, and not obeyed by a terminal."""
    print(visible(str(text)), file=file or sys.stdout, flush=flush)


def print_json(document: object) -> None:
    """Print one JSON document on stdout, and nothing else there."""
    say(json.dumps(document, indent=2, ensure_ascii=False))


def as_document(shown: StepResult | PlannedStep | NodeStatus) -> dict[str, Any]:
    """Return a step or a node as --json names its fields: `detail` has always been "seen" there."""
    document = {"seen" if name == "detail" else name: value for name, value in asdict(shown).items()}
    document.pop("is_stage", None)
    return document


def console() -> Console:
    """Return stdout as people read it: as wide as the terminal, or as wide as it takes in a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str | None = None,
    may_shorten: Sequence[str] | None = None,
) -> None:
    """Print rows under their columns; aligned plain text in a pipe.

    With `may_shorten`, a narrow terminal shortens these columns and no other, and every row keeps to one line.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    if may_shorten is not None:
        table.padding = (0, 0)
    for column in columns:
        table.add_column(column, no_wrap=may_shorten is not None and column not in may_shorten)
    for row in rows:
        cells = [Text(visible(cell)) for cell in row]
        for cell in cells if may_shorten is not None else ():
            cell.no_wrap, cell.overflow = True, "ellipsis"
        table.add_row(*cells)
    console().print(table)


def print_next(command: str) -> None:
    """Print the next command to type, as the last line."""
    # Where both streams go to one file, too.
    sys.stdout.flush()
    say(f"next: {complete(command)}", file=sys.stderr)
