"""The operations of tune.* that differ from those of other runs (runs.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard.dispatch.plan import Prepared
from trainyard.errors import Problem, RequestError
from trainyard.operations import new_run, resume, runs
from trainyard.operations.cluster import Cluster
from trainyard.paths import Here
from trainyard.results.store import RunDirectory

# Keys that define a study: if one changes, values of former trials no longer apply.
_SAME = ("space", "metric", "mode", "objective", "repeats")


def about(run: RunDirectory) -> Mapping[str, Any]:
    """Return the `tune` section of a sweep, or raise RequestError."""
    tune: Mapping[str, Any] | None = run.record().get("tune")
    if tune is None:
        hint = (
            f"See: trainyard train.status {run.name}; to resume it: trainyard train.resume "
            f"{run.name}"
        )
        raise RequestError(
            f"run {run.name} is no sweep: its job has no `tune:`", where=str(run.path), hint=hint
        )
    return tune


def ready_again(
    run: RunDirectory,
    file: str | None,
    *,
    here: Here,
    overrides: Sequence[str],
    backend: str | None,
) -> tuple[Prepared, Cluster]:
    """Prepare a run that continues an ended sweep. Raises RequestError.

    The recorded job file is used, with `overrides`; the job's other files are
    sent as they are now. The run's recorded flags for its cluster apply, unless
    `file` names another one.
    """
    before = about(run)
    runs.refuse_active(run, here, stop="tune.stop")
    if run.study.exists():
        study = run.study.read_text(encoding="utf-8")
    else:
        study = ""

    # A last line without its newline was cut off when the file was fetched.
    study = study[: study.rfind("\n") + 1]
    if not study:
        hint = f"Start it again: trainyard tune.dispatch {run.record()['job_directory']}"
        raise RequestError(
            f"run {run.name} ended before its first configuration", where=str(run.path), hint=hint
        )

    record = run.record()
    of_cluster, backend = resume.flags_of_cluster(run, file, overrides=overrides, backend=backend)
    prepared, cluster = new_run.ready(
        record["job_directory"],
        [file or record["cluster_file"]],
        here=here,
        overrides=[*of_cluster, *overrides],
        backend=backend,
        sweep=True,
        job_file=run.job_file,
    )
    if prepared.job.tune:
        after = prepared.job.tune.model_dump(mode="json", exclude_none=True)
    else:
        after = {}

    changed = [name for name in _SAME if before.get(name) != after.get(name)]
    if changed:
        raise RequestError(
            f"a sweep cannot continue with another {changed[0]}",
            problems=tuple(Problem(f"tune.{name}", f"was {before.get(name)}") for name in changed),
            hint="A sweep that continues may change only `samples`, `time`, `concurrency`, "
            "`prune` and `stop`. To start a new one: trainyard tune.dispatch",
        )

    return replace(prepared, study=study, former=run.name), cluster
