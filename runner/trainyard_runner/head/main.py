"""A run, from its plan to its last event."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_put,
    _pin_runtime_env_uri,
)

from trainyard_runner import leash, ray_package, shipped
from trainyard_runner.head import drivers, durable, inheritance, placing, study
from trainyard_runner.head.gate import SmokeGate, StopAskedError
from trainyard_runner.head.holdings import Holdings
from trainyard_runner.head.job_log import JobLog
from trainyard_runner.head.outcome import BUG, OUTSIDE, SMOKE_FAILED, Outcome, of_tasks
from trainyard_runner.head.records import Records
from trainyard_runner.head.scheduler import Scheduler
from trainyard_runner.head.submitting import Submitter
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.head.waiting import Watch
from trainyard_runner.wire import names, plan, shares
from trainyard_runner.wire.check import Check
from trainyard_runner.wire.checkpoint import STORAGE
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.resume import Resume
from trainyard_runner.wire.stream import EventStream

_LAST_WORDS = 0.7


class Stopping:
    """Ray's way to stop a job: SIGTERM now, SIGKILL some seconds later."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._budget = float(os.environ.get("RAY_JOB_STOP_WAIT_TIME_S", "3")) - _LAST_WORDS
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def left(self) -> float | None:
        if self._at is None:
            return None
        return max(0.0, self._at - time.monotonic())

    def asked(self) -> bool:
        return self._at is not None

    def _ask(self, *_: Any) -> None:
        self._at = self._at or time.monotonic() + self._budget


def main(run: str, *, plan_text: bytes, runner_name: str, runner: bytes, started: float) -> int:
    """Run everything; return the exit code."""
    stopping = Stopping()
    the_plan = plan.read(plan_text)
    if the_plan.sweep:
        # While the smoke test goes.
        threading.Thread(target=study.missing, args=[the_plan.sweep["search"]], daemon=True).start()

    logs = Path(ray._private.worker.global_worker.node.get_logs_dir_path())
    directory = logs / names.run_directory(run)
    stream = EventStream(directory)
    try:
        outcome = _run(the_plan, directory, stream, stopping, (runner_name, [ray.put(runner)]))
    except BaseException:
        traceback.print_exc()
        last = traceback.format_exc().strip().splitlines()[-1]
        hint = "This is a bug of trainyard; the job's log has more."
        outcome = Outcome("failed", BUG, error=f"the runner failed: {last[:2000]}", hint=hint)

    stream.write("run-ended", seconds=round(time.time() - started, 3), **outcome.event())
    stream.close()
    _say(f"run {outcome.state}" + (f": {outcome.error}" if outcome.error else ""))
    return outcome.exit


def _run(
    the_plan: plan.Plan,
    directory: Path,
    stream: EventStream,
    stopping: Stopping,
    runner: shipped.Package,
) -> Outcome:
    """Go through a run step by step; the first that ends it says how."""
    # Functions of this module travel by value: on other nodes the package is not there yet.
    ray.cloudpickle.register_pickle_by_value(shipped)
    storage = os.environ.get(STORAGE)
    kept = durable.place(directory, storage)
    _write_start(the_plan, stream, kept)

    if ended := _pass_gate(the_plan, stream, stopping, runner):
        return ended

    the_plan = shares.settled_plan(the_plan, placing.alive())
    if ended := _lacks_packages(the_plan):
        return ended

    sweep = _sweep(the_plan, stream)

    drivers.remove_what_dead_runs_left(lambda text: stream.write("note", text=text))
    scheduler, records = _scheduler(the_plan, directory, stream, runner, sweep, storage)
    if ended := _resume(the_plan, kept, records, stopping):
        return ended

    scheduler.run(stopping.left)
    if sweep:
        is_stopped = not sweep.is_over
    else:
        is_stopped = stopping.asked() and scheduler.counts["stopped"] > 0

    if is_stopped:
        result = sweep.result() if sweep else None
        return Outcome("stopped", 1, counts=scheduler.counts, error=_why_stopped(), sweep=result)

    return of_tasks(the_plan, scheduler.counts, records, sweep)


