"""Print a command's result: a JSON document on stdout, or tables and lines."""

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

# The width of a table, in columns, if stdout is no terminal.
_IN_A_PIPE = 200
# Whether a JSON document is still to be printed on stdout.
_document_due: ContextVar[bool] = ContextVar("document_due", default=False)


@dataclass(frozen=True)
class Table:
    """A table; a cell of None is empty.

    On a narrow terminal, cells in columns of `may_shorten` are cut; without
    `may_shorten`, all columns wrap between words.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str | None = None
    may_shorten: Sequence[str] | None = None


@dataclass(frozen=True)
class Report:
    """A command's result: `document` for --json, `body` and `next` for people.

    `next` is a command. `notes` are printed on stderr in both cases. `error` is
    raised after everything else is printed; `next` is then left out.
    """

    document: object
    body: Sequence[str | Table] = ()
    next: str = ""
    notes: Sequence[str] = ()
    error: TrainyardError | None = None


def begin(*, json: bool) -> None:
    """Begin a command; `json` prints an error before `show` as JSON, too."""
    _document_due.set(json)


def show(report: Report, *, json: bool) -> None:
    """Print a result, and then raise its error, if any."""
    if json:
        _document_due.set(False)
        say(json_module.dumps(report.document, indent=2, ensure_ascii=_needs_ascii(sys.stdout)))

    else:
        for part in report.body:
            _print_part(part)

    # If both streams go to one file, notes and errors must come after the result.
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
        # A quotation, such as the last lines of a task: commands in it get no flags.
        say(part)
    else:
        say(complete(part))


def propose(command: str) -> None:
    """Print the next command on stderr, unless TRAINYARD_NO_NEXT is set."""
    if os.environ.get("TRAINYARD_NO_NEXT"):
        return
    note(f"next: {command}")


def fail(error: TrainyardError) -> None:
    """Print an error on stderr; with --json, also as a document on stdout.

    If `show` has printed a document already, there is no second one.
    """
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

    # On one line: cluster.logs --json prints one document per line.
    say(json_module.dumps(document, ensure_ascii=_needs_ascii(sys.stdout)), flush=True)


def _needs_ascii(stream: TextIO) -> bool:
    return not (stream.encoding or "").lower().startswith("utf")


def say(text: object, *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print text; escape control characters, which terminals would obey."""
    print(visible(str(text)), file=file or sys.stdout, flush=flush)


def note(text: str) -> None:
    say(complete(text), file=sys.stderr)


def turn_away(stream: TextIO) -> None:
    """Point a broken stream at /dev/null for Python's flush at exit."""
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Outlived:
    """Wraps a run's output stream, so that a failed write ends no command.

    After the first failed write, output is dropped, and `problem` is the error.
    """

    def __init__(self, stream: TextIO) -> None:
        self.problem: OSError | None = None
        self._stream = stream

    def error(self, run: str) -> OutsideError | None:
        """Return a failed write's error; None for a closed pipe (`| head`)."""
        if self.problem is None or isinstance(self.problem, BrokenPipeError):
            return None
        hint = f"The run was followed to its end: trainyard train.status {run}"
        return OutsideError(f"stdout cannot be written: {self.problem.strerror}", hint=hint)

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
    """Open a page in a browser if there is a display and stdout is a terminal.

    Without a display, a text browser would take over the terminal.
    """
    displays = {"DISPLAY", "WAYLAND_DISPLAY"}
    has_display = sys.platform == "darwin" or not displays.isdisjoint(os.environ)
    if has_display and sys.stdout.isatty():
        webbrowser.open(address)


def confirmed(question: str, about: Table) -> bool:
    """Show a table and ask a yes-or-no question; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print_table(about)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _cell(value: object) -> str:
    if value is None:
        return ""
    return visible(str(value))


def print_table(table: Table) -> None:
    """Print a table that is no wider than the terminal."""
    from trainyard.console import table as tables

    columns = [visible(name) for name in table.columns]
    rows = [[_cell(value) for value in row] for row in table.rows]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    else:
        width = _IN_A_PIPE
    shortens = table.may_shorten
    title = table.title and visible(table.title)
    text = tables.drawn(columns, rows, width=width, title=title, may_shorten=shortens)
    # Not printed by rich, which exits with code 1 when a pipe is closed.
    print(text, end="")


# Fields of a step or a node that --json leaves out: only code needs them, or other
# fields say the same.
_NOT_SHOWN = ("is_stage", "kind", "warnings", "is_pulling")


def as_document(shown: StepResult | PlannedStep | NodeStatus | HostStatus) -> dict[str, Any]:
    """Return a step, node or host for --json; `detail` becomes "seen"."""
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
    """Report a plan, with the keys of `about`, such as the cluster."""
    lines = []
    for step in plan:
        line = f"  {step.state:<7}  {step.title}"
        if step.detail:
            line += f"  ({step.detail})"
        lines.append(line)
    return Report({**about, "steps": [as_document(step) for step in plan]}, lines, next=next)
