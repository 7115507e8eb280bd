"""Follow a dispatched run, show it, stop it, and fetch its results."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from trainyard_runner.wire.events import AttemptEnded, AttemptStarted

from trainyard.dispatch.checkpoints import due, elsewhere, listed, too_large
from trainyard.dispatch.checkpoints import loss_of as checkpoint_loss
from trainyard.dispatch.fetch import Fetcher, UnwrittenError, fetch_checkpoint
from trainyard.dispatch.follow import STOP_WITHIN, Follower, Interrupts, Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import (
    JobFailedError,
    NotReadyError,
    OutsideError,
    Problem,
    SmokeError,
    TrainyardError,
    reason_of,
)
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.journal import Journal, recorded
from trainyard.results.report import write_report
from trainyard.results.state import RunState, Task
from trainyard.results.store import ResultsError, RunDirectory
from trainyard.seams.ray_api import FileMissingError, RayApi, ray_of
from trainyard.wording import counted

_BLOCK = 1024 * 1024
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True)
class RunStatus:
    """The state of a run, as recorded on this machine.

    `unsure` says what is damaged in the record (`broken`), or why the state may
    be stale, such as a cluster that does not answer (`is_away`). `error` is the
    error for the command that followed the run; None if the run succeeded, or
    is still active. `unfetched` is the error of results that could not be
    fetched; a failed run may have it, too.
    """

    run: RunDirectory
    state: RunState
    unsure: str | None = None
    broken: bool = False
    is_away: bool = True
    error: TrainyardError | None = None
    unfetched: TrainyardError | None = None

    def document(self) -> dict[str, Any]:
        sent = store.described(self.run).get("sent")
        return {**self.state.document(now=time.time(), unsure=self.unsure), "sent": sent}


@dataclass(frozen=True)
class Unfetched:
    """The errors of outputs and of checkpoints that could not be fetched."""

    outputs: tuple[OutsideError, ...] = ()
    checkpoints: tuple[OutsideError, ...] = ()


ALL_HOME = Unfetched()

# Returns the endpoint of a run's cluster; raises TrainyardError if the cluster does not run.
Connect = Callable[[RunDirectory], Endpoint]


def follow(
    ray: RayApi,
    run: RunDirectory,
    endpoint: Endpoint,
    *,
    screen: Screen,
    interrupted: Callable[[], bool] = lambda: True,
    stop: bool,
) -> RunStatus:
    """Follow a run to its end, fetch its results, and write the report.

    Recorded events are not read again. With `stop`, the run is stopped as soon
    as `interrupted` returns True; the default stops it at once. If another
    command records the run, this one only shows it. A lost cluster raises
    nothing: the result has the error and the last known state.
    """
    journal = Journal(run)
    state = states.load(run)
    fetcher = Fetcher(ray, run, note=screen.note)
    _note_recording(journal, run, screen)

    follower = Follower(
        ray,
        journal,
        state,
        fetcher=fetcher,
        screen=screen,
        interrupted=interrupted,
        stop_on_interruption=stop,
        is_in_reach=endpoint.is_in_reach,
    )
    try:
        ending = follower.follow()
        unfetched = ALL_HOME
        if ending == "ended" and journal.recording:
            unfetched = _all_home(fetcher, run, state, note=screen.note)

        remark = too_large(run, state) if state.ended else ""
        if remark:
            screen.note(remark)

        now = concluded(RunStatus(run, state), unfetched=unfetched)
        return replace(now, error=now.error or journal.problem)
    except OutsideError as error:
        return RunStatus(run, state, unsure=error.what, error=error)
    finally:
        fetcher.abandon()
        journal.close()


def _note_recording(journal: Journal, run: RunDirectory, screen: Screen) -> None:
    """Mark the run as shown if it is recorded; else tell the user why not."""
    if journal.recording:
        with store.written(run.shown):
            run.shown.touch()
    elif journal.problem:
        problem = journal.problem
        screen.note(f"this run is shown but not recorded: {problem.what}, {problem.where}")
    elif not store.read_only.get():
        screen.note("another command records this run; this one only shows it")


def status(run: RunDirectory, connect: Connect) -> RunStatus:
    """Return a run's state; ask the cluster unless the run's end is recorded.

    New events are recorded. If the cluster does not answer, the result says so
    in `unsure`.
    """
    state = states.load(run)
    if state.ended:
        return RunStatus(run, state)

    try:
        with ray_of(connect(run)) as ray:
            return RunStatus(run, _catch_up(ray, run))
    except ResultsError as error:
        return RunStatus(run, states.load(run), unsure=error.what, is_away=False)
    except TrainyardError as error:
        return RunStatus(run, states.load(run), unsure=f"cluster unreachable: {error.what}")


def logs(
    run: RunDirectory, connect: Connect, *, screen: Screen, everything: bool = False
) -> RunStatus:
    """Show a run's logs until it ends; an interruption does not stop the run.

    Output that was shown before is not repeated, unless `everything`. An ended
    run is shown from its record, and its missing results are fetched.
    """
    state = states.load(run)
    if state.ended:
        replay(run, screen)
        if store.read_only.get():
            return concluded(RunStatus(run, state))

        return fetch_so_far(run, connect, screen=screen)

    with Interrupts(held=True) as interrupts:
        # The record comes first: the user may press Ctrl-C while the cluster does not answer.
        if everything or not run.shown.exists():
            replay(run, screen)
        elif state.started:
            screen.note("continuing after the last line you saw; --all starts from the beginning")

        endpoint = connect(run)
        with ray_of(endpoint) as ray:
            return follow(
                ray, run, endpoint, screen=screen, interrupted=interrupts.asked, stop=False
            )


def logs_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> RunStatus:
    """Read a run's new events, show its logs, and return at once.

    If the cluster does not answer, only what is recorded is shown.
    """
    now = status(run, connect)
    replay(run, screen)
    if now.unsure:
        screen.note(f"there may be more: {now.unsure}")
    return concluded(now)


def replay(run: RunDirectory, screen: Screen) -> None:
    """Show a run's recorded events, and each attempt's output at its end."""
    state = states.fresh(run)
    # A dict instead of a set, to keep the order in which attempts started.
    open_attempts: dict[tuple[str, int], None] = {}
    for event in recorded(run):
        if isinstance(event, AttemptStarted):
            open_attempts[event.task, event.attempt] = None
        elif isinstance(event, AttemptEnded):
            open_attempts.pop((event.task, event.attempt), None)
            _replay_log(run, event.task, event.attempt, screen=screen)
        state.apply(event)
        screen.event(event, state)

    for task, attempt in open_attempts:
        _replay_log(run, task, attempt, screen=screen)


def stop(run: RunDirectory, connect: Connect, *, screen: Screen) -> RunStatus:
    """Stop a run, and fetch its results.

    Waits at most STOP_WITHIN seconds for the run's end. A run that does not end
    in time raises nothing: the result has the error.
    """
    endpoint = connect(run)
    with ray_of(endpoint) as ray:
        now = follow(ray, run, endpoint, screen=screen, stop=True)
    if now.error is None and not now.state.ended:
        error = OutsideError(
            f"run {run.name} was asked to stop and has not ended in {STOP_WITHIN:.0f} s",
            hint=f"See: trainyard train.status {run.name}",
        )
        return replace(now, unsure=error.what, error=error)
    return now


def fetch(
    run: RunDirectory,
    connect: Connect,
    *,
    screen: Screen,
    checkpoints: bool = False,
    of: Collection[str] | None = None,
) -> RunStatus:
    """Fetch a run's missing outputs, and checkpoints that the job chooses.

    `checkpoints` adds the last checkpoint of every task, or only of the tasks
    named in `of`. A newer checkpoint takes the place of a fetched one, which is
    kept under another name. If the run has ended and nothing is missing, the
    cluster is not asked. Raises NotReadyError if the head that has the results
    is gone.
    """
    state = status(run, connect).state
    if checkpoints:
        missing = elsewhere(run, state)
    else:
        missing = due(run, state)
    if of is not None:
        missing = [task for task in missing if task.name in of]

    if state.ended and not missing and _has_outputs(run, state):
        # Nothing is missing: the cluster is not needed, and may not exist any more.
        if checkpoints and of is None:
            screen.note(f"the checkpoints of run {run.name} are all here")
        if not run.report.exists():
            _report(run, note=screen.note)
        return concluded(RunStatus(run, state))

    with _reached(run, state, connect, missing) as ray:
        unwritten: list[UnwrittenError] = []
        if checkpoints:
            unwritten = _fetch_checkpoints(ray, run, state, missing, note=screen.note)
        unfetched = _all_home(Fetcher(ray, run, note=screen.note), run, state, note=screen.note)
        if any(isinstance(error, FileMissingError) for error in unfetched.outputs):
            # A running task may have replaced its archives after its events were read.
            state = _catch_up(ray, run)
            unfetched = _all_home(Fetcher(ray, run, note=screen.note), run, state, note=screen.note)

    # `_all_home` has tried again those that are due.
    said = {error.what for error in unfetched.checkpoints}
    others = [error for error in unwritten if error.what not in said]
    unfetched = replace(unfetched, checkpoints=(*unfetched.checkpoints, *others))
    return concluded(RunStatus(run, state), unfetched=unfetched)


def _fetch_checkpoints(
    ray: RayApi,
    run: RunDirectory,
    state: RunState,
    missing: Sequence[Task],
    *,
    note: Callable[[str], None],
) -> list[UnwrittenError]:
    """Fetch checkpoints; return the errors of those not written."""
    unwritten = []
    for task in missing:
        try:
            fetch_checkpoint(ray, run, state.node_id or "", task, note=note)
        except UnwrittenError as error:
            unwritten.append(error)
    return unwritten


@contextmanager
def _reached(
    run: RunDirectory, state: RunState, connect: Connect, missing: Sequence[Task]
) -> Iterator[RayApi]:
    """Connect to a run's head. Raises NotReadyError if that head is gone."""
    try:
        endpoint = connect(run)
    except NotReadyError as error:
        raise _gone(run, state, missing, why=error.what) from error

    with ray_of(endpoint) as ray:
        # Outputs are on the head. A new head, or another cluster of that name, has none of them.
        if state.node_id:
            alive = [node.node_id for node in ray.nodes() if node.alive]
            if state.node_id not in alive:
                why = f"cluster {state.cluster} has a new head"
                raise _gone(run, state, missing, why=why)

        yield ray