def _write_start(the_plan: plan.Plan, stream: EventStream, kept: durable.Kept) -> None:
    stream.write(
        "run-started",
        run=the_plan.run,
        job=the_plan.job,
        node_id=ray.get_runtime_context().get_node_id(),
        ray=ray.__version__,
        python=platform.python_version(),
        tasks=len(the_plan.tasks),
        together=the_plan.together,
        cluster=the_plan.cluster,
        checkpoints_at=kept.at,
    )

    if kept.problem:
        stream.write("note", text=kept.problem)


def _lacks_packages(the_plan: plan.Plan) -> Outcome | None:
    package = None
    if the_plan.sweep:
        package = study.missing(the_plan.sweep["search"])
    if package is None:
        return None
    error = f"a sweep needs {package}, and the head's Python ({sys.executable}) has none"
    hint = "Add it to the image's requirements.txt; on a local cluster: pip install cmaes optuna"
    return Outcome("failed", SMOKE_FAILED, error=error, hint=hint)


def _sweep(the_plan: plan.Plan, stream: EventStream) -> Sweep | None:
    spec = the_plan.sweep
    if not spec:
        return None
    opened = study.Study(
        spec, the_plan.study, name=the_plan.job or the_plan.run, write=stream.write
    )
    return Sweep(spec, opened, stream.write)


def _resume(
    the_plan: plan.Plan, kept: durable.Kept, records: Records, stopping: Stopping
) -> Outcome | None:
    """Give tasks what they begin with, if the run goes on from another; return how it ends if that
    cannot be had.
    """
    resume = the_plan.resume
    if not resume:
        return None
    if ended := _inherit(the_plan, resume, records, stopping):
        return ended
    if kept.at:
        # The last checkpoints are there, whether the operator could have them or not.
        for name in [task.name for task in the_plan.tasks if task.name not in resume.skipped]:
            records.adopt(resume.run, name, name)
    return None


def _inherit(
    the_plan: plan.Plan, resume: Resume, records: Records, stopping: Stopping
) -> Outcome | None:
    """Take in what tasks begin with; return how the run ends if that cannot be had."""

    def take(name: str) -> bytes | None:
        part: bytes | None = _internal_kv_get(f"gcs://{name}".encode())
        if part is not None:
            _internal_kv_del(f"gcs://{name}".encode())
        return part

    def check() -> None:
        if stopping.asked():
            raise StopAskedError

    try:
        inheritance.Receiver(the_plan.run, take=take, check=check).receive(resume, records)
    except StopAskedError:
        return Outcome("stopped", 1, counts=_none_begun(the_plan), error=_why_stopped())
    except (inheritance.SilentError, OSError) as error:
        hint = f"Repeat: trainyard train.resume {resume.run}"
        what = f"the checkpoints to begin with did not arrive: {error}"
        return Outcome("failed", OUTSIDE, counts=_none_begun(the_plan), error=what, hint=hint)

    return None


def _why_stopped() -> str:
    if _internal_kv_get(f"gcs://{leash.MARK}".encode()):
        return "stopped by the leash of the cluster"
    return "stopped"


def _pass_gate(
    the_plan: plan.Plan, stream: EventStream, stopping: Stopping, runner: shipped.Package
) -> Outcome | None:
    """Try what must hold before a task starts; return how the run ends if it does not."""
    began = time.monotonic()
    if the_plan.gate.skip:
        return None

    def record(check: Check) -> None:
        stream.write("check", **check.event())

    def note(text: str) -> None:
        stream.write("note", text=text)

    gate = SmokeGate(
        the_plan,
        runner,
        record=record,
        describe=lambda node: stream.write("node", **node),
        note=note,
        stop_asked=stopping.asked,
    )
    try:
        failed = gate.pass_through()
    except StopAskedError:
        return Outcome("stopped", 1, counts=_none_begun(the_plan), error=_why_stopped())

    stream.write("gate", ok=failed is None, seconds=round(time.monotonic() - began, 3))
    _say("gate " + ("passed" if failed is None else f"failed: {failed.name}: {failed.detail}"))
    if failed is None:
        return None

    where = f" on {failed.node}" if failed.node else ""
    error = f"smoke test failed: {failed.name}{where}: {failed.detail}"
    return Outcome(
        "failed", SMOKE_FAILED, counts=_none_begun(the_plan), error=error, hint=failed.hint
    )


