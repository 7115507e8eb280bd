"""Who ran what, from where, with which versions: enough to say a year later, and to run it again."""

from __future__ import annotations

import datetime
import getpass
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard import __version__
from trainyard.dispatch.package import Package
from trainyard.dispatch.prepare import Prepared
from trainyard.endpoint import Endpoint
from trainyard.seams.git import revision
from trainyard.spec.fields import HIDDEN, SECRET_NAME
from trainyard.versions import RUNNER_PROTOCOL


@dataclass(frozen=True)
class Request:
    """What `train.dispatch` was asked for, besides the two files."""

    results: Path
    command: Sequence[str]
    directory: Path
    wait: bool = True
    skip_smoke: bool = False


def record_of(
    prepared: Prepared,
    package: Package,
    *,
    run: str,
    endpoint: Endpoint,
    ray: str,
    now: datetime.datetime,
    request: Request,
) -> dict[str, Any]:
    """Return run.json; `ray` is the version that answered."""
    spec = prepared.cluster.spec
    return {
        "run": run,
        "job": prepared.job.name,
        "cluster": spec.name,
        "backend": spec.backend,
        "started": now.isoformat(timespec="seconds"),
        "git": revision(prepared.sending.job.directory),
        "image": endpoint.image or spec.image,
        "versions": {
            "trainyard": __version__,
            "python": platform.python_version(),
            "ray": ray,
            "runner_protocol": RUNNER_PROTOCOL,
        },
        "user": getpass.getuser(),
        "host": platform.node(),
        "command": [_without_secret(word) for word in request.command],
        "directory": str(request.directory),
        "job_directory": str(prepared.sending.job.directory),
        "cluster_file": str(prepared.cluster.source.resolve()),
        "address": endpoint.address,
        "simulated_gpus": endpoint.simulated_gpus,
        "skip_smoke": request.skip_smoke,
        "sent": {
            "package": package.name,
            "files": len(prepared.sending.job.files),
            "bytes": prepared.sending.job.size,
            "left_out": [left_out.name for left_out in prepared.sending.job.left_out[:1000]],
        },
        "tasks": [task.name for task in prepared.tasks],
    }


def _without_secret(word: str) -> str:
    """Return a word of the command line; of `env.API_TOKEN=x` only the name."""
    name, equals, _ = word.partition("=")
    return f"{name}={HIDDEN}" if equals and SECRET_NAME.search(name) else word
