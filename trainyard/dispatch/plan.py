"""What the runner is told, and what stays here of it: who ran what, from where, with which versions.

The record is enough to say a year later what ran, and to run it again.
"""

from __future__ import annotations

import datetime
import getpass
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainyard import __version__
from trainyard.dispatch.package import Package
from trainyard.dispatch.prepare import Prepared
from trainyard.endpoint import Endpoint
from trainyard.seams.git import revision
from trainyard.spec.expand import TaskSpec
from trainyard.spec.fields import HIDDEN, SECRET_NAME
from trainyard.spec.job import JobSpec
from trainyard.versions import RUNNER_PROTOCOL

# How long a task has between SIGTERM and SIGKILL, in seconds. Ray gives the runner itself RAY_JOB_STOP_WAIT_TIME_S.
STOP_GRACE = 5
_OUTPUTS = ("outputs_each_attempt", "outputs_limit", "outputs_every")


def build(
    run: str,
    endpoint: Endpoint,
    *,
    job: JobSpec | None = None,
    tasks: Sequence[TaskSpec] = (),
    package: Package | None = None,
    wheels: Package | None = None,
    skip_gate: bool = False,
) -> bytes:
    """Return the plan as JSON; without a job it is a smoke test and nothing else."""
    document = {
        "version": RUNNER_PROTOCOL,
        "run": run,
        "job": job.name if job else None,
        "cluster": endpoint.cluster,
        "package": package.name if package else None,
        "package_parts": list(package.parts) if package else [],
        "runtime_env": _runtime_env(job, wheels) if job else None,
        "together": bool(job and job.together),
        "tasks": [asdict(task) for task in tasks],
        "gate": {
            "skip": skip_gate,
            "simulated_gpus": endpoint.simulated_gpus,
            "nodes": None if endpoint.expected is None else [asdict(node) for node in endpoint.expected],
            "ray": endpoint.ray_version,
            "needs": job.smoke.model_dump() if job else {},
            "names_change": endpoint.names_change,
        },
        "stop_grace": STOP_GRACE,
        **({name: getattr(job, name) for name in _OUTPUTS} if job else {}),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def record_of(
    prepared: Prepared,
    package: Package,
    *,
    run: str,
    endpoint: Endpoint,
    ray: str,
    now: datetime.datetime,
    command: Sequence[str],
    skip_smoke: bool,
) -> dict[str, Any]:
    """Return run.json; `ray` is the version that answered."""
    spec = prepared.cluster.spec
    return {
        "run": run,
        "job": prepared.job.name,
        "cluster": spec.name,
        "backend": spec.backend,
        "started": now.isoformat(timespec="seconds"),
        "git": revision(prepared.files.directory),
        "image": endpoint.image or spec.image,
        "versions": {
            "trainyard": __version__,
            "python": platform.python_version(),
            "ray": ray,
            "runner_protocol": RUNNER_PROTOCOL,
        },
        "user": getpass.getuser(),
        "host": platform.node(),
        "command": [_without_secret(word) for word in command],
        "directory": str(Path.cwd()),
        "job_directory": str(prepared.files.directory),
        "cluster_file": str(prepared.cluster.source.resolve()),
        "address": endpoint.address,
        "simulated_gpus": endpoint.simulated_gpus,
        "skip_smoke": skip_smoke,
        "sent": {
            "package": package.name,
            "files": len(prepared.files.files),
            "bytes": prepared.files.size,
            "left_out": [left_out.name for left_out in prepared.files.left_out[:1000]],
        },
        "tasks": [task.name for task in prepared.tasks],
    }


def _runtime_env(job: JobSpec, wheels: Package | None) -> dict[str, Any] | None:
    """Return the job's runtime environment in Ray's form, or None if it asks for nothing.

    Wheels are found by Ray through ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}: a package that holds nothing but them.
    """
    declared = job.runtime_env
    made: dict[str, Any] = {}
    by = "pip" if declared.pip and not declared.uv else "uv"
    names = [f"${{RAY_RUNTIME_ENV_CREATE_WORKING_DIR}}/{wheel.rsplit('/', 1)[-1]}" for wheel in declared.wheels]
    packages = [*names, *(declared.pip if by == "pip" else declared.uv)]
    if packages:
        made[by] = packages
    if wheels:
        made["working_dir"] = f"gcs://{wheels.parts[0]}"
    if declared.env_vars:
        made["env_vars"] = dict(declared.env_vars)
    return made or None


def _without_secret(word: str) -> str:
    """Return a word of the command line; of `env.API_TOKEN=x` only the name."""
    name, equals, _ = word.partition("=")
    return f"{name}={HIDDEN}" if equals and SECRET_NAME.search(name) else word
