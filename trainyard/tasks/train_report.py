"""What train.* prints."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Iterator

from trainyard.dispatch.prepare import Prepared, described
from trainyard.dispatch.runs import RunStatus
from trainyard.dispatch.screens import ReportScreen, Screen
from trainyard.paths import shown
from trainyard.results import formats, store
from trainyard.results.compare import Comparison, Final
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.screen import PrintedScreen, for_stream, plain
from trainyard.tasks.command_hints import complete
from trainyard.tasks.report import Report, Table, note, say

_ROWS = 50
_TAILS = 5


def screen(*, json: bool = False, only: str | None = None) -> PrintedScreen:
    """Return what shows a run as it goes: stdout, unless a document is to stand there."""
    return for_stream(sys.stderr if json else sys.stdout, only=only, reword=complete)


class Notes(Screen):
    """Shows only what is no part of the run: train.stop is not about what the run printed."""

    def note(self, text: str) -> None:
        note(f"-- {text}")


def begin(prepared: Prepared) -> None:
    note("\n".join(described(prepared)))


def ended(found: RunStatus) -> Report:
    """Show how a run that was followed ended, or that it goes on."""
    run, state = found.run, found.state
    if not state.ended:
        # With an error, whether it goes on is unknown; the error says what to do.
        goes_on = found.error is None
        notes = [f"run {run.name} goes on"] if goes_on else []
        next = f"invoke train.logs {run.name}" if goes_on else ""
        return Report(found.document(), notes=notes, next=next, error=found.error)
    notes = [f"results: {shown(run.path)}", f"report: {shown(run.report)}"] if run.report.exists() else []
    body = [*_tasks(state, now=time.time()), *_last_lines(state), _summary(state)]
    return Report(found.document(), body, notes=notes, next=_next(run, state) if notes else "", error=found.error)


def stopped(found: RunStatus) -> Report:
    """Say how a run ended that was stopped; only a run that did not end is an error."""
    line = f"run {found.run.name}: {found.state.state}"
    return Report(found.document(), [line], error=None if found.state.ended else found.error)


def fetched(found: RunStatus) -> Report:
    """Say where things are now; only what could not be fetched is an error."""
    # Names with a dot in front are ours: what is on its way, and which checkpoint it was.
    run, state = found.run, found.state
    paths = [str(path) for kind in ("outputs", "checkpoints") for path in sorted(run.path.glob(f"{kind}/[!.]*"))]
    nothing = f"run {run.name} {'left nothing' if state.ended else 'has left nothing yet'}"
    error = found.error if not state.ended or state.exit == 0 else None
    return Report({"run": run.name, "directories": paths}, paths[:_ROWS] or [nothing], error=error)


def status(found: RunStatus) -> Report:
    """Show how a run stands, and every task of it."""
    state = found.state
    body = _tasks(state, now=time.time() if found.unsure is None else state.last_contact or 0.0)
    if state.waiting:
        body.append(state.waiting["text"])
    body.append(_summary(state) + (f"; unknown since then ({found.unsure})" if found.unsure else ""))
    return Report(found.document(), body, next=_next(found.run, state))


def listed(found: list[RunStatus]) -> Report:
    """Show one row a run."""
    columns = ["run", "state", "done", "cluster", "started", "took", "user"]
    silent = {each.state.cluster: each.unsure for each in found if each.unsure and not each.broken}
    lines = [f"unknown, on cluster {cluster}: {why}" for cluster, why in silent.items()]
    lines += [f"broken: {each.unsure}" for each in found if each.broken]
    whole = [each for each in found if not each.broken]
    return Report(
        {"runs": [_short(each) for each in found]},
        [Table(columns, [_list_row(each) for each in found], may_shorten=("cluster", "user")), *lines],
        next=f"invoke train.status {whole[0].run.name}" if whole else "",
    )


def report_screen(run: RunDirectory, *, json: bool, browse: bool) -> ReportScreen:
    """Write a run's report, say where it is, open it where there is a browser; return what keeps it fresh."""
    made = ReportScreen(run, note=lambda text: note(f"-- {text}"))
    say(run.report, file=sys.stderr if json else sys.stdout, flush=True)
    # Without a display, a browser would be one that takes this terminal.
    has_display = sys.platform == "darwin" or not os.environ.keys().isdisjoint(("DISPLAY", "WAYLAND_DISPLAY"))
    if browse and has_display and sys.stdout.isatty():
        webbrowser.open(run.report.resolve().as_uri())
    return made


