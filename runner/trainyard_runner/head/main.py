"""The head's side of a run, from the smoke test to the last event."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from trainyard_runner import leash, ray_package, shipped
from trainyard_runner.head import drivers, durable, inheritance, placing, study
from trainyard_runner.head.gate import SmokeGate, StopAskedError
from trainyard_runner.head.holdings import Holdings
from trainyard_runner.head.job_log import JobLog
from trainyard_runner.head.outcome import BUG, OUTSIDE, SMOKE_FAILED, of_tasks
from trainyard_runner.head.records import Records
from trainyard_runner.head.scheduler import Scheduler
from trainyard_runner.head.submitting import Sent, Submitter
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.head.waiting import WaitingWatch
from trainyard_runner.wire import names, plan, shares, space
from trainyard_runner.wire.events import GateEnded, Note, RunEnded, RunStarted
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.resume import Resume
from trainyard_runner.wire.stream import EventStream
from trainyard_runner.wire.text import last_line

# Seconds before Ray's SIGKILL that are reserved for the run's last events.
_LAST_WORDS = 0.7


class Stopping:
    """Ray's request to stop the job by SIGTERM.

    SIGKILL follows after RAY_JOB_STOP_WAIT_TIME_S seconds, 3 by default.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._budget = float(os.environ.get("RAY_JOB_STOP_WAIT_TIME_S", "3")) - _LAST_WORDS
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def left(self) -> float | None:
        """Return the seconds left after a request to stop; None before one."""
        if self._at is None:
            return None
        return max(0.0, self._at - time.monotonic())

    def asked(self) -> bool:
        return self._at is not None

    def _ask(self, *_: Any) -> None:
        self._at = self._at or time.monotonic() + self._budget


def main(run: str, *, plan_text: bytes, runner_name: str, runner: bytes, started: float) -> int:
    """Run a plan to its end, even if the runner fails; return the exit code.

    `runner`: the content of the runner's package. `started`: when the run
    began, in seconds since 1970.
    """
    stopping = Stopping()
    the_plan = plan.read(plan_text)
    if the_plan.sweep:
        # Importing Optuna takes long: a thread does it during the smoke test.
        threading.Thread(target=study.missing, args=[the_plan.sweep["search"]], daemon=True).start()

    logs = Path(ray._private.worker.global_worker.node.get_logs_dir_path())
    directory = logs / names.run_directory(run)
    stream = EventStream(directory)
    try:
        outcome = _run(the_plan, directory, stream, stopping, (runner_name, [ray.put(runner)]))
    except BaseException:
        traceback.print_exc()
        last = last_line(traceback.format_exc())[:2000]
        hint = "This is a bug of trainyard; the job's log has more."
        error = f"the runner failed: {last}"
        outcome = RunEnded("failed", BUG, counts={}, error=error, hint=hint)

    stream.write(replace(outcome, seconds=round(time.time() - started, 3)))
    stream.close()
    why = f": {outcome.error}" if outcome.error else ""
    _say(f"run {outcome.state}{why}")
    return outcome.exit


def _run(
    the_plan: plan.Plan,
    directory: Path,
    stream: EventStream,
    stopping: Stopping,
    runner: shipped.Package,
) -> RunEnded:
    """Run all steps until one fails or is stopped; return how the run ended."""
    # Ray sends functions of `shipped` by value: other nodes do not have this package yet.
    ray.cloudpickle.register_pickle_by_value(shipped)
    storage = os.environ.get(names.STORAGE)
    kept = durable.place(directory, storage)
    _write_start(the_plan, stream, kept)

    if ended := _pass_gate(the_plan, stream, stopping, runner):
        return ended

    the_plan = shares.settled_plan(the_plan, placing.alive())
    if ended := _lacks_packages(the_plan):
        return ended

    sweep = _sweep(the_plan, stream)
    drivers.remove_what_dead_runs_left(lambda text: stream.write(Note(text)))
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
        return RunEnded("stopped", 1, counts=scheduler.counts, error=_why_stopped(), sweep=result)

    return of_tasks(the_plan, scheduler.counts, records, sweep)


