"""Dispatch a job: upload packages, record the run, submit and follow it."""

from __future__ import annotations

import datetime
import getpass
import os
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard_runner import bootstrap
from trainyard_runner.wire import space, tree

from trainyard import versions
from trainyard.dispatch import plan, resume, sending
from trainyard.dispatch.capacity import refuse_what_never_fits
from trainyard.dispatch.follow import Interrupts, Screen
from trainyard.dispatch.package import blob_name, runner_package
from trainyard.dispatch.plan import Prepared
from trainyard.dispatch.runs import RunStatus, follow
from trainyard.endpoint import Endpoint
from trainyard.errors import InterruptedRunError, OutsideError, PrerequisiteError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi, UnreachableError, ray_of
from trainyard.spec.show import as_yaml
from trainyard.steps import YES, Progress, Step, no
from trainyard.steps import run as run_steps

# Ray answers this for some seconds after a cluster came up; the request must then be repeated.
_NOT_YET = "No available agent to submit job"
_SUBMIT_SECONDS = 30.0


@dataclass(frozen=True)
class Asked:
    """The options of a dispatch.

    `results` is the directory for runs, `command` the command line for the
    record. With `wait`, the run is followed and its results are fetched.
    """

    results: Path
    command: Sequence[str]
    wait: bool
    skip_smoke: bool


def dispatch(
    prepared: Prepared,
    endpoint: Endpoint,
    asked: Asked,
    *,
    progress: Progress,
    screen: Screen,
) -> RunStatus:
    """Send a job and begin its run; with `wait`, follow it and fetch results.

    While the run is followed, a first interruption stops the run and waits for
    its end; a second one raises InterruptedRunError at once. The error of a
    failed or interrupted run is in the result, and is not raised.
    """
    _refuse_without_packages(prepared, endpoint)
    with ray_of(endpoint) as ray, Interrupts() as interrupts:
        refuse_what_never_fits(prepared, endpoint, ray, skip_smoke=asked.skip_smoke)
        run = _start(
            ray,
            prepared,
            endpoint,
            interrupts,
            asked,
            progress=progress,
            screen=screen,
        )

        now = RunStatus(run, states.load(run))
        try:
            resumed = prepared.resumed
            if resumed and resumed.plan.inherited:
                send = resume.send(ray, run.name, resumed, interrupted=interrupts.asked)
                run_steps([send], progress)
            if asked.wait:
                now = follow(
                    ray, run, endpoint, screen=screen, interrupted=interrupts.asked, stop=True
                )
        except KeyboardInterrupt:
            # The first interruption's request to stop may not have reached Ray.
            with suppress(OutsideError):
                ray.stop(run.name)
            what = "left at once; the run was asked to stop and may still be stopping"
            hint = f"See: trainyard train.status {run.name}"
            raise InterruptedRunError(what, hint=hint) from None

    if not interrupts.asked():
        return now
    if asked.wait:
        return interrupted(now)

    what = f"interrupted; run {run.name} is still active"
    hint = f"To end it: trainyard train.stop {run.name}"
    return replace(now, error=InterruptedRunError(what, hint=hint))


def interrupted(status: RunStatus) -> RunStatus:
    """Return the status with the error of an interrupted command.

    The run itself may have succeeded.
    """
    name = status.run.name
    state = status.state
    if not state.ended:
        what = "interrupted; the run was asked to stop and has not reported its end"
        see = f"See: trainyard train.status {name}"
        return replace(status, error=InterruptedRunError(what, hint=see))
    if state.state == "stopped":
        how = "was stopped"
    else:
        how = state.state

    hint = None
    if state.state == "stopped" or (state.state == "failed" and not state.sweep):
        hint = f"Resume it: {state.resume_command}"
    elif state.state == "succeeded" and status.error:
        # The error of a run that succeeded: results were not fetched.
        hint = status.error.hint

    return replace(status, error=InterruptedRunError(f"interrupted; run {name} {how}", hint=hint))


