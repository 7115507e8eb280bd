"""What can be done with a run that was started: see its logs and its status, stop it, fetch what it
left.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from trainyard.dispatch.checkpoints import due, elsewhere, listed, too_large
from trainyard.dispatch.checkpoints import loss_of as checkpoint_loss
from trainyard.dispatch.fetch import Fetcher, fetch_checkpoint, missing_archives
from trainyard.dispatch.follow import STOP_WITHIN, Follower, Interrupts, Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import (
    JobFailedError,
    NotReadyError,
    OutsideError,
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
from trainyard.seams.ray_api import RayApi

_BLOCK = 1024 * 1024
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True)
class RunStatus:
    """How a run stands. `unsure` says why it may have gone on since: its cluster did not answer.

    Of a `broken` run, whose record is damaged, it says what is wrong. `error` is what a command
    that followed the run ends with; None if the run succeeded, or simply goes on.
    """

    run: RunDirectory
    state: RunState
    unsure: str | None = None
    broken: bool = False
    is_away: bool = True  # where it is unsure: its cluster does not answer
    error: TrainyardError | None = None

    def document(self) -> dict[str, Any]:
        sent = store.described(self.run).get("sent")
        return {**self.state.document(now=time.time(), unsure=self.unsure), "sent": sent}


@dataclass(frozen=True)
class Unfetched:
    """Errors: why outputs of tasks, and why checkpoints, did not come home."""

    outputs: tuple[OutsideError, ...] = ()
    checkpoints: tuple[OutsideError, ...] = ()


ALL_HOME = Unfetched()

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
    """Follow a run to its end, from where this machine's record of it stops; bring everything home,
    write the report.

    `stop`: an interruption stops the run. A cluster that is gone is an outcome too, with what is
    known by then.
    """
    journal = Journal(run)
    state = states.load(run)
    fetcher = Fetcher(ray, run, note=screen.note)

    if journal.recording:
        with store.written(run.shown):
            run.shown.touch()
    elif journal.problem:
        screen.note(
            f"this run is shown and not recorded: {journal.problem.what}, {journal.problem.where}"
        )
    elif not store.read_only.get():
        screen.note("another command records this run; this one only shows it")

    reach = endpoint.is_in_reach
    try:
        follower = Follower(
            ray, journal, state, fetcher, screen, interrupted, stop, is_in_reach=reach
        )
        ending = follower.follow()
        unfetched = ALL_HOME

        if ending == "ended" and journal.recording:
            unfetched = _all_home(fetcher, run, state, note=screen.note)

        if state.ended and (stays := too_large(run, state)):
            screen.note(stays)

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


def logs(
    run: RunDirectory, connect: Connect, *, screen: Screen, everything: bool = False
) -> RunStatus:
    """Go on following a run where the last follower stopped; an interruption leaves it alone."""
    state = states.load(run)
    if state.ended:
        replay(run, screen)
        if store.read_only.get():
            return concluded(RunStatus(run, state))
        return fetch_so_far(run, connect, screen=screen)

    with Interrupts(held=True) as interrupts:
        # From the first line on: Ctrl-C may come before the cluster has answered.
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


def fetch(
    run: RunDirectory,
    connect: Connect,
    *,
    screen: Screen,
    checkpoints: bool = False,
    of: Collection[str] | None = None,
) -> RunStatus:
    """Bring home the outputs that are not here yet; with `checkpoints`, also the last checkpoints
    (of these tasks).

    A checkpoint that is newer than the one fetched before takes its place, and the older one is
    kept beside it.
    """
    state = status(run, connect).state
    if checkpoints:
        missing = elsewhere(run, state)
    else:
        missing = due(run, state)

    missing = [task for task in missing if of is None or task.name in of]
    if state.ended and not missing and _has_outputs(run, state):
        # All of it is here: the cluster may be gone.
        if checkpoints and of is None:
            screen.note(f"the checkpoints of run {run.name} are all here")
        if not run.report.exists():
            _report(run, note=screen.note)
        return concluded(RunStatus(run, state))

    with _reached(run, state, connect, missing) as ray:
        for task in missing if checkpoints else ():
            fetch_checkpoint(ray, run, state.node_id or "", task, note=screen.note)
        unfetched = _all_home(Fetcher(ray, run, note=screen.note), run, state, note=screen.note)

    return concluded(RunStatus(run, state), unfetched=unfetched)


@contextmanager
def _reached(
    run: RunDirectory, state: RunState, connect: Connect, missing: Sequence[Task]
) -> Iterator[RayApi]:
    """Connect to what a run has left, which is on the head that it ran on. Raises NotReadyError
    where that is gone.
    """
    try:
        endpoint = connect(run)
    except NotReadyError as error:
        raise _gone(run, state, missing, why=error.what) from error
    with ray_of(endpoint) as ray:
        # Another cluster of that name, or a new head, has none of it.
        if state.node_id and not any(
            node.alive and node.node_id == state.node_id for node in ray.nodes()
        ):
            raise _gone(
                run, state, missing, why=f"the head of cluster {state.cluster} is another one now"
            )
        yield ray


def _gone(
    run: RunDirectory, state: RunState, missing: Sequence[Task], *, why: str
) -> NotReadyError:
    """Say that what is not here ended with the head, and since when; `why` is what there is
    instead.
    """
    lost_at = checkpoint_loss(run)
    at = f" at {lost_at:%H:%M on %-d %B %Y}" if lost_at else ""
    if missing and state.checkpoints_at is not None:
        return NotReadyError(
            f"checkpoints of run {run.name} are on storage of cluster {state.cluster}, "
            f"{state.checkpoints_at}, "
            f"and the head that served them is gone: {listed(missing)}",
            where=why,
            hint=f"To continue from them: {state.resume_command}",
        )

    if missing:
        what = f"checkpoints of run {run.name}"
    else:
        what = f"outputs of run {run.name}"

    if state.sweep or state.done == len(state.tasks):
        again = ""
    else:
        again = state.resume_command

    return NotReadyError(
        f"{what} went with the cluster{at}" + (f": {listed(missing)}" if missing else ""),
        where=why,
        hint=f"To continue from what is here: {again}" if again else f"What is here: {run.path}",
    )


def fetch_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> RunStatus:
    """Bring home what a run has left by now, if its cluster answers: it may be gone."""
    try:
        return fetch(run, connect, screen=screen)
    except TrainyardError as error:
        screen.note(f"there may be more: {error.what}")
        return concluded(RunStatus(run, states.load(run)))


def is_at_home(ray: RayApi, run: RunDirectory) -> bool:
    """Say whether all that a run of this cluster left is here; first take in what it said by
    now.
    """
    state = states.load(run)
    state = state if state.ended else _catch_up(ray, run)
    return _has_outputs(run, state) and not due(run, state)


def bring_home(ray: RayApi, run: RunDirectory, *, note: Callable[[str], None]) -> Unfetched:
    """Fetch what a run left, unless another command does so right now; return what could not be
    fetched.
    """
    with closing(Journal(run)) as journal:
        if not journal.recording:
            if journal.problem:
                return Unfetched((journal.problem,))
            return ALL_HOME
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
) -> Unfetched:
    """Fetch what is missing, write the report once outputs are here; return what could not be
    fetched.
    """
    if state.node_id:
        fetcher.missing(state.node_id, state)
    left = fetcher.wait()
    if state.node_id:
        # Which of them fit is known once outputs are here.
        fetcher.fetch_checkpoints(state.node_id, state)
    if state.ended:
        _report(run, note=note)
    return Unfetched(left, fetcher.wait_for_checkpoints())


def _report(run: RunDirectory, *, note: Callable[[str], None]) -> None:
    """Write a run's report; its events and outputs are here without one, whatever hinders it."""
    try:
        write_report(run.path)
    except Exception as error:  # it reads what tasks and clusters wrote
        note(f"there is no report of {run.name}: {reason_of(error)}")


