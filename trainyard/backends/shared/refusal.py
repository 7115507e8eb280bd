"""Steps that refuse a change; a plan shows them, and `up` fails at them.

Such a step comes before all steps that change something.
"""

from __future__ import annotations

from trainyard.backends.shared.owner import ADOPT
from trainyard.errors import RequestError
from trainyard.steps import Step, no

RECREATE = "--recreate"


def of_head(error: RequestError, *, title: str) -> Step:
    """Refuse to replace a running head, which would end all runs."""
    detail = f"needs {RECREATE}, which ends everything on the cluster: {error.where}"
    return _step("replace-head", title, error, detail=detail, needs=RECREATE)


def of_another_head(differences: str) -> Step:
    """Refuse a cluster file whose head differs from the running head."""
    error = RequestError(
        "the head in the cluster file is not the head that runs; replacing it ends everything on "
        "the cluster",
        where=differences,
        hint="If that is meant: trainyard cluster.up --recreate",
    )
    return of_head(error, title="Replace the head that runs")


def of_foreign_cluster(error: RequestError) -> Step:
    detail = f"needs {ADOPT}: {error.what}, {error.where}"
    title = "Change another user's cluster"
    return _step("foreign-cluster", title, error, detail=detail, needs=ADOPT)


def _step(id: str, title: str, error: RequestError, *, detail: str, needs: str) -> Step:
    def refuse() -> None:
        raise error

    return Step(id, title, done=lambda: no(detail), do=refuse, needs=needs)
