"""The output of a command: one JSON document on stdout, or tables, lines, the next command."""

from __future__ import annotations

import contextlib
import io
import json as json_module
import os
import shutil
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

from trainyard.console.command_hints import complete
from trainyard.errors import OutsideError, TrainyardError
from trainyard.wording import visible

if TYPE_CHECKING:
    from trainyard.backends.contract import HostStatus, NodeStatus
    from trainyard.steps import PlannedStep, StepResult

# Columns that a table may take where no terminal says how many there are.
_IN_A_PIPE = 200
# Whether stdout is to get a document, and has none yet.
_document_due: ContextVar[bool] = ContextVar("document_due", default=False)


@dataclass(frozen=True)
class Table:
    """Rows under their columns; a cell of None is empty.

    On a narrow terminal only columns of `may_shorten` are shortened.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str | None = None
    may_shorten: Sequence[str] | None = None


@dataclass(frozen=True)
class Report:
    """A result: `document` for machines; `body`, `notes` (on stderr), `next` command for people.

    `error` is raised once all of it is printed.
    """

    document: object
    body: Sequence[str | Table] = ()
    next: str = ""
    notes: Sequence[str] = ()
    error: TrainyardError | None = None


def begin(*, json: bool) -> None:
    """Begin a command; with `json`, stdout is to get one document, also if the command fails."""
    _document_due.set(json)


def show(report: Report, *, json: bool) -> None:
    """Print a result, and raise its error."""
    if json:
        _document_due.set(False)
        say(json_module.dumps(report.document, indent=2, ensure_ascii=_is_poor(sys.stdout)))

    else:
        for part in report.body:
            _print_part(part)

    # Where both streams go to one file, notes, an error and the next command come behind.
    sys.stdout.flush()
    for line in report.notes:
        note(line)

    if report.error:
        raise report.error

    if report.next and not json:
        propose(report.next)


def _print_part(part: str | Table) -> None:
    if isinstance(part, Table):
        print_table(part)
    elif part.startswith("    "):
        # A quotation, such as the last lines of a task.
        say(part)
    else:
        say(complete(part))


def propose(command: str) -> None:
    """Print the next command; a script that has its own, as `make demo`, sets TRAINYARD_NO_NEXT."""
    if os.environ.get("TRAINYARD_NO_NEXT"):
        return
    note(f"next: {command}")


def fail(error: TrainyardError) -> None:
    """Print an error on stderr, and a document of it on stdout if one is due there."""
    lines = error.lines()
    say(complete("\n".join([f"error: {lines[0]}", *lines[1:]])), file=sys.stderr)
    if not _document_due.get():
        return

    problems = []
    for problem in error.problems:
        problems.append({"where": problem.where, "message": problem.message})
    document = {
        "error": error.what,
        "where": error.where,
        "hint": error.hint and complete(error.hint),
        "problems": problems,
        "exit_code": error.exit_code,
    }

    # In one line: cluster.logs --json prints one document a line.
    say(json_module.dumps(document, ensure_ascii=_is_poor(sys.stdout)), flush=True)


def _is_poor(stream: TextIO) -> bool:
    """Tell whether a stream cannot take every character: a document has other words for those."""
    return not (stream.encoding or "").lower().startswith("utf")


def say(text: object, *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print lines; control characters in them are shown, and a terminal does not obey them."""
    print(visible(str(text)), file=file or sys.stdout, flush=flush)


def note(text: str) -> None:
    say(complete(text), file=sys.stderr)


def turn_away(stream: TextIO) -> None:
    """Write what else comes to nowhere: what cannot be written would be said once more at exit."""
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Outlived:
    """A stream that a run outlives.

    Once it takes no more, nothing else is written to it, and `problem` says why.
    """

    def __init__(self, stream: TextIO) -> None:
        self.problem: OSError | None = None
        self._stream = stream

    def error(self, run: str) -> OutsideError | None:
        """Return the error of a run's output that had no room; none where its reader left."""
        if self.problem is None or isinstance(self.problem, BrokenPipeError):
            return None
        hint = f"The run has been followed to its end all the same: trainyard train.status {run}"
        return OutsideError(f"stdout took no more: {self.problem.strerror}", hint=hint)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        return self._tried(lambda: self._stream.write(text))

    def flush(self) -> None:
        self._tried(self._stream.flush)

    def _tried(self, act: Callable[[], int | None]) -> int:
        try:
            return (act() if self.problem is None else 0) or 0
        except OSError as error:
            self.problem = error
            turn_away(self._stream)
            return 0


def browse(address: str) -> None:
    """Open a page in a browser if there is a display; a text browser would take this terminal."""
    displays = {"DISPLAY", "WAYLAND_DISPLAY"}
    has_display = sys.platform == "darwin" or not displays.isdisjoint(os.environ)
    if has_display and sys.stdout.isatty():
        webbrowser.open(address)


def confirmed(question: str, about: Table) -> bool:
    """Ask on a terminal, below what it is about; without one the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print_table(about)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_table(table: Table) -> None:
    """Print a table: as wide as a terminal at most, plain text in a pipe."""
    from trainyard.console import table as tables

    columns = [visible(name) for name in table.columns]
    rows = [[visible("" if cell is None else str(cell)) for cell in row] for row in table.rows]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    else:
        width = _IN_A_PIPE
    shortens = table.may_shorten
    title = table.title and visible(table.title)
    text = tables.drawn(columns, rows, width=width, title=title, may_shorten=shortens)
    # Not by rich itself, which ends the process with 1 when a pipe is closed.
    print(text, end="")


# Fields of a step or a node for code; --json tells the same by other fields, or not at all.
_NOT_SHOWN = ("is_stage", "kind", "warnings", "is_pulling")


def as_document(shown: StepResult | PlannedStep | NodeStatus | HostStatus) -> dict[str, Any]:
    """Return a step, a node or a host as --json names its fields: `detail` is "seen" there."""
    document = {}
    for name, value in asdict(shown).items():
        if name == "detail":
            document["seen"] = value
        elif name not in _NOT_SHOWN:
            document[name] = value
    return document


def step_documents(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    return [{**as_document(result), "seconds": round(result.seconds, 3)} for result in results]


def planned(about: Mapping[str, Any], plan: Sequence[PlannedStep], *, next: str = "") -> Report:
    """Say what a command would do; `about` names in the document what it is about."""
    lines = []
    for step in plan:
        line = f"  {step.state:<7}  {step.title}"
        if step.detail:
            line += f"  ({step.detail})"
        lines.append(line)
    return Report({**about, "steps": [as_document(step) for step in plan]}, lines, next=next)
