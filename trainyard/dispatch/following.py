"""Follow a run from where this machine's record of it stops, and bring home what it leaves."""

from __future__ import annotations

import time

from trainyard.dispatch.fetch import Fetcher
from trainyard.dispatch.follow import Follower, Watch
from trainyard.dispatch.interrupts import Interruption, Never
from trainyard.dispatch.outcome import Outcome, outcome_of
from trainyard.dispatch.screens import Screen, Silent
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.journal import Journal
from trainyard.results.report import write_report
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi


def ray_of(endpoint: Endpoint) -> RayApi:
    return RayApi(endpoint.address, endpoint.token, refused=endpoint.refused)


def follow(
    ray: RayApi, run: RunDirectory, endpoint: Endpoint, *, screen: Screen, interruption: Interruption, stop: bool
) -> Outcome:
    """Follow a run to its end; bring everything home and write the report. `stop`: an interruption stops the run.

    A cluster that is gone is an outcome too, with what is known by then.
    """
    journal = Journal(run)
    state = states.load(run)
    fetcher = Fetcher(ray, run, note=screen.note)
    if not journal.recording and not store.read_only.get():
        screen.note("another command records this run; this one only shows it")
    watch = Watch(ray, run.name, journal, state, fetcher, screen, interruption, stop, is_in_reach=endpoint.is_in_reach)
    try:
        ending = Follower(watch).follow()
        unfetched = bring_home(fetcher, run, state) if ending == "ended" and journal.recording else ()
        return outcome_of(run, state, now=time.time(), unfetched=unfetched)
    except OutsideError as error:
        known = states.load(run)
        return Outcome(run, known, known.document(now=time.time(), unsure=error.what), error)
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
