"""A run from here: start it on a cluster, and follow one that was started to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainyard.dispatch.fetch import Fetcher
from trainyard.dispatch.follow import Ending, Follower, Interruption, Watch
from trainyard.dispatch.interrupts import Never
from trainyard.dispatch.launch import Cargo, missing_bytes, submit, upload
from trainyard.dispatch.package import sized
from trainyard.dispatch.screens import Screen, Silent
from trainyard.dispatch.sending import runner_package
from trainyard.errors import OutsideError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.journal import Journal
from trainyard.results.report import write_report
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi
from trainyard.steps import YES, Answer, Progress, Step, no
from trainyard.steps import run as run_steps

_BAR = 20


@dataclass(frozen=True)
class Followed:
    """How following ended. `unfetched` are the outputs that could not be brought home."""

    state: RunState
    ending: Ending
    unfetched: tuple[OutsideError, ...] = ()
    recorded: bool = True


def send(ray: RayApi, cargo: Sequence[Cargo], progress: Progress) -> None:
    """Upload what the cluster lacks."""
    run_steps([_send(ray, one, progress) for one in cargo], progress)


def begin(ray: RayApi, run: str, plan: bytes, *, job: str, progress: Progress) -> None:
    """Submit a run whose cargo is there; when this returns, it goes on without us."""
    runner = runner_package()
    start = Step(
        title=f"Start run {run}",
        done=lambda: YES if ray.job(run) else no("not submitted"),
        do=lambda: submit(ray, run, plan, runner=runner.parts[0], job=job),
        deadline=10.0,
    )
    run_steps([_send(ray, Cargo("the runner", runner), progress), start], progress)


def follow_to_end(
    ray: RayApi,
    run: RunDirectory,
    *,
    screen: Screen,
    interruption: Interruption,
    stop_on_interruption: bool,
    is_in_reach: Callable[[], bool],
) -> Followed:
    """Follow a run from where this machine's record of it stops; bring everything home and write the report.

    Raises OutsideError when the cluster is gone.
    """
    journal = Journal(run)
    state = states.load(run)
    fetcher = Fetcher(ray, run, note=screen.note)
    if not journal.recording and not store.read_only.get():
        screen.note("another command records this run; this one only shows it")
    try:
        watch = Watch(
            ray,
            run.name,
            journal,
            state,
            fetcher,
            screen,
            interruption,
            stop_on_interruption,
            is_in_reach=is_in_reach,
        )
        ending = Follower(watch).follow()
        if ending != "ended" or not journal.recording:
            return Followed(state, ending, recorded=journal.recording)
        return Followed(state, ending, bring_home(fetcher, run, state))
    finally:
        fetcher.abandon()
        journal.close()


def catch_up(ray: RayApi, run: RunDirectory) -> RunState:
    """Take in what a run has said by now, unless another command does so; show and fetch nothing.

    Raises OutsideError when the cluster does not answer at once.
    """
    journal = Journal(run)
    try:
        state = states.load(run)
        if journal.recording or store.read_only.get():
            Follower(Watch(ray, run.name, journal, state, None, Silent(), Never(), False, catch_up=True)).follow()
        return state
    finally:
        journal.close()


def bring_home(fetcher: Fetcher, run: RunDirectory, state: RunState) -> tuple[OutsideError, ...]:
    """Fetch what is missing, wait for all of it, write the report; return what could not be fetched."""
    if state.node_id:
        fetcher.missing(state.node_id, state)
    unfetched = fetcher.wait()
    write_report(run.path)
    return unfetched


def _send(ray: RayApi, cargo: Cargo, progress: Progress) -> Step:
    title = f"Send {cargo.title}, {sized(cargo.package.size)}"
    shown = _Percent(title, progress)

    def there() -> Answer:
        missing = missing_bytes(ray, cargo.package)
        return no(f"{sized(missing)} missing") if missing else YES

    return Step(title, done=there, do=lambda: upload(ray, cargo, shown=shown), deadline=10.0)


class _Percent:
    """Shows an upload as a bar, in steps that a pipe can bear too."""

    def __init__(self, title: str, progress: Progress) -> None:
        self._title = title
        self._progress = progress
        self._step = 0
        self._began = time.monotonic()

    def __call__(self, sent: int, total: int) -> None:
        step = sent * _BAR // max(total, 1)
        # Small uploads are over before a bar could be read.
        if step > self._step and time.monotonic() > self._began + 1.0:
            self._step = step
            bar = "#" * step + "." * (_BAR - step)
            self._progress.saw(self._title, f"{bar} {sized(sent)} of {sized(total)}")
