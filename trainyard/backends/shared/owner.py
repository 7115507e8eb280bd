"""A cluster's owner: a user's name on its objects, for other users to see."""

from __future__ import annotations

import getpass
import platform
import socket
from collections.abc import Mapping
from pathlib import Path

from trainyard.errors import RequestError

VARIABLE = "TRAINYARD_OWNER"
ADOPT = "--adopt"


def given(environ: Mapping[str, str]) -> str:
    return environ.get(VARIABLE, "")


def current(environ: Mapping[str, str]) -> str:
    return given(environ) or f"{getpass.getuser()}@{platform.node()}"


def of_directory(environ: Mapping[str, str], state: Path) -> str:
    return given(environ) or f"{socket.gethostname()}:{state.parent.absolute()}"


def refused(cluster: str, theirs: str, *, ours: str, command: str) -> RequestError:
    return RequestError(
        f"cluster {cluster} belongs to {theirs}",
        where=f"you are {ours}",
        hint="Ask them, or rename your cluster (`name:` in its file). If it is yours on another "
        f"machine: export {VARIABLE}={theirs}. To take it over: trainyard {command} --adopt",
    )
