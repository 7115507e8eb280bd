"""Prepare train.resume: choose the tasks to run again, and the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainyard_runner.wire.resume import Resume

from trainyard.dispatch import resume
from trainyard.dispatch.checkpoints import elsewhere
from trainyard.dispatch.follow import Screen
from trainyard.dispatch.plan import Prepared
from trainyard.errors import Problem, RequestError
from trainyard.operations import new_run, runs
from trainyard.operations.cluster import Cluster
from trainyard.paths import Here
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.compare import flattened
from trainyard.results.store import RunDirectory
from trainyard.spec.secrets import HIDDEN
from trainyard.spec.show import as_yaml
from trainyard.spec.yaml_source import compose
from trainyard.wording import named

_CLUSTER = "cluster."


def ready(
    run: RunDirectory,
    file: str | None,
    *,
    here: Here,
    overrides: Sequence[str],
    backend: str | None,
    screen: Screen,
) -> tuple[Prepared, Cluster]:
    """Prepare a run of the tasks that did not succeed in `run`.

    The job's directory is read as it is now. The run's recorded flags apply,
    then `overrides`. With `file`, the new run uses that cluster, and recorded
    flags for the former cluster are left out. Raises RequestError.
    """
    _refuse_unfit(run, here)
    record = run.record()
    before, backend = recorded_flags(run, file, backend=backend)
    _refuse_hidden(run, before, overrides)

    prepared, cluster = new_run.ready(
        record["job_directory"],
        [file or record["cluster_file"]],
        here=here,
        overrides=[*before, *overrides],
        backend=backend,
    )
    return resumed(run, prepared, here=here, cluster=cluster.spec.name, screen=screen), cluster


def resumed(
    run: RunDirectory,
    prepared: Prepared,
    *,
    here: Here,
    cluster: str,
    screen: Screen,
) -> Prepared:
    """Return the job as a continuation of a former run.

    Tasks that succeeded there are skipped. The others begin with the former
    run's checkpoints and outputs, which are fetched first. If the former run
    was on `cluster`, too, checkpoints on that cluster's storage are used.
    Raises RequestError for an active run, a sweep, and a run whose tasks all
    succeeded.
    """
    _refuse_unfit(run, here)
    state = states.load(run)
    names = [task.name for task in prepared.tasks]
    done = []
    for name in names:
        if name in state.tasks and state.tasks[name].state in ("succeeded", "skipped"):
            done.append(name)

    if len(done) == len(names):
        what = f"all tasks of run {run.name} succeeded: there is nothing to resume"
        hint = f"To run all tasks again: trainyard train.dispatch {run.record()['job_directory']}"
        raise RequestError(what, hint=hint)

    # With `together: true`, all tasks run again, even those that succeeded.
    skipped = () if prepared.job.together else tuple(done)
    open_tasks = [name for name in names if name not in skipped]
    if not store.read_only.get():
        runs.fetch_to_resume(run, open_tasks, here=here, screen=screen)

    inherited = []
    for name in open_tasks:
        left = resume.inherited(run, name, each_attempt=prepared.job.outputs_each_attempt)
        if left.checkpoint or left.outputs:
            inherited.append(left)

    changed = _changed(run, prepared)
    if changed:
        screen.note(f"the job file has changed since run {run.name}: {named(changed, most=6)}")

    on_storage: tuple[str, ...] = ()
    if state.checkpoints_at is not None and state.cluster == cluster:
        on_storage = tuple(task.name for task in elsewhere(run, state) if task.name in open_tasks)

    plan = Resume(run.name, skipped, tuple(inherited))
    return replace(prepared, resumed=resume.Resumed(run, plan, on_storage))


def recorded_flags(
    run: RunDirectory, file: str | None, *, backend: str | None
) -> tuple[list[str], str | None]:
    """Return the `--set` values and the backend that apply to a run again.

    `file` and `backend` are those of this command. With `file`, flags for the
    former cluster are left out.
    """
    flags = run.record().get("flags") or {}
    before = list(flags.get("set") or ())
    if file:
        return [text for text in before if not text.startswith(_CLUSTER)], backend
    return before, backend or flags.get("backend")


def flags_of_job(run: RunDirectory) -> list[str]:
    """Return a run's `--set` values for its job. Raises RequestError."""
    before = (run.record().get("flags") or {}).get("set") or ()
    of_job = [text for text in before if not text.startswith(_CLUSTER)]
    _refuse_hidden(run, of_job, ())
    return of_job


def flags_of_cluster(
    run: RunDirectory, file: str | None, *, overrides: Sequence[str], backend: str | None
) -> tuple[list[str], str | None]:
    """Return `recorded_flags` without those of the job. Raises RequestError."""
    before, backend = recorded_flags(run, file, backend=backend)
    of_cluster = [text for text in before if text.startswith(_CLUSTER)]
    _refuse_hidden(run, of_cluster, overrides)
    return of_cluster, backend


def _refuse_unfit(run: RunDirectory, here: Here) -> None:
    if run.record().get("tune"):
        hint = f"Resume it: trainyard tune.resume {run.name}"
        raise RequestError(f"run {run.name} is a sweep", where=str(run.path), hint=hint)
    runs.refuse_active(run, here, stop="train.stop")


def _refuse_hidden(run: RunDirectory, before: Sequence[str], overrides: Sequence[str]) -> None:
    """Raise RequestError unless each secret `--set` is repeated.

    Secrets are not recorded. `before` are recorded values of `--set`,
    `overrides` those of this command.
    """
    given = {text.partition("=")[0] for text in overrides}
    paths = [text.partition("=")[0] for text in before if HIDDEN in text]
    missing = [path for path in paths if path not in given]
    if not missing:
        return
    problems = [Problem(f"--set {path}", "is missing: give it again") for path in missing]
    area = "tune" if run.record().get("tune") else "train"
    raise RequestError(
        f"run {run.name} was dispatched with secrets, which are not written down",
        problems=tuple(problems),
        hint=f"trainyard {area}.resume {run.name} --set {missing[0]}=VALUE",
    )


def _changed(run: RunDirectory, prepared: Prepared) -> list[str]:
    """Say which keys of the job file have changed since the former run.

    Keys that a `--set` gives are left out.
    """
    before = _values(run.job_file.read_text(encoding="utf-8"))
    after = _values(as_yaml(prepared.job))
    given = [text.partition("=")[0] for text in prepared.overrides]
    changed = []
    for path in {**before, **after}:
        is_given = any(path == name or path.startswith(f"{name}.") for name in given)
        if before.get(path) != after.get(path) and not is_given:
            was = before.get(path, "not set")
            changed.append(f"{path} was {was}, is {after.get(path, 'not set')}")
    return changed


def _values(job_file: str) -> dict[str, Any]:
    return dict(flattened(compose(job_file, origin="job.yaml").value))
