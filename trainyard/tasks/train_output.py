"""Print what train.* found: tables, last lines, and the next command for people; one document for machines."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

from trainyard.dispatch.follow import Silent
from trainyard.dispatch.looking import Standing
from trainyard.dispatch.outcome import Outcome
from trainyard.dispatch.prepare import Prepared, described
from trainyard.results import formats, store
from trainyard.results.compare import Comparison, Final
from trainyard.results.formats import age
from trainyard.results.run_filter import started
from trainyard.results.state import Attempt, RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.screen import PlainScreen, TerminalScreen, for_stream
from trainyard.screen_text import plain
from trainyard.tasks.command_hints import complete
from trainyard.tasks.output import print_json, print_next, print_table, say
from trainyard.watching import ReportScreen

_ROWS = 50
_TAILS = 5

RunScreen = PlainScreen | TerminalScreen


def screen(*, json: bool = False, only: str | None = None) -> RunScreen:
    """Return what shows a run as it goes: stdout, unless a document is to stand there."""
    return for_stream(sys.stderr if json else sys.stdout, only=only, reword=complete)


class Notes(Silent):
    """Shows of a run only what is no part of it: who stops a run does not ask for what it printed."""

    def note(self, text: str) -> None:
        """Print a note."""
        say(complete(f"-- {text}"), file=sys.stderr)


def sending(prepared: Prepared) -> None:
    """Say what is sent, before it is."""
    say("\n".join(described(prepared)), file=sys.stderr)


def ended(outcome: Outcome, *, json: bool) -> None:
    """Print how a run that was followed ended, or that it goes on; raise its error."""
    if json:
        print_json(outcome.document)
    elif outcome.state.ended:
        _print_result(outcome)
    outcome_next(outcome)
    outcome.check()


def stopped(outcome: Outcome, *, json: bool) -> None:
    """Print how a run ended that was told to; only a run that did not end is an error."""
    if json:
        print_json(outcome.document)
    else:
        say(f"run {outcome.run.name}: {outcome.state.state}")
    if not outcome.state.ended:
        outcome.check()


def fetched(outcome: Outcome, *, json: bool) -> None:
    """Print where things are now; only what could not be fetched is an error."""
    # Names with a dot in front are ours: what is on its way, and which checkpoint it was.
    here = sorted(str(path) for path in outcome.run.path.glob("outputs/[!.]*"))
    here += sorted(str(path) for path in outcome.run.path.glob("checkpoints/[!.]*"))
    if json:
        print_json({"run": outcome.run.name, "directories": here})
    else:
        nothing = "left nothing" if outcome.state.ended else "has left nothing yet"
        say("\n".join(here[:_ROWS]) or f"run {outcome.run.name} {nothing}")
    if not outcome.state.ended or outcome.state.exit == 0:
        outcome.check()


def standing(found: Standing, *, json: bool) -> None:
    """Print how a run stands, and every task of it."""
    if json:
        print_json(found.document())
        return
    _print_tasks(found.state, now=time.time() if found.unsure is None else found.state.heard or 0.0)
    if found.state.waiting:
        say(found.state.waiting["text"])
    say(_summary(found.state) + (f"; unknown since then ({found.unsure})" if found.unsure else ""))
    _print_next(found.run, found.state)


def listed(found: list[Standing], *, json: bool) -> None:
    """Print one row a run."""
    if json:
        print_json({"runs": [_short(one) for one in found]})
        return
    rows = []
    for one in found:
        counts, seconds, record = one.state.counts, one.state.seconds, store.described(one.run)
        began = started(record)
        rows.append(
            [
                one.run.name,
                "unknown" if one.unsure else one.state.state,
                f"{counts['succeeded']}/{len(one.state.tasks)}",
                one.state.cluster,
                "" if began is None else age(time.time() - began),
                "" if seconds is None else f"{seconds:.1f} s",
                str(record.get("user") or ""),
            ]
        )
    columns = ["run", "state", "done", "cluster", "started", "took", "user"]
    print_table(columns, rows, may_shorten=("cluster", "user"))
    for cluster, why in {one.state.cluster: one.unsure for one in found if one.unsure}.items():
        say(f"unknown, on cluster {cluster}: {why}")
    if found:
        print_next(f"invoke train.status {found[0].run.name}")


def reported(path: Path, *, json: bool) -> None:
    """Print where the report is."""
    if json:
        print_json({"report": str(path)})
    else:
        say(path)


def report_screen(run: RunDirectory, *, json: bool, browse: bool) -> ReportScreen:
    """Write a run's report, say where it is, open it where there is a browser; return what keeps it fresh."""
    made = ReportScreen(run, note=lambda text: say(f"-- {text}", file=sys.stderr))
    say(run.report, file=sys.stderr if json else sys.stdout, flush=True)
    # Without a display, a browser would be one that takes this terminal.
    has_display = sys.platform == "darwin" or not os.environ.keys().isdisjoint(("DISPLAY", "WAYLAND_DISPLAY"))
    if browse and has_display and sys.stdout.isatty():
        webbrowser.open(run.report.resolve().as_uri())
    return made


