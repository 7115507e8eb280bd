"""What can be done with a run that was started: see its logs, stop it, fetch what it left, know how it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainyard_runner import names

from trainyard.dispatch.fetch import Fetcher, fetch_fresh, missing_archives
from trainyard.dispatch.follow import STOP_WITHIN, Follower
from trainyard.dispatch.interrupts import Interrupts
from trainyard.dispatch.screens import Screen
from trainyard.dispatch.standing import Standing, concluded
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, TrainyardError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.journal import Journal
from trainyard.results.report import write_report
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import FileMissingError, RayApi

_BLOCK = 1024 * 1024
_ROUNDS = 3

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
) -> Standing:
    """Follow a run to its end, from where this machine's record of it stops; bring everything home, write the report.

    `stop`: an interruption stops the run. A cluster that is gone is an outcome too, with what is known by then.
    """
    journal = Journal(run)
    state = states.load(run)
    fetcher = Fetcher(ray, run, note=screen.note)
    if not journal.recording and not store.read_only.get():
        screen.note("another command records this run; this one only shows it")
    reach = endpoint.is_in_reach
    try:
        follower = Follower(ray, run.name, journal, state, fetcher, screen, interrupted, stop, is_in_reach=reach)
        ending = follower.follow()
        unfetched = _all_home(fetcher, run, state) if ending == "ended" and journal.recording else ()
        return concluded(Standing(run, state), unfetched=unfetched)
    except OutsideError as error:
        return Standing(run, states.load(run), unsure=error.what, error=error)
    finally:
        fetcher.abandon()
        journal.close()


def standing(run: RunDirectory, connect: Connect) -> Standing:
    """Return how a run stands now, asking its cluster if it has not ended by what is known here."""
    state = states.load(run)
    if state.ended:
        return Standing(run, state)
    try:
        with ray_of(connect(run)) as ray:
            return Standing(run, _catch_up(ray, run))
    except TrainyardError as error:
        return Standing(run, states.load(run), unsure=f"cluster unreachable: {error.what}")


def logs(run: RunDirectory, connect: Connect, *, screen: Screen, everything: bool) -> Standing:
    """Go on following a run where the last follower stopped; an interruption leaves it alone."""
    state = states.load(run)
    if state.ended:
        replay(run, screen)
        return _complete(run, state, connect, screen)
    with Interrupts(held=True) as interrupts:
        # From the first line on: Ctrl-C may come before the cluster has answered.
        if everything:
            replay(run, screen)
        elif state.started:
            screen.note("going on where this machine stopped looking; `--all` shows everything")
        return _follow(run, connect, screen, interrupts)


def watch(run: RunDirectory, connect: Connect, *, screen: Screen) -> Standing:
    """Go on following a run without a word of what was before; an interruption leaves it alone."""
    state = states.load(run)
    if state.ended:
        return _complete(run, state, connect, screen)
    with Interrupts(held=True) as interrupts:
        return _follow(run, connect, screen, interrupts)


def logs_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> Standing:
    found = standing(run, connect)
    replay(run, screen)
    if found.unsure:
        screen.note(f"there may be more: {found.unsure}")
    return concluded(found)


def replay(run: RunDirectory, screen: Screen) -> None:
    """Show what was recorded: events in order, an attempt's output where the attempt ended."""
    state = states.fresh(run)
    open_attempts: dict[tuple[str, int], None] = {}
    for event in store.events(run):
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


def stop(run: RunDirectory, connect: Connect, *, screen: Screen) -> Standing:
    """Stop a run and wait until it has ended."""
    endpoint = connect(run)
    with ray_of(endpoint) as ray:
        found = follow(ray, run, endpoint, screen=screen, stop=True)
    if found.error is None and not found.state.ended:
        error = OutsideError(
            f"run {run.name} was told to stop and has not ended in {STOP_WITHIN:.0f} s",
            hint=f"See: invoke train.status {run.name}",
        )
        return replace(found, unsure=error.what, error=error)
    return found