def _gone(
    run: RunDirectory, state: RunState, missing: Sequence[Task], *, why: str
) -> NotReadyError:
    """Return the error for results lost with the head for the reason `why`."""
    lost_at = checkpoint_loss(run)
    at = f" at {lost_at:%H:%M on %-d %B %Y}" if lost_at else ""
    if missing and state.checkpoints_at is not None:
        return NotReadyError(
            f"checkpoints of run {run.name} are on storage of cluster {state.cluster}, "
            f"{state.checkpoints_at}, and the head that served them is gone: {listed(missing)}",
            where=why,
            hint=f"To continue from them: {state.resume_command}",
        )

    if missing:
        what = f"checkpoints of run {run.name} were lost with the cluster{at}: {listed(missing)}"
    else:
        what = f"outputs of run {run.name} were lost with the cluster{at}"

    if state.sweep or state.done == len(state.tasks):
        hint = f"What is here: {run.path}"
    else:
        hint = f"To continue from what is here: {state.resume_command}"
    return NotReadyError(what, where=why, hint=hint)


def fetch_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> RunStatus:
    """Fetch a run's results so far; if that fails, only note the error."""
    try:
        return fetch(run, connect, screen=screen)
    except TrainyardError as error:
        screen.note(f"there may be more: {error.what}")
        return concluded(RunStatus(run, states.load(run)))


