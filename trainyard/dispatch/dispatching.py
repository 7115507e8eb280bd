"""Dispatch a job: from what was prepared to an outcome."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.dispatch import plan, run
from trainyard.dispatch.follow import Interruption
from trainyard.dispatch.interrupts import Interrupts
from trainyard.dispatch.launch import Cargo
from trainyard.dispatch.outcome import Outcome, interrupted, outcome_of
from trainyard.dispatch.package import pack
from trainyard.dispatch.prepare import Prepared
from trainyard.dispatch.provenance import record_of
from trainyard.dispatch.run import follow_to_end
from trainyard.dispatch.screens import Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import InterruptedRunError, OutsideError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi, UnreachableError
from trainyard.spec.show import as_yaml
from trainyard.steps import Progress


@dataclass(frozen=True)
class Request:
    """What `train.dispatch` was asked for, besides the two files."""

    results: Path
    command: Sequence[str]
    directory: Path
    wait: bool = True
    skip_smoke: bool = False


def dispatch(
    prepared: Prepared, endpoint: Endpoint, request: Request, *, progress: Progress, screen: Screen
) -> Outcome:
    """Send a job, follow it and bring its results home.

    The first interruption stops the run and waits for its end; the second one leaves at once.
    """
    with RayApi(endpoint.address, endpoint.token, refused=endpoint.refused) as ray, Interrupts() as interrupts:
        started = _start(ray, prepared, endpoint, request, progress, interrupts)
        if not request.wait:
            state = states.load(started)
            return Outcome(started, state, state.document(now=time.time()))
        try:
            outcome = follow(ray, started, endpoint, screen=screen, interruption=interrupts, stop=True)
            return interrupted(outcome) if interrupts.asked else outcome
        except KeyboardInterrupt:
            # The first interruption may not have come as far as Ray.
            with suppress(OutsideError):
                ray.stop(started.name)
            raise InterruptedRunError(
                "left at once; the run was told to stop and may still be ending",
                hint=f"See: invoke train.status {started.name}",
            ) from None


def _start(
    ray: RayApi,
    prepared: Prepared,
    endpoint: Endpoint,
    request: Request,
    progress: Progress,
    interrupts: Interrupts,
) -> RunDirectory:
    """Send the job, make the run's directory, then the run; without the run, the directory goes too."""
    now = datetime.datetime.now().astimezone()
    name = store.run_name(prepared.job.name, now=now, entropy=os.urandom(2))
    version = ray.version()
    package = pack(prepared.sending.job)
    wheels = pack(prepared.sending.wheels) if prepared.sending.wheels else None
    run.send(ray, [Cargo("the job", package), *([Cargo("wheels", wheels)] if wheels else [])], progress)
    document = plan.build(
        name,
        endpoint,
        job=prepared.job,
        tasks=prepared.tasks,
        package=package,
        wheels=wheels,
        skip_gate=request.skip_smoke,
    )
    record = record_of(
        prepared,
        package,
        run=name,
        endpoint=endpoint,
        ray=version.ray,
        now=now,
        command=request.command,
        directory=request.directory,
        skip_smoke=request.skip_smoke,
    )
    interrupts.hold()
    made = store.create(request.results, record, cluster=as_yaml(prepared.cluster.spec), job=as_yaml(prepared.job))
    try:
        run.begin(ray, name, document, job=prepared.job.name, progress=progress)
    except UnreachableError:
        # The run may have begun: `train.logs` will tell.
        raise
    except Exception:
        store.discard(made)
        raise
    return made


def follow(
    ray: RayApi, started: RunDirectory, endpoint: Endpoint, *, screen: Screen, interruption: Interruption, stop: bool
) -> Outcome:
    """Follow a run to its end; a cluster that is gone is an outcome too, with what is known by then."""
    try:
        followed = follow_to_end(
            ray,
            started,
            screen=screen,
            interruption=interruption,
            stop_on_interruption=stop,
            is_in_reach=endpoint.is_in_reach,
        )
    except OutsideError as error:
        state = states.load(started)
        return Outcome(started, state, state.document(now=time.time(), unsure=error.what), error)
    return outcome_of(started, followed, now=time.time())
