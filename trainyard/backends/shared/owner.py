"""The owner of a cluster: a name on what is made of it, by which others see that it is not
theirs.
"""

from __future__ import annotations

import getpass
import platform
from collections.abc import Mapping

from trainyard.errors import RequestError
from trainyard.steps import Step, no

VARIABLE = "TRAINYARD_OWNER"
ADOPT = "--adopt"


def given(environ: Mapping[str, str]) -> str:
    return environ.get(VARIABLE, "")


def current(environ: Mapping[str, str]) -> str:
    """Return who we are to others: $TRAINYARD_OWNER, else user and host."""
    return given(environ) or f"{getpass.getuser()}@{platform.node()}"


def refused(cluster: str, theirs: str, *, ours: str, command: str) -> RequestError:
    """Return the error for a command that would change or end the cluster of somebody else."""
    return RequestError(
        f"cluster {cluster} belongs to {theirs}",
        where=f"you are {ours}",
        hint="Ask them, or give yours another name (`name:` in its file). If it is yours on "
        "another machine: "
        f"export {VARIABLE}={theirs}. To take it over: trainyard {command} --adopt",
    )


def step(error: RequestError) -> Step:
    """Return the step that stops there, before anything is changed; a plan shows it and all that
    would follow.
    """

    def refuse() -> None:
        raise error

    detail = f"needs {ADOPT}: {error.what}, {error.where}"
    title = "Change a cluster of somebody else"
    return Step("foreign-cluster", title, done=lambda: no(detail), do=refuse, needs=ADOPT)