def is_at_home(ray: RayApi, run: RunDirectory) -> bool:
    """Read new events; say whether all outputs and due checkpoints are here."""
    state = states.load(run)
    if not state.ended:
        state = _catch_up(ray, run)
    return _has_outputs(run, state) and not due(run, state)


def bring_home(ray: RayApi, run: RunDirectory, *, note: Callable[[str], None]) -> Unfetched:
    """Fetch a run's results; return the errors.

    While another command records the run, nothing is fetched, and no error is
    returned.
    """
    with closing(Journal(run)) as journal:
        if not journal.recording:
            if journal.problem:
                return Unfetched((journal.problem,))
            return ALL_HOME
        return _all_home(Fetcher(ray, run, note=note), run, states.load(run), note=note)


def _catch_up(ray: RayApi, run: RunDirectory) -> RunState:
    """Record a run's latest events and output, and show none; return its state.

    No results are fetched. While another command records the run, this returns
    the recorded state. Raises OutsideError at the first request that fails.
    """
    with closing(Journal(run)) as journal:
        state = states.load(run)
        if journal.recording or store.read_only.get() or journal.problem:
            Follower(ray, journal, state, catch_up=True).follow()
        return state


def _has_outputs(run: RunDirectory, state: RunState) -> bool:
    return not any(task.missing(run) for task in state.tasks.values())