def fetch(run: RunDirectory, connect: Connect, *, screen: Screen, checkpoints: bool) -> Standing:
    """Bring home the outputs that are not here yet; with `checkpoints`, also the last checkpoints.

    A checkpoint that is newer than the one fetched before takes its place, and the older one is kept beside it.
    """
    known = states.load(run)
    if known.ended and not checkpoints and not unfetched(run, known):
        # All of it is here: the cluster may be gone.
        return concluded(Standing(run, known))
    failures: tuple[OutsideError, ...] = ()
    for _ in range(_ROUNDS):
        state = standing(run, connect).state
        with ray_of(connect(run)) as ray:
            fetcher = Fetcher(ray, run, note=screen.note)
            node_id = state.node_id or ""
            fetcher.missing(node_id, state)
            for task in state.tasks.values() if checkpoints else ():
                if task.checkpoint:
                    _fetch_checkpoint(ray, run, node_id, task.name, task.checkpoint, screen)
            failures = fetcher.wait()
        # While a run goes on, an archive may have been replaced since we heard of it.
        if state.ended or not any(isinstance(failure, FileMissingError) for failure in failures):
            break
    return concluded(Standing(run, state), unfetched=failures)


def fetch_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> None:
    """Bring home what a run that goes on has left by now, if its cluster answers."""
    if states.load(run).ended:
        return
    try:
        fetch(run, connect, screen=screen, checkpoints=False)
    except TrainyardError as error:
        screen.note(f"there may be more: {error.what}")


def unfetched(run: RunDirectory, state: RunState) -> tuple[Task, ...]:
    return tuple(task for task in state.tasks.values() if missing_archives(run, task))


def is_at_home(ray: RayApi, run: RunDirectory) -> bool:
    """Say whether all that a run of this cluster left is here, its report too; first take in what it said by now."""
    state = states.load(run)
    state = state if state.ended else _catch_up(ray, run)
    return not unfetched(run, state) and (run.report.exists() or not state.ended)


def bring_home(ray: RayApi, run: RunDirectory, *, note: Callable[[str], None]) -> tuple[OutsideError, ...]:
    """Fetch what a run left, unless another command does so right now; return what could not be fetched."""
    journal = Journal(run)
    try:
        fetcher = Fetcher(ray, run, note=note)
        return _all_home(fetcher, run, states.load(run)) if journal.recording else ()
    finally:
        journal.close()


def _follow(run: RunDirectory, connect: Connect, screen: Screen, interrupts: Interrupts) -> Standing:
    endpoint = connect(run)
    with ray_of(endpoint) as ray:
        return follow(ray, run, endpoint, screen=screen, interrupted=interrupts.asked, stop=False)


def _catch_up(ray: RayApi, run: RunDirectory) -> RunState:
    """Take in what a run has said by now, unless another command does so; show and fetch nothing.

    Raises OutsideError when the cluster does not answer at once.
    """
    journal = Journal(run)
    try:
        state = states.load(run)
        if journal.recording or store.read_only.get():
            Follower(ray, run.name, journal, state, None, Screen(), lambda: False, False, catch_up=True).follow()
        return state
    finally:
        journal.close()


def _all_home(fetcher: Fetcher, run: RunDirectory, state: RunState) -> tuple[OutsideError, ...]:
    """Fetch what is missing, wait for all of it, write the report; return what could not be fetched."""
    if state.node_id:
        fetcher.missing(state.node_id, state)
    unfetched = fetcher.wait()
    write_report(run.path)
    return unfetched


def _complete(run: RunDirectory, state: RunState, connect: Connect, screen: Screen) -> Standing:
    """Fetch what an earlier follower of a run that has ended did not bring home; the cluster may be gone."""
    missing = unfetched(run, state)
    failures: tuple[OutsideError, ...] = ()
    if not store.read_only.get() and (missing or not run.report.exists()):
        try:
            with ray_of(connect(run)) as ray:
                failures = _all_home(Fetcher(ray, run, note=screen.note), run, state)
        except TrainyardError as error:
            screen.note(f"outputs of {len(missing)} tasks are not here: {error.what}")
    return concluded(Standing(run, state), unfetched=failures)


def _fetch_checkpoint(
    ray: RayApi, run: RunDirectory, node_id: str, task: str, checkpoint: Mapping[str, Any], screen: Screen
) -> None:
    if store.fetched_checkpoint(run, task) == checkpoint["seq"]:
        return
    arrived = run.checkpoint(task).with_name(f".{run.checkpoint(task).name}.{checkpoint['seq']}")
    if not arrived.exists():
        archive = {"file": names.checkpoint_archive(task)}
        for left_out in fetch_fresh(ray, run, node_id, archive, target=arrived):
            screen.note(f"{task}: left out of its checkpoint: {left_out}")
    store.keep_checkpoint(run, task, arrived, seq=checkpoint["seq"])


def _replay_log(run: RunDirectory, task: str, attempt: int, *, screen: Screen) -> None:
    path = run.log(task, attempt)
    if path.exists():
        with path.open("rb") as log:
            for block in iter(lambda: log.read(_BLOCK), b""):
                screen.output(task, block)
