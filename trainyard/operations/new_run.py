"""A new run: find the cluster and the job, check the job, and begin the run.

`tasks`, the Python API, resume and sweeps all call these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trainyard import paths
from trainyard.dispatch import launch, smoke
from trainyard.dispatch.follow import Screen
from trainyard.dispatch.launch import Asked
from trainyard.dispatch.plan import Prepared, described, prepare
from trainyard.dispatch.runs import RunStatus
from trainyard.endpoint import Endpoint
from trainyard.errors import Problem, RequestError
from trainyard.operations import clusters
from trainyard.operations.cluster import Cluster
from trainyard.paths import Here
from trainyard.spec.job import JobSpec
from trainyard.spec.load import load_job
from trainyard.steps import Progress
from trainyard.wording import named

_CLUSTER = "cluster."
_NAMED = 20


def ready(
    job_dir: str,
    files: Sequence[str],
    *,
    here: Here,
    overrides: Sequence[str],
    backend: str | None,
    sweep: bool = False,
    job_file: Path | None = None,
) -> tuple[Prepared, Cluster]:
    """Load both files, and check the job against the cluster.

    An override that begins with `cluster.` is for the cluster file, any other
    for the job file. With `sweep`, the job must be a sweep; without, it must
    not. `job_file` replaces the job.yaml of the job's directory. Raises
    RequestError.
    """
    if len(files) > 1:
        raise RequestError(
            "a run uses one cluster",
            problems=tuple(Problem("-f", file) for file in files),
            hint="Give -f once, and dispatch the job once for each cluster.",
        )

    of_cluster = [text.removeprefix(_CLUSTER) for text in overrides if text.startswith(_CLUSTER)]
    of_job = [text for text in overrides if not text.startswith(_CLUSTER)]
    cluster = clusters.find(
        files[0] if files else None,
        here.environ,
        directory=here.directory,
        overrides=of_cluster,
        backend=backend,
    )

    directory = paths.job_directory(job_dir, directory=here.directory)
    job = load_job(directory, overrides=of_job, file=job_file)
    area = "train" if sweep else "tune"
    other = f"trainyard {area}.dispatch {job_dir}"
    prepared = checked(cluster, job, directory, overrides=of_job, sweep=sweep, other=other)
    # The run's record has all flags in the order typed.
    return replace(prepared, overrides=tuple(overrides)), cluster


def checked(
    cluster: Cluster,
    job: JobSpec,
    directory: Path,
    *,
    overrides: Sequence[str],
    sweep: bool,
    other: str,
) -> Prepared:
    """Check a job against its cluster. Raises RequestError.

    `overrides` are the job's values of `--set`. The result's `overrides`, which
    the run's record keeps, also include the cluster's. `other` is the command
    to suggest if `sweep` does not match the job.
    """
    if cluster.site.overrides:
        clusters.refuse_unmade(cluster)

    if sweep != (job.tune is not None):
        problem = "has no" if sweep else "is a sweep: it has"
        raise RequestError(f"job {job.name} {problem} `tune:`", hint=f"To run it as it is: {other}")

    prepared = prepare(cluster.loaded, job, directory)
    of_cluster = [f"{_CLUSTER}{text}" for text in cluster.site.overrides]
    return replace(prepared, overrides=(*of_cluster, *overrides), backend=cluster.backend_flag)


def preview(prepared: Prepared) -> Iterator[str]:
    """Yield lines for users about a run with `--dry`."""
    yield from described(prepared)
    if prepared.tasks:
        yield f"tasks: {named([task.name for task in prepared.tasks], most=_NAMED)}"
    yield "nothing was sent (--dry)"


def dispatch(
    cluster: Cluster,
    prepared: Prepared,
    asked: Asked,
    *,
    progress: Progress,
    note: Callable[[str], None],
    screen: Screen,
) -> tuple[RunStatus, Endpoint]:
    """Connect to the cluster, send the job and begin its run.

    With `asked.wait`, the run is also followed to its end. `note` shows lines
    about the job and its files before the cluster is contacted.
    """
    note("\n".join(described(prepared)))
    endpoint = clusters.connect(cluster)
    if not asked.skip_smoke:
        smoke.refuse_broken(endpoint)

    now = launch.dispatch(prepared, endpoint, asked, progress=progress, screen=screen)
    return now, endpoint