def _all_home(
    fetcher: Fetcher, run: RunDirectory, state: RunState, *, note: Callable[[str], None]
) -> Unfetched:
    """Fetch missing results, write an ended run's report; return the errors."""
    if state.node_id:
        for task in state.tasks.values():
            fetcher.fetch(state.node_id, task)
    unfetched_outputs = fetcher.wait()

    if state.node_id:
        # Whether a checkpoint fits into outputs_limit depends on the size of the fetched outputs.
        fetcher.fetch_checkpoints(state.node_id, state)

    if state.ended:
        _report(run, note=note)
    return Unfetched(unfetched_outputs, fetcher.wait_for_checkpoints())


def _report(run: RunDirectory, *, note: Callable[[str], None]) -> None:
    """Write a run's report; only note a failure."""
    try:
        write_report(run.path)
    except Exception as error:  # the report reads files of tasks, which may be malformed
        note(f"there is no report of {run.name}: {reason_of(error)}")


def _replay_log(run: RunDirectory, task: str, attempt: int, *, screen: Screen) -> None:
    path = run.log(task, attempt)
    if path.is_file():
        with path.open("rb") as log:
            for block in iter(lambda: log.read(_BLOCK), b""):
                screen.output(task, block)


def concluded(status: RunStatus, *, unfetched: Unfetched = ALL_HOME) -> RunStatus:
    """Return the status with the error of a failed run or of missing results.

    If both happened, the error of the failed run lists the missing results as a
    problem.
    """
    state = status.state
    left = _left_there(status.run, unfetched)
    error: TrainyardError | None = left
    if state.ended and state.exit != 0:
        error = _error(status.run, state)
        if left:
            fetch = f"trainyard train.fetch {status.run.name}"
            error.problems += (Problem("results", f"{left.what}; to fetch them: {fetch}"),)
    return replace(status, error=error, unfetched=left)


def _left_there(run: RunDirectory, unfetched: Unfetched) -> OutsideError | None:
    """Return the error of results that could not be fetched; None for none."""
    if unfetched.outputs:
        kind = "outputs"
        reasons = unfetched.outputs
    else:
        kind = "checkpoints"
        reasons = unfetched.checkpoints

    if not reasons:
        return None
    return OutsideError(
        f"{kind} of {counted(len(reasons), 'task')} are still on the cluster: {reasons[0].what}",
        where=reasons[0].where,
        hint=f"Try again: trainyard train.fetch {run.name}",
    )


def _without_module(state: RunState) -> str | None:
    """Return a hint if the first failed task lacked a Python module, or None.

    Without that module, a resumed run would fail again.
    """
    failed = [task for task in state.tasks.values() if task.state == "failed"]
    if not failed:
        return None

    for line in reversed(failed[0].last.tail):
        found = _NO_MODULE.match(line)
        if found:
            return (
                f"Python has no module {found[1]} there. For one job: "
                "`runtime_env: {pip: [...]}` in its job.yaml. For all jobs: install it in the "
                "image; on `local`, in the environment in which trainyard is installed."
            )

    return None


def _error(run: RunDirectory, state: RunState) -> TrainyardError:
    what = state.error or state.state
    if not state.error or what.startswith("stopped"):
        what = f"run {run.name} {what}"

    if state.exit == SmokeError.exit_code:
        where = f"cluster {state.cluster}"
        return SmokeError(what, where=where, hint=state.hint or "Nothing was dispatched.")
    if state.exit != JobFailedError.exit_code:
        return OutsideError(what, where=str(run.path), hint=state.hint)

    stopped = state.counts["stopped"]
    if stopped:
        what += f", {stopped} of {len(state.tasks)} tasks stopped"

    resume = None
    is_open = any(task.state in ("failed", "stopped") for task in state.tasks.values())
    if is_open and not state.sweep:
        resume = f"Resume it: {state.resume_command}"
    hint = state.hint or _without_module(state) or resume
    return JobFailedError(what, where=str(run.path), hint=hint)
