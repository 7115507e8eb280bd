"""Dispatch a job: send what the cluster lacks, record the run, start it as one Ray job, follow it."""

from __future__ import annotations

import datetime
import getpass
import os
import platform
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from trainyard_runner import bootstrap

from trainyard.dispatch import plan
from trainyard.dispatch.interrupts import Interrupts
from trainyard.dispatch.looking import follow, ray_of
from trainyard.dispatch.package import Package, blob_name, pack, sized
from trainyard.dispatch.plan import Request
from trainyard.dispatch.prepare import Prepared, runner_package
from trainyard.dispatch.screens import Screen
from trainyard.dispatch.standing import Standing, interrupted
from trainyard.endpoint import Endpoint
from trainyard.errors import InterruptedRunError, OutsideError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi, UnreachableError
from trainyard.spec.show import as_yaml
from trainyard.steps import YES, Answer, Progress, Step, no
from trainyard.steps import run as run_steps

# Ray's answer for some seconds after a cluster came up (field-notes.md, section 6); nothing was started then.
_NOT_YET = "No available agent to submit job"
_SUBMIT_SECONDS = 30.0
_BAR = 20


def dispatch(
    prepared: Prepared, endpoint: Endpoint, request: Request, *, progress: Progress, screen: Screen
) -> Standing:
    """Send a job, follow it and bring its results home.

    The first interruption stops the run and waits for its end; the second one leaves at once.
    """
    with ray_of(endpoint) as ray, Interrupts() as interrupts:
        started = _start(ray, prepared, endpoint, request, progress, interrupts)
        if not request.wait:
            return Standing(started, states.load(started))
        try:
            found = follow(ray, started, endpoint, screen=screen, interrupted=interrupts.asked, stop=True)
            return interrupted(found) if interrupts.asked() else found
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
    now, job = datetime.datetime.now().astimezone(), prepared.job
    name = store.run_name(job.name, now=now, entropy=os.urandom(2))
    version = ray.version()
    package = pack(prepared.sending.job)
    wheels = pack(prepared.sending.wheels) if prepared.sending.wheels else None
    cargo = {"the job": package, **({"wheels": wheels} if wheels else {})}
    run_steps([_send(ray, title, each, progress) for title, each in cargo.items()], progress)
    document = plan.build(
        name,
        endpoint,
        job=job,
        tasks=prepared.tasks,
        package=package,
        wheels=wheels,
        skip_gate=request.skip_smoke,
    )
    record = plan.record_of(prepared, package, run=name, endpoint=endpoint, ray=version, now=now, request=request)
    interrupts.hold()
    made = store.create(request.results, record, cluster=as_yaml(prepared.cluster.spec), job=as_yaml(job))
    try:
        begin(ray, name, document, job=job.name, progress=progress)
    except UnreachableError:
        # The run may have begun: `train.logs` will tell.
        raise
    except Exception:
        store.discard(made)
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
    run_steps([_send(ray, "the runner", runner, progress), start], progress)


def _send(ray: RayApi, what: str, package: Package, progress: Progress) -> Step:
    title = f"Send {what}, {sized(package.size)}"

    def missing() -> list[int]:
        return [index for index, name in enumerate(package.parts) if not ray.has_package(name)]

    def is_there() -> Answer:
        size = sum(package.part_size(index) for index in missing())
        return no(f"{sized(size)} missing") if size else YES

    def upload() -> None:
        parts = missing()
        count = _counter(title, sum(package.part_size(index) for index in parts), progress)
        for index in parts:
            ray.put_package(package.parts[index], count(package.read(index)), size=package.part_size(index))

    return Step(title, done=is_there, do=upload, deadline=10.0)


def _counter(title: str, total: int, progress: Progress) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Return what shows an upload as a bar while its blocks pass, in steps that suit a pipe too."""
    began, sent, drawn = time.monotonic(), 0, 0

    def count(blocks: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal sent, drawn
        for block in blocks:
            yield block
            sent += len(block)
            step = sent * _BAR // max(total, 1)
            # Small uploads are over before a bar could be read.
            if step > drawn and time.monotonic() > began + 1.0:
                drawn = step
                bar = "#" * step + "." * (_BAR - step)
                progress.saw(title, f"{bar} {sized(sent)} of {sized(total)}")

    return count


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