def _refuse_without_packages(prepared: Prepared, endpoint: Endpoint) -> None:
    """Raise PrerequisiteError if the head's Python lacks a needed package.

    If the backend cannot ask the head (`Endpoint.lacking`), the run itself
    fails later.
    """
    sweep = prepared.job.tune
    missing = endpoint.lacking(space.packages(sweep.search)) if sweep else None
    if missing:
        raise PrerequisiteError(
            f"a sweep needs {missing.name}, and the Python of the cluster's head does not have it",
            where=missing.python,
            hint=f"Install it there: {versions.installing('tune')}",
        )

    env = prepared.job.runtime_env
    installs = env.uv or env.pip or env.wheels
    # Ray installs with pip, which an environment made by uv lacks.
    missing = endpoint.lacking(["pip"]) if installs else None
    if missing:
        raise PrerequisiteError(
            "`uv`, `pip` and `wheels` of a job need pip, and the Python of the cluster's head "
            "does not have it",
            where=missing.python,
            hint=f"Install it there: {missing.python} -m ensurepip, or uv pip install --python "
            f"{missing.python} pip",
        )


def _start(
    ray: RayApi,
    prepared: Prepared,
    endpoint: Endpoint,
    interrupts: Interrupts,
    asked: Asked,
    *,
    progress: Progress,
    screen: Screen,
) -> RunDirectory:
    """Upload the job's missing packages, record the run and begin it.

    Ctrl-C raises KeyboardInterrupt until the run is recorded. From then on, it
    only sets `interrupts.asked`, which the caller reads.
    """
    now = datetime.datetime.now().astimezone()
    name = store.run_name(prepared.job.name, now=now, entropy=os.urandom(2))
    version = ray.supported_version()
    packages = sending.send(ray, prepared, progress=progress, note=screen.note)
    plan_text = plan.build(name, endpoint, prepared, packages, skip_gate=asked.skip_smoke)
    record = plan.record_of(
        prepared,
        packages.job,
        run=name,
        endpoint=endpoint,
        ray=version,
        now=now,
        command=asked.command,
        skip_smoke=asked.skip_smoke,
    )

    cluster_file = as_yaml(prepared.cluster.spec)
    interrupts.hold()
    run = store.create(asked.results, record, cluster=cluster_file, job=as_yaml(prepared.job))
    store.keep_study(run, prepared.study)
    try:
        if prepared.resumed:
            resume.link(prepared.resumed, run)
        begin(ray, name, plan_text, job=prepared.job.name, progress=progress)
    except Exception as error:
        # After a broken connection, the run may have begun; `train.logs` needs its record.
        if not isinstance(error, UnreachableError):
            tree.remove(str(run.path))
        raise

    return run


def begin(ray: RayApi, run: str, plan_text: bytes, *, job: str, progress: Progress) -> None:
    """Upload the runner, and submit the run.

    After this, the run no longer needs this machine. The caller must have
    uploaded the other packages.
    """
    runner = runner_package()
    start = Step(
        id="start-run",
        title=f"Start run {run}",
        done=lambda: YES if ray.job(run) else no("not submitted"),
        do=lambda: _submit(ray, run, plan_text, runner=runner.parts[0], job=job),
        deadline=10.0,
    )
    run_steps([sending.step(ray, "the runner", runner), start], progress)


def _submit(ray: RayApi, run: str, plan: bytes, *, runner: str, job: str) -> None:
    """Upload the plan and submit its Ray job; `runner` is uploaded already."""
    plan_name = blob_name(plan)
    # Commands that would end the run, such as `cluster.down`, name this user.
    user = f"{getpass.getuser()}@{platform.node()}"
    metadata = {"trainyard_run": run, "trainyard_job": job, "trainyard_by": user}
    ray.put_package(plan_name, plan)
    variables = bootstrap.variables(runner=runner, plan=plan_name)
    give_up = time.monotonic() + _SUBMIT_SECONDS

    while True:
        try:
            return ray.submit(
                bootstrap.entrypoint(run),
                submission_id=run,
                metadata=metadata,
                variables=variables,
            )
        except UnreachableError:
            # The request may have arrived although its answer was lost; Ray would reject a second
            # one with the same submission id.
            if ray.job(run):
                return None
            raise
        except OutsideError as error:
            if _NOT_YET not in error.what or time.monotonic() > give_up:
                raise
            time.sleep(0.5)