def _write_start(the_plan: plan.Plan, stream: EventStream, kept: durable.Kept) -> None:
    begun = RunStarted(
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
    stream.write(begun)
    if kept.problem:
        stream.write(Note(kept.problem))


def _lacks_packages(the_plan: plan.Plan) -> RunEnded | None:
    if not the_plan.sweep:
        return None
    search = the_plan.sweep["search"]
    package = study.missing(search)
    if package is None:
        return None

    error = f"a sweep needs {package}, and the head's Python ({sys.executable}) does not have it"
    needed = " ".join(space.packages(search))
    hint = f"Add it to the image's requirements.txt; on a local cluster: pip install {needed}"
    return RunEnded("failed", SMOKE_FAILED, counts={}, error=error, hint=hint)


def _sweep(the_plan: plan.Plan, stream: EventStream) -> Sweep | None:
    spec = the_plan.sweep
    if not spec:
        return None
    name = the_plan.job or the_plan.run
    opened = study.Study(spec, the_plan.study, name=name, write=stream.write)
    return Sweep(spec, opened, stream.write)


def _resume(
    the_plan: plan.Plan, kept: durable.Kept, records: Records, stopping: Stopping
) -> RunEnded | None:
    """Take over a former run's files; return the last event if that fails."""
    resume = the_plan.resume
    if not resume:
        return None
    if ended := _inherit(the_plan, resume, records, stopping):
        return ended
    if kept.at:
        # The storage may have newer checkpoints than those that the operator sent.
        for task in the_plan.tasks:
            if task.name not in resume.skipped:
                records.adopt(resume.run, task.name, task.name)
    return None


def _inherit(
    the_plan: plan.Plan, resume: Resume, records: Records, stopping: Stopping
) -> RunEnded | None:
    """Receive a former run's files from the operator."""
    store = ray_package.store()

    def take(name: str) -> bytes | None:
        part = store.get(name)
        if part is not None:
            store.delete(name)
        return part

    def check() -> None:
        if stopping.asked():
            raise StopAskedError

    try:
        inheritance.Receiver(the_plan.run, take=take, check=check).receive(resume, records)
    except StopAskedError:
        return RunEnded("stopped", 1, counts=_none_begun(the_plan), error=_why_stopped())
    except (inheritance.SilentError, OSError) as error:
        hint = f"Repeat: trainyard train.resume {resume.run}"
        problem = f"the former run's checkpoints and outputs did not arrive: {error}"
        return RunEnded("failed", OUTSIDE, counts=_none_begun(the_plan), error=problem, hint=hint)

    return None


def _why_stopped() -> str:
    if ray_package.store().get(leash.MARK):
        return "stopped by the leash of the cluster"
    return "stopped"


def _pass_gate(
    the_plan: plan.Plan, stream: EventStream, stopping: Stopping, runner: shipped.Package
) -> RunEnded | None:
    """Run the smoke test, unless the plan skips it."""
    began = time.monotonic()
    if the_plan.gate.skip:
        return None

    gate = SmokeGate(the_plan, runner, write=stream.write, stop_asked=stopping.asked)
    try:
        failed = gate.pass_through()
    except StopAskedError:
        return RunEnded("stopped", 1, counts=_none_begun(the_plan), error=_why_stopped())

    stream.write(GateEnded(failed is None, round(time.monotonic() - began, 3)))
    _say("gate " + ("passed" if failed is None else f"failed: {failed.name}: {failed.detail}"))
    if failed is None:
        return None

    where = f" on {failed.node}" if failed.node else ""
    error = f"smoke test failed: {failed.name}{where}: {failed.detail}"
    return RunEnded(
        "failed", SMOKE_FAILED, counts=_none_begun(the_plan), error=error, hint=failed.hint
    )


class _NodeNames:
    """The names of nodes by id, including nodes that have left since."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, node_id: str) -> str:
        """Return a node's name; for an unknown node, 8 digits of its id."""
        if node_id not in self._known:
            for node in placing.alive():
                self._known[node.node_id] = node.name
        return self._known.get(node_id, node_id[:8])


def _sent(the_plan: plan.Plan) -> Sent:
    if the_plan.package is None:
        return Sent(None, dict(the_plan.runtime_env or {}), False)

    store = ray_package.store()
    blobs = {}
    for part in the_plan.package_parts:
        blob = store.get(part)
        if not blob:
            raise RuntimeError("the uploaded job is no longer on the cluster")
        blobs[part] = blob

    environment, size = ray_package.environment(the_plan.runtime_env, blobs, store)
    job = (the_plan.package, [ray.put(b"".join(blobs.values()))])
    return Sent(job, environment, size <= ray_package.OWN_LIMIT)


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
    pins = ray_package.Pins(needed, ray_package.store().pin)
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

    submitter = Submitter(the_plan, records, runner=runner, sent=sent)
    logs_of_ray = directory.parent.parent
    watch = WaitingWatch(the_plan, Holdings(the_plan.run, logs_of_ray), stream)
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


def _none_begun(the_plan: plan.Plan) -> dict[State, int]:
    return {"succeeded": 0, "failed": 0, "stopped": len(the_plan.tasks)}


def _say(line: str) -> None:
    """Write a line to the job's log, which Ray's dashboard shows."""
    print(line, flush=True, file=sys.stdout)
