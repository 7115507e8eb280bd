"""What can be done with a run that was started: see its logs and its status, stop it, fetch what it left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from trainyard_runner import names

from trainyard.dispatch.fetch import Fetcher, fetch_fresh, missing_archives
from trainyard.dispatch.follow import STOP_WITHIN, Follower, Interrupts, Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import JobFailedError, OutsideError, SmokeError, TrainyardError, reason_of
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.journal import Journal, recorded
from trainyard.results.report import write_report
from trainyard.results.state import RunState
from trainyard.results.store import ResultsError, RunDirectory
from trainyard.seams.ray_api import RayApi

_BLOCK = 1024 * 1024


@dataclass(frozen=True)
class RunStatus:
    """How a run stands. `unsure` says why it may have gone on since: its cluster did not answer.

    Of a `broken` run, whose record is damaged, it says what is wrong. `error` is what a command that followed the run
    ends with; None if the run succeeded, or simply goes on.
    """

    run: RunDirectory
    state: RunState
    unsure: str | None = None
    broken: bool = False
    is_away: bool = True  # where it is unsure: its cluster does not answer
    error: TrainyardError | None = None

    def document(self) -> dict[str, Any]:
        return self.state.document(now=time.time(), unsure=self.unsure)


# Where a run's cluster answers now; raises when there is none.
Connect = Callable[[RunDirectory], Endpoint]


def ray_of(endpoint: Endpoint) -> RayApi:
    return RayApi(endpoint.address, endpoint.token, refused=endpoint.refused)


def follow(
    ray: RayApi,
    run: RunDirectory,
    endpoint: Endpoint,
    *,
    screen: Screen,
    interrupted: Callable[[], bool] = lambda: True,
    stop: bool,
) -> RunStatus:
    """Follow a run to its end, from where this machine's record of it stops; bring everything home, write the report.

    `stop`: an interruption stops the run. A cluster that is gone is an outcome too, with what is known by then.
    """
    journal = Journal(run)
    state = states.load(run)
    fetcher = Fetcher(ray, run, note=screen.note)
    if journal.recording:
        with store.written(run.shown):
            run.shown.touch()
    elif journal.problem:
        screen.note(f"this run is shown and not recorded: {journal.problem.what}, {journal.problem.where}")
    elif not store.read_only.get():
        screen.note("another command records this run; this one only shows it")
    reach = endpoint.is_in_reach
    try:
        follower = Follower(ray, journal, state, fetcher, screen, interrupted, stop, is_in_reach=reach)
        ending = follower.follow()
        unfetched: tuple[OutsideError, ...] = ()
        if ending == "ended" and journal.recording:
            unfetched = _all_home(fetcher, run, state, note=screen.note)
        now = concluded(RunStatus(run, state), unfetched=unfetched)
        return replace(now, error=now.error or journal.problem)
    except OutsideError as error:
        return RunStatus(run, state, unsure=error.what, error=error)
    finally:
        fetcher.abandon()
        journal.close()


def status(run: RunDirectory, connect: Connect) -> RunStatus:
    """Return how a run stands now, asking its cluster if it has not ended by what is known here."""
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


def logs(run: RunDirectory, connect: Connect, *, screen: Screen, everything: bool = False) -> RunStatus:
    """Go on following a run where the last follower stopped; an interruption leaves it alone."""
    state = states.load(run)
    if state.ended:
        replay(run, screen)
        return concluded(RunStatus(run, state)) if store.read_only.get() else fetch_so_far(run, connect, screen=screen)
    with Interrupts(held=True) as interrupts:
        # From the first line on: Ctrl-C may come before the cluster has answered.
        if everything or not run.shown.exists():
            replay(run, screen)
        elif state.started:
            screen.note("continuing after the last line you saw; --all starts from the beginning")
        endpoint = connect(run)
        with ray_of(endpoint) as ray:
            return follow(ray, run, endpoint, screen=screen, interrupted=interrupts.asked, stop=False)


def logs_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> RunStatus:
    now = status(run, connect)
    replay(run, screen)
    if now.unsure:
        screen.note(f"there may be more: {now.unsure}")
    return concluded(now)


def replay(run: RunDirectory, screen: Screen) -> None:
    """Show what was recorded: events in order, an attempt's output where the attempt ended."""
    state = states.fresh(run)
    open_attempts: dict[tuple[str, int], None] = {}
    for event in recorded(run):
        key = (event.get("task", ""), event.get("attempt", 0))
        if event["event"] == "attempt-started":
            open_attempts[key] = None
        elif event["event"] == "attempt-ended":
            open_attempts.pop(key, None)
            _replay_log(run, *key, screen=screen)
        state.apply(event)
        screen.event(event, state)
    for key in open_attempts:
        _replay_log(run, *key, screen=screen)


def stop(run: RunDirectory, connect: Connect, *, screen: Screen) -> RunStatus:
    """Stop a run and wait until it has ended."""
    endpoint = connect(run)
    with ray_of(endpoint) as ray:
        ended = follow(ray, run, endpoint, screen=screen, stop=True)
    if ended.error is None and not ended.state.ended:
        error = OutsideError(
            f"run {run.name} was told to stop and has not ended in {STOP_WITHIN:.0f} s",
            hint=f"See: trainyard train.status {run.name}",
        )
        return replace(ended, unsure=error.what, error=error)
    return ended


