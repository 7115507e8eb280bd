"""A running head that would have to go: all runs end with it, so that it must be asked for."""

from __future__ import annotations

from trainyard.errors import RequestError
from trainyard.steps import Step, no

RECREATE = "--recreate"


def step(error: RequestError, *, title: str) -> Step:
    """Return the step that stops there, before anything is changed; a plan shows it and all that
    would follow.
    """

    def refuse() -> None:
        raise error

    detail = f"needs {RECREATE}, which ends everything on the cluster: {error.where}"
    return Step("replace-head", title, done=lambda: no(detail), do=refuse, needs=RECREATE)