def _replay_log(run: RunDirectory, task: str, attempt: int, *, screen: Screen) -> None:
    path = run.log(task, attempt)
    if path.is_file():
        with path.open("rb") as log:
            for block in iter(lambda: log.read(_BLOCK), b""):
                screen.output(task, block)


def concluded(status: RunStatus, *, unfetched: Unfetched = ALL_HOME) -> RunStatus:
    """Return a run that was followed, or left, with its error; `unfetched` is what did not come
    home.
    """
    run = status.run
    state = status.state
    error = None
    if state.ended and state.exit != 0:
        error = _error(run, state)
    if error is None and (left := unfetched.outputs or unfetched.checkpoints):
        what = "outputs" if unfetched.outputs else "checkpoints"
        error = OutsideError(
            f"{what} of {len(left)} tasks are still on the cluster: {left[0].what}",
            where=left[0].where,
            hint=f"Try again: trainyard train.fetch {run.name}",
        )
    return replace(status, error=error)


def _without_module(state: RunState) -> str | None:
    """Return what installs the module without which the first task failed: to resume it would fail
    again.
    """
    failed = next((task for task in state.tasks.values() if task.state == "failed"), None)
    lines = failed.last.tail if failed else ()
    found = next(filter(None, map(_NO_MODULE.match, reversed(lines))), None)
    if found is None:
        return None
    return (
        f"Python has no module {found[1]} there. For one job: `runtime_env: {{pip: [...]}}` in "
        "its job.yaml. Else it "
        "belongs into the image; on `local`, into the environment in which trainyard is installed."
    )


def _error(run: RunDirectory, state: RunState) -> TrainyardError:
    what = state.error or state.state
    if not state.error or what.startswith("stopped"):
        what = f"run {run.name} {what}"
    else:
        what = what

    if state.exit == SmokeError.exit_code:
        return SmokeError(
            what, where=f"cluster {state.cluster}", hint=state.hint or "Nothing was dispatched."
        )

    if state.exit == JobFailedError.exit_code:
        if state.counts["stopped"]:
            stopped = f", {state.counts['stopped']} of {len(state.tasks)} tasks stopped"
        else:
            stopped = ""

        is_open = any(task.state in ("failed", "stopped") for task in state.tasks.values())
        resume = None
        if is_open and not state.sweep:
            resume = f"Resume it: {state.resume_command}"

        hint = state.hint or _without_module(state) or resume
        return JobFailedError(f"{what}{stopped}", where=str(run.path), hint=hint)

    return OutsideError(what, where=str(run.path), hint=state.hint)
