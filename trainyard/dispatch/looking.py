"""What can be done with a run that was started: see its logs, stop it, fetch what it left, know how it stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainyard_runner import names

from trainyard.dispatch import following
from trainyard.dispatch.fetch import Fetcher, fetch_fresh, missing_archives
from trainyard.dispatch.follow import STOP_WITHIN
from trainyard.dispatch.following import follow, ray_of
from trainyard.dispatch.interrupts import Already, Interrupts
from trainyard.dispatch.outcome import Outcome, outcome_of
from trainyard.dispatch.screens import Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, TrainyardError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.journal import Journal
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import FileMissingError, RayApi

_BLOCK = 1024 * 1024
_ROUNDS = 3

# Where a run's cluster answers now; raises when there is none.
Connect = Callable[[RunDirectory], Endpoint]


@dataclass(frozen=True)
class Standing:
    """How a run stands. `unsure` says why it may have gone on since: its cluster did not answer.

    Of a `broken` run, whose record is damaged, it says what is wrong.
    """

    run: RunDirectory
    state: RunState
    unsure: str | None = None
    broken: bool = False

    def document(self) -> dict[str, Any]:
        return self.state.document(now=time.time(), unsure=self.unsure)


def standing(run: RunDirectory, connect: Connect) -> Standing:
    """Return how a run stands now, asking its cluster if it has not ended by what is known here."""
    state = states.load(run)
    if state.ended:
        return Standing(run, state)
    try:
        with ray_of(connect(run)) as ray:
            return Standing(run, following.catch_up(ray, run))
    except TrainyardError as error:
        return Standing(run, states.load(run), unsure=f"cluster unreachable: {error.what}")


def logs(run: RunDirectory, connect: Connect, *, screen: Screen, everything: bool) -> Outcome:
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


def watch(run: RunDirectory, connect: Connect, *, screen: Screen) -> Outcome:
    """Go on following a run without a word of what was before; an interruption leaves it alone."""
    state = states.load(run)
    if state.ended:
        return _complete(run, state, connect, screen)
    with Interrupts(held=True) as interrupts:
        return _follow(run, connect, screen, interrupts)


def logs_so_far(run: RunDirectory, connect: Connect, *, screen: Screen) -> Outcome:
    found = standing(run, connect)
    replay(run, screen)
    if found.unsure:
        screen.note(f"there may be more: {found.unsure}")
    return outcome_of(run, found.state, now=time.time(), unsure=found.unsure)


def replay(run: RunDirectory, screen: Screen) -> None:
    """Show what was recorded: events in order, an attempt's output where the attempt ended."""
    record = run.record()
    state = RunState(run=run.name, cluster=record["cluster"], job=record.get("job"), tasks=record.get("tasks", ()))
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


def stop(run: RunDirectory, connect: Connect, *, screen: Screen) -> Outcome:
    """Stop a run and wait until it has ended."""
    endpoint = connect(run)
    with ray_of(endpoint) as ray:
        outcome = follow(ray, run, endpoint, screen=screen, interruption=Already(), stop=True)
    if outcome.error is None and not outcome.state.ended:
        error = OutsideError(
            f"run {run.name} was told to stop and has not ended in {STOP_WITHIN:.0f} s",
            hint=f"See: invoke train.status {run.name}",
        )
        return replace(outcome, error=error, document=outcome.state.document(now=time.time(), unsure=error.what))
    return outcome


def fetch(run: RunDirectory, connect: Connect, *, screen: Screen, checkpoints: bool) -> Outcome:
    """Bring home the outputs that are not here yet; with `checkpoints`, also the last checkpoints.

    A checkpoint that is newer than the one fetched before takes its place, and the older one is kept beside it.
    """
    known = states.load(run)
    if known.ended and not checkpoints and not unfetched(run, known):
        # All of it is here: the cluster may be gone.
        return outcome_of(run, known, now=time.time())
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
    return outcome_of(run, state, now=time.time(), unfetched=failures)


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
    state = state if state.ended else following.catch_up(ray, run)
    return not unfetched(run, state) and (run.report.exists() or not state.ended)


def bring_home(ray: RayApi, run: RunDirectory, *, note: Callable[[str], None]) -> tuple[OutsideError, ...]:
    """Fetch what a run left, unless another command does so right now; return what could not be fetched."""
    journal = Journal(run)
    try:
        fetcher = Fetcher(ray, run, note=note)
        return following.bring_home(fetcher, run, states.load(run)) if journal.recording else ()
    finally:
        journal.close()


def _follow(run: RunDirectory, connect: Connect, screen: Screen, interrupts: Interrupts) -> Outcome:
    endpoint = connect(run)
    with ray_of(endpoint) as ray:
        return follow(ray, run, endpoint, screen=screen, interruption=interrupts, stop=False)


def _complete(run: RunDirectory, state: RunState, connect: Connect, screen: Screen) -> Outcome:
    """Fetch what an earlier follower of a run that has ended did not bring home; the cluster may be gone."""
    missing = unfetched(run, state)
    failures: tuple[OutsideError, ...] = ()
    if not store.read_only.get() and (missing or not run.report.exists()):
        try:
            with ray_of(connect(run)) as ray:
                failures = following.bring_home(Fetcher(ray, run, note=screen.note), run, state)
        except TrainyardError as error:
            screen.note(f"outputs of {len(missing)} tasks are not here: {error.what}")
    return outcome_of(run, state, now=time.time(), unfetched=failures)


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