def compared(comparison: Comparison, *, json: bool) -> None:
    """Print runs side by side, and what differs between them."""
    if json:
        print_json(comparison.document())
        return
    rows = []
    for number, one in enumerate(comparison.runs, 1):
        done = f"{one.state.counts['succeeded']}/{len(one.state.tasks)}"
        took = "" if one.state.seconds is None else f"{one.state.seconds:.1f}"
        finals = [_final(one.finals.get(tag)) for tag in comparison.tags]
        rows.append([str(number), one.run.name, one.state.state, done, took, *finals])
    print_table(["", "run", "state", "succeeded", "seconds", *comparison.tags], rows)
    if comparison.differences:
        numbers = [str(number) for number in range(1, len(comparison.runs) + 1)]
        print_table(["differs", *numbers], [[name, *values] for name, values in comparison.differences.items()])
    if comparison.tasks_left_out:
        say(f"The curves of {comparison.tasks_left_out} more tasks were not read.")
    say(comparison.page)


def _final(final: Final | None) -> str:
    if final is None:
        return ""
    mean = formats.number(final.mean)
    return mean if final.spread is None else f"{mean} ± {formats.number(final.spread)} ({final.count})"


def outcome_next(outcome: Outcome) -> None:
    """Print what to type next: look at a report, or follow a run that goes on."""
    if not outcome.state.ended:
        # With an error nobody knows whether it goes on; the error says what to do.
        if outcome.error is None:
            say(f"run {outcome.run.name} goes on", file=sys.stderr)
            print_next(f"invoke train.logs {outcome.run.name}")
    elif outcome.run.report.exists():
        say(f"results: {outcome.run.path}\nreport: {outcome.run.report}", file=sys.stderr)
        _print_next(outcome.run, outcome.state)


def _print_next(run: RunDirectory, state: RunState) -> None:
    """Print the next command: the logs of a run that goes on or failed, and after a good one the list of runs."""
    print_next("invoke train.list" if state.ended and state.exit == 0 else f"invoke train.logs {run.name}")


def _print_result(outcome: Outcome) -> None:
    _print_tasks(outcome.state, now=time.time())
    for line in _last_lines(outcome.state):
        say(line)
    say(_summary(outcome.state))


def _print_tasks(state: RunState, *, now: float) -> None:
    tasks = list(state.tasks.values())
    if len(tasks) > _ROWS:
        # Thousands of good rows would hide the bad ones.
        tasks = [task for task in tasks if task.state != "succeeded"][:_ROWS]
    if tasks:
        columns = ["task", "state", "attempts", "node", "seconds", "exit", "reason"]
        print_table(columns, [_row(state, task, now=now) for task in tasks])


def _row(state: RunState, task: Task, *, now: float) -> list[str]:
    last = task.attempts[-1] if task.attempts else Attempt(0, None, 0.0, outcome="none")
    taken = state.seconds_of(last, now=now)
    seconds = "" if taken is None else f"{taken:.1f}"
    code = "" if last.exit_code is None else str(last.exit_code)
    return [task.name, task.state, str(len(task.attempts)), last.node or "", seconds, code, task.reason or ""]


def _last_lines(state: RunState) -> Iterator[str]:
    """Yield the last lines of tasks that failed, the first few of them."""
    shown = 0
    for task in state.tasks.values():
        tail = task.attempts[-1].tail if task.attempts else ()
        if task.state != "failed" or shown == _TAILS:
            continue
        shown += 1
        why = task.reason or "no reason known"
        if not tail:
            # It printed nothing, or so many failed that their last lines are only in the logs.
            yield f"{task.name} failed: {why}"
            continue
        yield f"last lines of {task.name} ({why}):"
        yield from (f"    {plain(line.encode('utf-8', 'surrogateescape'))}" for line in tail)


def _summary(state: RunState) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in state.counts.items() if count)
    took = "" if state.seconds is None else f" in {state.seconds:.1f} s"
    return f"run {state.run} {state.state}{took}" + (f": {counts}" if counts else "")


def _short(one: Standing) -> dict[str, object]:
    counts = {name: count for name, count in one.state.counts.items() if count}
    state = one.state
    return {
        "run": one.run.name,
        "state": state.state,
        "unsure": one.unsure,
        "cluster": state.cluster,
        "job": state.job,
        "started": one.run.record().get("started"),
        "user": one.run.record().get("user"),
        "seconds": state.seconds,
        "counts": counts,
    }