def fetch(run: RunDirectory, connect: Connect, *, screen: Screen, checkpoints: bool = False) -> RunStatus:
    """Bring home the outputs that are not here yet; with `checkpoints`, also the last checkpoints.

    A checkpoint that is newer than the one fetched before takes its place, and the older one is kept beside it.
    """
    state = status(run, connect).state
    if state.ended and not checkpoints and _has_outputs(run, state):
        # All of it is here: the cluster may be gone.
        if not run.report.exists() and not store.read_only.get():
            _report(run, note=screen.note)
        return concluded(RunStatus(run, state))
    with ray_of(connect(run)) as ray:
        for task in state.tasks.values() if checkpoints else ():
            if task.checkpoint:
                _fetch_checkpoint(ray, run, state.node_id or "", task.name, task.checkpoint, screen)
        fetcher = Fetcher(ray, run, note=screen.note)
        unfetched = _all_home(fetcher, run, state, note=screen.note)
    return concluded(RunStatus(run, state), unfetched=unfetched)


def fetch_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> RunStatus:
    """Bring home what a run has left by now, if its cluster answers: it may be gone."""
    try:
        return fetch(run, connect, screen=screen)
    except TrainyardError as error:
        screen.note(f"there may be more: {error.what}")
        return concluded(RunStatus(run, states.load(run)))


def is_at_home(ray: RayApi, run: RunDirectory) -> bool:
    """Say whether all that a run of this cluster left is here; first take in what it said by now."""
    state = states.load(run)
    return _has_outputs(run, state if state.ended else _catch_up(ray, run))


def bring_home(ray: RayApi, run: RunDirectory, *, note: Callable[[str], None]) -> tuple[OutsideError, ...]:
    """Fetch what a run left, unless another command does so right now; return what could not be fetched."""
    with closing(Journal(run)) as journal:
        if not journal.recording:
            return (journal.problem,) if journal.problem else ()
        return _all_home(Fetcher(ray, run, note=note), run, states.load(run), note=note)


def _catch_up(ray: RayApi, run: RunDirectory) -> RunState:
    """Take in what a run has said by now, unless another command does so; show and fetch nothing.

    Raises OutsideError when the cluster does not answer at once.
    """
    with closing(Journal(run)) as journal:
        state = states.load(run)
        if journal.recording or store.read_only.get() or journal.problem:
            Follower(ray, journal, state, catch_up=True).follow()
        return state


def _has_outputs(run: RunDirectory, state: RunState) -> bool:
    return not any(missing_archives(run, task) for task in state.tasks.values())


def _all_home(
    fetcher: Fetcher, run: RunDirectory, state: RunState, *, note: Callable[[str], None]
) -> tuple[OutsideError, ...]:
    """Fetch what is missing, wait for all of it, write the report; return what could not be fetched."""
    if state.node_id:
        fetcher.missing(state.node_id, state)
    unfetched = fetcher.wait()
    if state.ended:
        _report(run, note=note)
    return unfetched


def _report(run: RunDirectory, *, note: Callable[[str], None]) -> None:
    """Write a run's report; its events and outputs are here without one, whatever hinders it."""
    try:
        write_report(run.path)
    except Exception as error:  # it reads what tasks and clusters wrote
        note(f"there is no report of {run.name}: {reason_of(error)}")


def _fetch_checkpoint(
    ray: RayApi, run: RunDirectory, node_id: str, task: str, checkpoint: Mapping[str, Any], screen: Screen
) -> None:
    if store.fetched(run.checkpoint(task)) == checkpoint["seq"]:
        return
    arrived = run.checkpoint(task).with_name(f".{run.checkpoint(task).name}.{checkpoint['seq']}")
    if not arrived.exists():
        archive = {"file": names.checkpoint_archive(task)}
        for left_out in fetch_fresh(ray, run, node_id, archive, target=arrived):
            screen.note(f"{task}: left out of its checkpoint: {left_out}")
    store.keep_checkpoint(run, task, arrived, seq=checkpoint["seq"])


def _replay_log(run: RunDirectory, task: str, attempt: int, *, screen: Screen) -> None:
    path = run.log(task, attempt)
    if path.is_file():
        with path.open("rb") as log:
            for block in iter(lambda: log.read(_BLOCK), b""):
                screen.output(task, block)


def concluded(status: RunStatus, *, unfetched: Sequence[OutsideError] = ()) -> RunStatus:
    """Return a run that was followed, or left, with its error; `unfetched` is what did not come home."""
    run, state = status.run, status.state
    error = _error(run, state) if state.ended and state.exit != 0 else None
    if error is None and unfetched:
        error = OutsideError(
            f"outputs of {len(unfetched)} tasks are still on the cluster: {unfetched[0].what}",
            where=unfetched[0].where,
            hint=f"Try again: trainyard train.fetch {run.name}",
        )
    return replace(status, error=error)


def _error(run: RunDirectory, state: RunState) -> TrainyardError:
    what = state.error or state.state
    what = f"run {run.name} {what}" if not state.error or what.startswith("stopped") else what
    if state.exit == SmokeError.exit_code:
        return SmokeError(what, where=f"cluster {state.cluster}", hint=state.hint or "Nothing was dispatched.")
    if state.exit == JobFailedError.exit_code:
        stopped = f", {state.counts['stopped']} of {len(state.tasks)} tasks stopped" if state.counts["stopped"] else ""
        return JobFailedError(f"{what}{stopped}", where=str(run.path), hint=state.hint)
    return OutsideError(what, where=str(run.path), hint=state.hint)
