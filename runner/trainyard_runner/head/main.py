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
from typing import Any

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
from trainyard_runner.head.job_log import JobLog
from trainyard_runner.head.records import Records
from trainyard_runner.head.scheduler import Scheduler
from trainyard_runner.head.submitting import Submitter
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.head.waiting import Watch
from trainyard_runner.wire import names, plan, shares
from trainyard_runner.wire.check import Check
from trainyard_runner.wire.checkpoint import STORAGE
from trainyard_runner.wire.resume import Resume
from trainyard_runner.wire.stream import EventStream

_LAST_WORDS = 0.7
SMOKE_FAILED, OUTSIDE, BUG = 5, 6, 70


class Stopping:
    """Ray's way to stop a job: SIGTERM now, SIGKILL some seconds later."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._budget = float(os.environ.get("RAY_JOB_STOP_WAIT_TIME_S", "3")) - _LAST_WORDS
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def left(self) -> float | None:
        return None if self._at is None else max(0.0, self._at - time.monotonic())

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
    ending: dict[str, Any] = {"state": "failed", "exit": BUG, "counts": {}, "error": None, "hint": None}
    try:
        ending |= _run(the_plan, directory, stream, stopping, (runner_name, [ray.put(runner)]))
    except BaseException:
        traceback.print_exc()
        last = traceback.format_exc().strip().splitlines()[-1]
        ending |= {
            "error": f"the runner failed: {last[:2000]}",
            "hint": "This is a bug of trainyard; the job's log has more.",
        }
    stream.write("run-ended", seconds=round(time.time() - started, 3), **ending)
    stream.close()
    _say(f"run {ending['state']}" + (f": {ending['error']}" if ending["error"] else ""))
    return int(ending["exit"])


def _run(
    the_plan: plan.Plan, directory: Path, stream: EventStream, stopping: Stopping, runner: shipped.Package
) -> dict[str, Any]:
    # Functions of this module travel by value: on other nodes the package is not there yet.
    ray.cloudpickle.register_pickle_by_value(shipped)
    storage = os.environ.get(STORAGE)
    kept = durable.place(directory, storage)
    _write_start(the_plan, stream, kept)
    try:
        failed = _pass_gate(the_plan, stream, stopping, runner)
    except StopAskedError:
        return {"state": "stopped", "exit": 1, "counts": _all("stopped", the_plan), "error": _why_stopped()}
    if failed is not None:
        where = f" on {failed.node}" if failed.node else ""
        error = f"smoke test failed: {failed.name}{where}: {failed.detail}"
        return {"exit": SMOKE_FAILED, "counts": _all("stopped", the_plan), "error": error, "hint": failed.hint}
    the_plan = shares.settled_plan(the_plan, placing.alive())
    spec = the_plan.sweep
    if spec and (package := study.missing(spec["search"])):
        error = f"a sweep needs {package}, and the head's Python ({sys.executable}) has none"
        hint = "Add it to the image's requirements.txt; on a local cluster: pip install cmaes optuna"
        return {"exit": SMOKE_FAILED, "error": error, "hint": hint}
    opened = spec and study.Study(spec, the_plan.study, name=the_plan.job or the_plan.run, write=stream.write)
    sweep = Sweep(spec, opened, stream.write) if spec and opened else None
    drivers.remove_what_dead_runs_left(lambda text: stream.write("note", text=text))
    scheduler, records = _scheduler(the_plan, directory, stream, runner, sweep, storage)
    if the_plan.resume and (failed_to_begin := _inherit(the_plan, the_plan.resume, records, stopping)):
        return failed_to_begin
    if the_plan.resume and kept.at:
        # The last checkpoints are there, whether the operator could have them or not.
        skipped = the_plan.resume.skipped
        for name in [task.name for task in the_plan.tasks if task.name not in skipped]:
            records.adopt(the_plan.resume.run, name, name)
    scheduler.run(stopping.left)
    return _ending(the_plan, scheduler, records, sweep, stopping)


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


def _ending(
    the_plan: plan.Plan, scheduler: Scheduler, records: Records, sweep: Sweep | None, stopping: Stopping
) -> dict[str, Any]:
    """Return how a run ended that passed the gate."""
    counts = scheduler.counts
    summary: dict[str, Any] = {"counts": counts, **({"sweep": sweep.result()} if sweep else {})}
    if not sweep.is_over if sweep else stopping.asked() and counts["stopped"]:
        return {"state": "stopped", "exit": 1, "error": _why_stopped(), **summary}
    # What a sweep pruned, or what failed in it beside better ones, is no failure.
    problem = sweep.problem() if sweep else None
    if not sweep and (counts["failed"] or counts["stopped"]):
        problem = f"{counts['failed']} of {len(the_plan.tasks)} tasks failed"
    lost = {task: lines[0] for task, lines in records.lost_outputs.items() if lines}
    if problem is None and lost:
        tasks = f"{len(lost)} of {sum(counts.values())} tasks"
        task, line = next(iter(lost.items()))
        problem = f"outputs of {tasks} could not be brought back: {task}: {line}"
    if problem is None and (absent := _absent_everywhere(the_plan, records)):
        problem = f"no task has left the declared output {absent[0]!r}"
    return {"state": "failed" if problem else "succeeded", "exit": 1 if problem else 0, "error": problem, **summary}


def _absent_everywhere(the_plan: plan.Plan, records: Records) -> list[str]:
    """Return declared outputs that none of the tasks that declare them has left; often one of a gang writes them."""
    outputs = dict.fromkeys(output for task in the_plan.tasks for output in task.outputs)
    return [
        output
        for output in outputs
        if all(output in records.absent_outputs.get(task.name, ()) for task in the_plan.tasks if output in task.outputs)
    ]


def _inherit(the_plan: plan.Plan, resume: Resume, records: Records, stopping: Stopping) -> dict[str, Any]:
    """Take in what tasks begin with; return how the run ends if that cannot be had, else nothing."""

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
        return {"state": "stopped", "exit": 1, "counts": _all("stopped", the_plan), "error": _why_stopped()}
    except (inheritance.SilentError, OSError) as error:
        hint = f"Repeat: trainyard train.resume {resume.run}"
        what = f"the checkpoints to begin with did not arrive: {error}"
        return {"exit": OUTSIDE, "counts": _all("stopped", the_plan), "error": what, "hint": hint}
    return {}


def _why_stopped() -> str:
    return "stopped by the leash of the cluster" if _internal_kv_get(f"gcs://{leash.MARK}".encode()) else "stopped"


def _pass_gate(the_plan: plan.Plan, stream: EventStream, stopping: Stopping, runner: shipped.Package) -> Check | None:
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
    failed = gate.pass_through()
    stream.write("gate", ok=failed is None, seconds=round(time.monotonic() - began, 3))
    _say("gate " + ("passed" if failed is None else f"failed: {failed.name}: {failed.detail}"))
    return failed


def _scheduler(
    the_plan: plan.Plan,
    directory: Path,
    stream: EventStream,
    runner: shipped.Package,
    sweep: Sweep | None,
    storage: str | None,
) -> tuple[Scheduler, Records]:
    known: dict[str, str] = {}

    def node_name(node_id: str) -> str:
        if node_id not in known:
            known.update({node.node_id: node.name for node in placing.alive()})
        return known.get(node_id, node_id[:8])

    job, ray_environment, has_own = None, dict(the_plan.runtime_env or {}), False
    if the_plan.package is not None:
        parts = {part: _package(part) for part in the_plan.package_parts}
        if not all(parts.values()):
            raise RuntimeError("the uploaded job is no longer on the cluster")
        blobs = {part: blob for part, blob in parts.items() if blob}
        job = (the_plan.package, [ray.put(b"".join(blobs.values()))])
        ray_environment, size = ray_package.environment(the_plan.runtime_env, blobs, get=_package, put=_keep)
        has_own = size <= ray_package.OWN_LIMIT
    pins = ray_package.Pins(ray_package.packages(the_plan.runtime_env, ray_environment), _pin)
    here = node_name(ray.get_runtime_context().get_node_id())
    records = Records(
        directory,
        stream,
        node=here,
        node_name=node_name,
        each_attempt=the_plan.outputs_each_attempt,
        job_log=JobLog(the_plan.run),
        storage=storage,
    )
    if sweep:
        records.on_metric = sweep.metric
    submitter = Submitter(
        the_plan, records, runner=runner, job=job, ray_environment=ray_environment, has_own_package=has_own
    )
    watch = Watch(the_plan, directory.parent.parent, stream)
    scheduler = Scheduler(
        the_plan, submitter=submitter, records=records, stream=stream, watch=watch, pins=pins, say=_say, sweep=sweep
    )
    return scheduler, records


def _package(name: str) -> bytes | None:
    content: bytes | None = _internal_kv_get(f"gcs://{name}".encode())
    return content


def _keep(name: str, content: bytes) -> None:
    _internal_kv_put(f"gcs://{name}".encode(), content)


def _pin(uri: str, seconds: int) -> None:
    _pin_runtime_env_uri(uri, expiration_s=seconds)


def _all(state: str, the_plan: plan.Plan) -> dict[str, int]:
    return {"succeeded": 0, "failed": 0, "stopped": 0, state: len(the_plan.tasks)}


def _say(line: str) -> None:
    """Write a line to the job's log, for whoever looks at Ray's own dashboard."""
    print(line, flush=True, file=sys.stdout)