def compared(comparison: Comparison) -> Report:
    """Show runs side by side, and what differs between them."""
    rows = []
    for number, each in enumerate(comparison.runs, 1):
        done = f"{each.state.counts['succeeded']}/{len(each.state.tasks)}"
        finals = [_final(each.finals.get(tag)) for tag in comparison.tags]
        rows.append([str(number), each.run.name, each.state.state, done, _seconds(each.state.seconds), *finals])
    body: list[str | Table] = [Table(["", "run", "state", "succeeded", "seconds", *comparison.tags], rows)]
    if comparison.differences:
        numbers = [str(number) for number in range(1, len(comparison.runs) + 1)]
        body.append(Table(["differs", *numbers], [[name, *each] for name, each in comparison.differences.items()]))
    if comparison.tasks_left_out:
        body.append(f"The curves of {comparison.tasks_left_out} more tasks were not read.")
    return Report(comparison.document(), [*body, str(comparison.page)])


def _final(final: Final | None) -> str:
    if final is None:
        return ""
    mean = formats.number(final.mean)
    return mean if final.spread is None else f"{mean} ± {formats.number(final.spread)} ({final.count})"


def _next(run: RunDirectory, state: RunState) -> str:
    """Return the next command: the logs of a run that goes on or failed, and after a good one the list of runs."""
    return "invoke train.list" if state.ended and state.exit == 0 else f"invoke train.logs {run.name}"


def _tasks(state: RunState, *, now: float) -> list[str | Table]:
    tasks = list(state.tasks.values())
    if len(tasks) > _ROWS:
        # Thousands of good rows would hide the bad ones.
        tasks = [task for task in tasks if task.state != "succeeded"][:_ROWS]
    columns = ["task", "state", "attempts", "node", "seconds", "exit", "reason"]
    return [Table(columns, [_row(state, task, now=now) for task in tasks])] if tasks else []


def _row(state: RunState, task: Task, *, now: float) -> list[str]:
    last = task.last
    seconds, code = _seconds(state.seconds_of(last, now=now)), "" if last.exit_code is None else str(last.exit_code)
    return [task.name, task.state, str(len(task.attempts)), last.node or "", seconds, code, task.reason or ""]


def _last_lines(state: RunState) -> Iterator[str]:
    for task in [task for task in state.tasks.values() if task.state == "failed"][:_TAILS]:
        tail, why = task.last.tail, task.reason or "no reason known"
        # It printed nothing, or so many failed that their last lines are only in the logs.
        yield f"last lines of {task.name} ({why}):" if tail else f"{task.name} failed: {why}"
        yield from (f"    {plain(line.encode('utf-8', 'surrogateescape'))}" for line in tail)


def _summary(state: RunState) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in state.counts.items() if count)
    took = _seconds(state.seconds, before=" in ", after=" s")
    return f"run {state.run} {state.state}{took}" + (f": {counts}" if counts else "")


def _seconds(count: float | None, *, before: str = "", after: str = "") -> str:
    return "" if count is None else f"{before}{count:.1f}{after}"


def _list_row(found: RunStatus) -> list[str]:
    state, record = found.state, store.described(found.run)
    began = store.started(record)
    return [
        found.run.name,
        "broken" if found.broken else "unknown" if found.unsure else state.state,
        f"{state.counts['succeeded']}/{len(state.tasks)}",
        state.cluster,
        "" if began is None else formats.age(time.time() - began),
        _seconds(state.seconds, after=" s"),
        str(record.get("user") or ""),
    ]


def _short(found: RunStatus) -> dict[str, object]:
    state, record = found.state, store.described(found.run)
    return {
        "run": found.run.name,
        "state": "broken" if found.broken else state.state,
        "unsure": found.unsure,
        "cluster": state.cluster,
        "job": state.job,
        "started": record.get("started"),
        "user": record.get("user"),
        "seconds": state.seconds,
        "counts": {name: count for name, count in state.counts.items() if count},
    }