class _NodeNames:
    """What nodes are called, those among them that have left."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, node_id: str) -> str:
        """Return a node's name; the beginning of its id where Ray has not told it in time."""
        if node_id not in self._known:
            for node in placing.alive():
                self._known[node.node_id] = node.name
        return self._known.get(node_id, node_id[:8])


class _Sent(NamedTuple):
    """What the operator uploaded, as tasks get it.

    `job` is the package's name with its content in Ray's store, `ray_environment` the runtime_env
    of what a task starts through Ray; `has_own_package`: each attempt has its own package for it.
    """

    job: tuple[str, list[Any]] | None
    ray_environment: dict[str, Any]
    has_own_package: bool


def _sent(the_plan: plan.Plan) -> _Sent:
    if the_plan.package is None:
        return _Sent(None, dict(the_plan.runtime_env or {}), False)

    blobs = {}
    for part in the_plan.package_parts:
        blob = _package(part)
        if not blob:
            raise RuntimeError("the uploaded job is no longer on the cluster")
        blobs[part] = blob

    environment, size = ray_package.environment(
        the_plan.runtime_env, blobs, get=_package, put=_keep
    )
    job = (the_plan.package, [ray.put(b"".join(blobs.values()))])
    return _Sent(job, environment, size <= ray_package.OWN_LIMIT)


def _scheduler(
    the_plan: plan.Plan,
    directory: Path,
    stream: EventStream,
    runner: shipped.Package,
    sweep: Sweep | None,
    storage: str | None,
) -> tuple[Scheduler, Records]:
    sent = _sent(the_plan)
    needed = ray_package.packages(the_plan.runtime_env, sent.ray_environment)
    pins = ray_package.Pins(needed, _pin)
    node_names = _NodeNames()
    records = Records(
        directory,
        stream,
        node=node_names.of(ray.get_runtime_context().get_node_id()),
        node_name=node_names.of,
        each_attempt=the_plan.outputs_each_attempt,
        job_log=JobLog(the_plan.run),
        storage=storage,
    )

    if sweep:
        records.on_metric = sweep.metric

    submitter = Submitter(
        the_plan,
        records,
        runner=runner,
        job=sent.job,
        ray_environment=sent.ray_environment,
        has_own_package=sent.has_own_package,
    )

    watch = Watch(the_plan, Holdings(the_plan.run, directory.parent.parent), stream)
    scheduler = Scheduler(
        the_plan,
        submitter=submitter,
        records=records,
        stream=stream,
        watch=watch,
        pins=pins,
        say=_say,
        sweep=sweep,
    )

    return scheduler, records


def _package(name: str) -> bytes | None:
    content: bytes | None = _internal_kv_get(f"gcs://{name}".encode())
    return content


def _keep(name: str, content: bytes) -> None:
    _internal_kv_put(f"gcs://{name}".encode(), content)


def _pin(uri: str, seconds: int) -> None:
    _pin_runtime_env_uri(uri, expiration_s=seconds)


def _none_begun(the_plan: plan.Plan) -> dict[State, int]:
    """Return the counts of a run that ended before a task of it began."""
    return {"succeeded": 0, "failed": 0, "stopped": len(the_plan.tasks)}


def _say(line: str) -> None:
    """Write a line to the job's log, for whoever looks at Ray's own dashboard."""
    print(line, flush=True, file=sys.stdout)
