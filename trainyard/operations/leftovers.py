"""Remove the Ray actors and placement groups that killed runs have left.

Only a Ray driver on the cluster can remove them: a run without tasks is started
for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.errors import NotReadyError
from trainyard.operations import clusters
from trainyard.operations.cluster import Cluster
from trainyard.seams.ray_api import UnreachableError, ray_of
from trainyard.seams.ray_types import Job
from trainyard.steps import YES, Answer, Progress, Step, no, nothing
from trainyard.steps import run as run_steps

# Seconds. A run without tasks takes 2 s, more on a loaded head.
_WITHIN = 60.0


def remove(cluster: Cluster, progress: Progress) -> None:
    """Remove what killed runs left, unless the cluster does not answer."""
    try:
        endpoint = clusters.connect(cluster)
        with ray_of(endpoint) as ray:
            drivers = of_killed_runs(ray.jobs())
            left = ray.left_by(drivers) if drivers else ""
            if not left:
                return

            # Imported here: it loads the dispatch of jobs, which is seldom needed.
            from trainyard.dispatch import smoke

            run = smoke.begin(ray, endpoint, progress, skip_gate=True)

            def gone() -> Answer:
                still = ray.left_by(drivers)
                job = ray.job(run)
                if still or (job and not job.ended):
                    return no(f"still there: {still or 'the job that removes it'}")
                return YES

            title = f"Remove what killed runs left: {left}"
            run_steps([Step("remove-leftovers", title, gone, nothing, deadline=_WITHIN)], progress)
    except (NotReadyError, UnreachableError):
        return


def of_killed_runs(jobs: Sequence[Job]) -> frozenset[str]:
    """Return Ray's numbers of ended drivers whose runs are not active."""
    active = {job.submission_id for job in jobs if not job.ended}
    drivers = set()
    for job in jobs:
        if job.ended and job.belongs_to and job.belongs_to.run not in active:
            drivers.add(job.driver)
    return frozenset(drivers)
