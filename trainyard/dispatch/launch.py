"""Dispatch a job: send what the cluster lacks, record the run, start it as one Ray job, follow it."""

from __future__ import annotations

import datetime
import getpass
import os
import platform
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainyard_runner import bootstrap, tree

from trainyard.dispatch import plan
from trainyard.dispatch.interrupts import Interrupts
from trainyard.dispatch.package import Package, blob_name, pack
from trainyard.dispatch.prepare import Prepared, runner_package
from trainyard.dispatch.runs import RunStatus, follow, interrupted, ray_of
from trainyard.dispatch.screens import Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import InterruptedRunError, OutsideError
from trainyard.results import formats, store
from trainyard.results import state as states
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi, UnreachableError
from trainyard.spec.show import as_yaml
from trainyard.steps import YES, Answer, Progress, Step, no
from trainyard.steps import run as run_steps

# Ray's answer for some seconds after a cluster came up (field-notes.md, section 6); nothing was started then.
_NOT_YET = "No available agent to submit job"
_SUBMIT_SECONDS = 30.0


def dispatch(
    prepared: Prepared,
    endpoint: Endpoint,
    *,
    results: Path,
    command: Sequence[str],
    wait: bool,
    skip_smoke: bool,
    progress: Progress,
    screen: Screen,
) -> RunStatus:
    """Send a job, follow it and bring its results home.

    The first interruption stops the run and waits for its end; the second one leaves at once.
    """
    with ray_of(endpoint) as ray, Interrupts() as interrupts:
        started = _start(ray, prepared, endpoint, results, command, skip_smoke, progress, interrupts)
        if not wait:
            return RunStatus(started, states.load(started))
        try:
            ended = follow(ray, started, endpoint, screen=screen, interrupted=interrupts.asked, stop=True)
            return interrupted(ended) if interrupts.asked() else ended
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
    results: Path,
    command: Sequence[str],
    skip_smoke: bool,
    progress: Progress,
    interrupts: Interrupts,
) -> RunDirectory:
    """Send the job, make the run's directory, then the run; without the run, the directory goes too."""
    now, job = datetime.datetime.now().astimezone(), prepared.job
    name = store.run_name(job.name, now=now, entropy=os.urandom(2))
    version = ray.version()
    package = pack(prepared.files)
    wheels = pack(prepared.wheels) if prepared.wheels else None
    cargo = {"the job": package, **({"wheels": wheels} if wheels else {})}
    run_steps([_send(ray, title, each) for title, each in cargo.items()], progress)
    document = plan.build(
        name,
        endpoint,
        job=job,
        tasks=prepared.tasks,
        package=package,
        wheels=wheels,
        skip_gate=skip_smoke,
    )
    record = plan.record_of(
        prepared,
        package,
        run=name,
        endpoint=endpoint,
        ray=version,
        now=now,
        command=command,
        skip_smoke=skip_smoke,
    )
    interrupts.hold()
    made = store.create(results, record, cluster=as_yaml(prepared.cluster.spec), job=as_yaml(job))
    try:
        begin(ray, name, document, job=job.name, progress=progress)
    except UnreachableError:
        # The run may have begun: `train.logs` will tell.
        raise
    except Exception:
        tree.remove(str(made.path))
        raise
    return made


def begin(ray: RayApi, run: str, plan: bytes, *, job: str, progress: Progress) -> None:
    """Submit a run whose cargo is there; when this returns, it goes on without us."""
    runner = runner_package()
    start = Step(
        title=f"Start run {run}",
        done=lambda: YES if ray.job(run) else no("not submitted"),
        do=lambda: _submit(ray, run, plan, runner=runner.parts[0], job=job),
        deadline=10.0,
    )
    run_steps([_send(ray, "the runner", runner), start], progress)


def _send(ray: RayApi, what: str, package: Package) -> Step:
    def missing() -> list[int]:
        return [index for index, name in enumerate(package.parts) if not ray.has_package(name)]

    def is_complete() -> Answer:
        size = sum(package.part_size(index) for index in missing())
        return no(f"{formats.size(size)} missing") if size else YES

    def upload() -> None:
        for index in missing():
            ray.put_package(package.parts[index], package.read(index), size=package.part_size(index))

    return Step(f"Send {what}, {formats.size(package.size)}", done=is_complete, do=upload, deadline=10.0)


def _submit(ray: RayApi, run: str, plan: bytes, *, runner: str, job: str) -> None:
    """Submit one Ray job that runs the plan; `runner` is the name of the uploaded runner package."""
    plan_name = blob_name(plan)
    # Commands that would end the run name who dispatched it.
    by = f"{getpass.getuser()}@{platform.node()}"
    metadata = {"trainyard_run": run, "trainyard_job": job, "trainyard_by": by}
    ray.put_package(plan_name, [plan], size=len(plan))
    command = "exec " + shlex.join(bootstrap.argv(run, runner=runner, plan=plan_name))
    give_up = time.monotonic() + _SUBMIT_SECONDS
    while True:
        try:
            return ray.submit(command, submission_id=run, metadata=metadata)
        except UnreachableError:
            # The answer was lost; the request may have arrived. Sending it twice is refused by its submission id.
            if ray.job(run):
                return None
            raise
        except OutsideError as error:
            if _NOT_YET not in error.what or time.monotonic() > give_up:
                raise
            time.sleep(0.5)
