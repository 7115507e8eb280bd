"""The smoke test: a run without tasks proves that a cluster can train.

Each run begins with the smoke gate, which checks the nodes
(runner/trainyard_runner/head/rungs.py); this run ends after it. This module
checks the dashboard, and backends check their hosts.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard_runner.wire.events import Check, Event, Note

from trainyard.dispatch import launch, plan
from trainyard.dispatch.follow import STOP_WITHIN, Follower, Interrupts, Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import InterruptedRunError, OutsideError, SmokeError, TrainyardError
from trainyard.results import store
from trainyard.results.journal import Journal
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi, RefusedError, ray_of
from trainyard.steps import YES, Answer, Progress, Step, no, nothing
from trainyard.steps import run as run_steps

Rung = Callable[[], tuple[Check, ...]]
JOB = "smoke"


@dataclass(frozen=True)
class Smoked:
    """The result of the smoke test; without `error`, the cluster can train."""

    cluster: str
    checks: tuple[Check, ...]
    seconds: float
    error: TrainyardError | None

    def document(self) -> dict[str, Any]:
        seconds = round(self.seconds, 3)
        return {
            "ok": self.error is None,
            "cluster": self.cluster,
            "seconds": seconds,
            "checks": [check.fields() for check in self.checks],
        }


def smoke(endpoint: Endpoint, progress: Progress) -> Smoked:
    """Run the smoke test; return the error of a failed check in the result.

    Raises OutsideError if the cluster no longer answers, and
    InterruptedRunError after Ctrl-C.
    """
    began = time.monotonic()
    checks: list[Check] = []
    with ray_of(endpoint) as ray, Interrupts(held=True) as interrupts:
        # The run itself would wait a minute for missing nodes.
        rungs: tuple[Rung, ...] = (
            lambda: (dashboard(endpoint, ray),),
            lambda: missing(endpoint),
            endpoint.checks,
        )
        for ask in rungs:
            checks += ask()
            error = _failed(endpoint, checks)
            if error:
                return Smoked(endpoint.cluster, tuple(checks), time.monotonic() - began, error)

        state = _run(ray, endpoint, progress, interrupts)

    if interrupts.asked():
        raise InterruptedRunError("interrupted; the smoke test was stopped")

    checks += state.checks
    error = _failed(endpoint, checks)
    if error is None and state.exit != 0:
        error = OutsideError(
            state.error or "the smoke test did not end", where=endpoint.cluster, hint=state.hint
        )

    return Smoked(endpoint.cluster, tuple(checks), time.monotonic() - began, error)


def dashboard(endpoint: Endpoint, ray: RayApi) -> Check:
    """Check that the dashboard answers with the token, and only with it."""
    began = time.monotonic()
    detail = f"Ray {ray.supported_version()} answers at {endpoint.address}"
    problem = None

    if endpoint.token is None:
        detail += ", no token needed"
    else:
        try:
            with RayApi(endpoint.address, None) as stranger:
                stranger.version()
            problem = (
                "answers without the token: anybody who reaches it can run code on the cluster"
            )
        except RefusedError:
            detail += ", refuses without the token"

    hint = problem and "Start every node with RAY_AUTH_MODE=token (Ray 2.52 or newer)."
    seconds = round(time.monotonic() - began, 3)
    return Check("dashboard", None, problem is None, problem or detail, seconds, hint=hint)


def missing(endpoint: Endpoint) -> tuple[Check, ...]:
    hint = "`trainyard cluster.up` starts what is missing, or says why it cannot."
    return tuple(Check("nodes", name, False, why, hint=hint) for name, why in endpoint.down)


def refuse_broken(endpoint: Endpoint) -> None:
    """Raise SmokeError for a node known to be down or a failed backend check.

    The run's gate would wait for the node, and does not know the backend.
    """
    checks = missing(endpoint) or endpoint.checks()
    error = _failed(endpoint, checks)
    if error:
        raise error


def begin(ray: RayApi, endpoint: Endpoint, progress: Progress, *, skip_gate: bool = False) -> str:
    """Begin a run without tasks and without a record here; return its name."""
    name = store.run_name(JOB, now=datetime.datetime.now().astimezone(), entropy=os.urandom(2))
    plan_text = plan.build(name, endpoint, skip_gate=skip_gate)
    launch.begin(ray, name, plan_text, job=JOB, progress=progress)
    return name


def _run(ray: RayApi, endpoint: Endpoint, progress: Progress, interrupts: Interrupts) -> RunState:
    name = begin(ray, endpoint, progress)
    state = RunState(run=name, cluster=endpoint.cluster, job=None)
    journal = Journal(RunDirectory(Path(name)), may_record=False)
    follower = Follower(
        ray,
        journal,
        state,
        screen=_Notes(progress),
        interrupted=interrupts.asked,
        stop_on_interruption=True,
        is_in_reach=endpoint.is_in_reach,
    )
    follower.follow()
    if state.ended:
        run_steps([_end(ray, name)], progress)
    return state


def _end(ray: RayApi, run: str) -> Step:
    """Return the step that waits until Ray lists the test's job as ended.

    Until then, the job counts as an active run, and `cluster.down` would
    refuse.
    """

    def ended() -> Answer:
        # Ray lists a job as running until its process is gone, 1 to 2 s after its last event.
        job = ray.job(run)
        if job is None or job.ended:
            return YES
        return no("Ray still lists its job as running")

    return Step("end-smoke", "End the smoke test", done=ended, do=nothing, deadline=STOP_WITHIN)


class _Notes(Screen):
    """Shows only the run's notes, such as what the gate waits for."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def event(self, event: Event, state: RunState) -> None:
        if isinstance(event, Note):
            self._progress.saw("Smoke test", event.text)


def _failed(endpoint: Endpoint, checks: Sequence[Check]) -> TrainyardError | None:
    for check in checks:
        if check.ok:
            continue
        where = f"cluster {endpoint.cluster}"
        if check.node:
            where = f"{check.node}, {where}"
        what = f"smoke test failed: {check.name}: {check.detail}"
        return SmokeError(what, where=where, hint=check.hint)
    return None
