"""A job that is ready to be sent: its files, its plan, and the run's record.

The record (run.json) is enough to run the job again a year later.
"""

from __future__ import annotations

import datetime
import getpass
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainyard_runner.wire.plan import Gate, Plan, Task

from trainyard import __version__
from trainyard.dispatch import checkpoints, known_commands, modules
from trainyard.dispatch.package import Listing, Package, Packages, SentFile, listing, sent_file
from trainyard.dispatch.resume import Resumed
from trainyard.dispatch.wheels import WHEELS, wheels_of
from trainyard.endpoint import Endpoint
from trainyard.errors import Problem, RequestError
from trainyard.results import formats
from trainyard.seams.git import revision
from trainyard.spec.cluster import LoadedCluster
from trainyard.spec.expand import expand, sweep
from trainyard.spec.job import JobSpec
from trainyard.spec.secrets import typed_without_secrets
from trainyard.versions import RUNNER_PROTOCOL
from trainyard.wording import counted, named


@dataclass(frozen=True)
class Prepared:
    """A job and its cluster, checked, before anything is sent.

    `files` and `wheels` are sent as separate packages, because Ray installs the
    wheels. A directory among `wheels` is a Python package whose wheel is still
    to be built. For a sweep that continues another, `study` is the former
    sweep's journal and `former` its run. `resumed` is the run that a job
    without `tune` resumes. `overrides` (`--set`) and `backend` are the flags as
    typed.
    """

    cluster: LoadedCluster
    job: JobSpec
    tasks: tuple[Task, ...]
    files: Listing
    wheels: tuple[Path, ...]
    study: str = ""
    former: str = ""
    resumed: Resumed | None = None
    overrides: tuple[str, ...] = ()
    backend: str | None = None


def prepare(cluster: LoadedCluster, job: JobSpec, directory: Path) -> Prepared:
    """List the tasks of a job and the files to send; nothing is built or sent.

    Raises RequestError with each missing file, wheel or module, each file whose
    name is taken, and each command that is known to fail as a task.
    """
    found = listing(directory)
    tasks = expand(job)
    # A sweep's tasks are made during the run, but their command is known.
    if job.tune:
        commands = {"trial": job.command or ()}
    else:
        commands = {task.name: task.command for task in tasks}

    problems = list(known_commands.problems(commands))
    problems += modules.problems(job.runtime_env.py_modules, found.directory)
    extra = _extra_files(found, job.runtime_env.files, problems)
    wheels = wheels_of(job.runtime_env, found.directory, problems)

    if problems:
        raise RequestError(f"job {job.name} cannot be sent as it is", problems=tuple(problems))

    files = tuple(sorted((*found.files, *extra.files), key=lambda file: file.name))
    empty = (*found.empty_directories, *extra.empty_directories)
    sent = replace(found, files=files, empty_directories=empty)
    return Prepared(cluster, job, tasks, sent, wheels)


def described(prepared: Prepared) -> Iterator[str]:
    """Yield lines for users: the job, what is sent, and what is left out."""
    yield f"job {prepared.job.name} on cluster {prepared.cluster.spec.name}: {_extent(prepared)}"
    if prepared.resumed:
        yield prepared.resumed.described(len(prepared.tasks))
    listed = prepared.files
    yield f"sends {counted(len(listed.files), 'file')}, {formats.size(listed.size)}"
    if prepared.wheels:
        line = f"sends {counted(len(prepared.wheels), 'wheel')}"
        packages = [path.name for path in prepared.wheels if path.is_dir()]
        if packages:
            line += f", built here: {named(packages, most=6)}"
        yield line
    if listed.left_out:
        left_out = [f"{path.name} ({path.by})" for path in listed.left_out]
        yield f"left out: {named(left_out, most=6)}"


def build(
    run: str,
    endpoint: Endpoint,
    prepared: Prepared | None = None,
    packages: Packages | None = None,
    *,
    skip_gate: bool = False,
) -> bytes:
    """Return the runner's plan as JSON; without `prepared`, it has no tasks."""
    gate = Gate(
        skip=skip_gate,
        simulated_gpus=endpoint.simulated_gpus,
        nodes=endpoint.expected,
        ray=endpoint.ray_version,
        names_change=endpoint.names_change,
    )
    plan = Plan(run, endpoint.cluster, gate)
    if prepared and packages:
        plan = _with_job(plan, prepared, packages)
    return json.dumps(asdict(plan), separators=(",", ":")).encode()


def _with_job(plan: Plan, prepared: Prepared, packages: Packages) -> Plan:
    job = prepared.job
    return replace(
        plan,
        gate=replace(plan.gate, needs=job.smoke.model_dump()),
        job=job.name,
        package=packages.job.name,
        package_parts=packages.job.parts,
        runtime_env=_runtime_env(job, packages),
        together=job.together,
        tasks=prepared.tasks,
        outputs_each_attempt=job.outputs_each_attempt,
        outputs_limit=job.outputs_limit,
        outputs_every=job.outputs_every,
        sweep=sweep(job),
        study=prepared.study,
        former=prepared.former,
        resume=prepared.resumed.plan if prepared.resumed else None,
    )


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
    """Return the content of run.json; `ray` is the cluster's Ray version."""
    spec = prepared.cluster.spec
    return {
        "run": run,
        "job": prepared.job.name,
        "cluster": spec.name,
        "backend": spec.backend,
        "started": now.isoformat(timespec="milliseconds"),
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
        "command": typed_without_secrets(command),
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
            "left_out_count": len(prepared.files.left_out),
        },
        "tasks": [task.name for task in prepared.tasks],
        "flags": {"set": typed_without_secrets(prepared.overrides), "backend": prepared.backend},
        "resumes": _resumes(prepared),
        "checkpoints": checkpoints.which(prepared.job),
        "outputs_limit": prepared.job.outputs_limit,
        "tune": prepared.job.tune and prepared.job.tune.model_dump(mode="json", exclude_none=True),
    }


def _resumes(prepared: Prepared) -> dict[str, Any] | None:
    if prepared.former:
        return {"run": prepared.former, "skipped": [], "from_checkpoint": []}
    if prepared.resumed:
        return prepared.resumed.record()
    return None


def _extent(prepared: Prepared) -> str:
    tune = prepared.job.tune
    if tune is None:
        return counted(len(prepared.tasks), "task")
    if tune.samples:
        tried = f"at most {counted(tune.samples, 'configuration')}"
    else:
        tried = "configurations"
    return (
        f"{tried} of {', '.join(tune.space)}, {counted(tune.repeats, 'task')} each, searched "
        f"by {tune.search}"
    )


def _extra_files(found: Listing, names: Sequence[str], problems: list[Problem]) -> Listing:
    """Return the files of `runtime_env.files` that `found` lacks.

    Wrong names are added to `problems`. An ignored file below the job directory
    keeps its path. Any other file or directory is put at the top of the job
    directory, under its own name.
    """
    taken = {file.name for file in found.files}
    tops = {name.split("/", 1)[0] for name in taken}
    files: list[SentFile] = []
    empty: list[str] = []

    for index, name in enumerate(names):
        path = _own_path(found.directory / name)
        inside = path.is_relative_to(found.directory)
        if inside:
            place = path.relative_to(found.directory).as_posix()
        else:
            place = path.name

        where = f"runtime_env.files.{index}"
        if not path.exists():
            problems.append(Problem(where, f"no such file or directory: {name}"))
        elif not inside and place in tops:
            problems.append(Problem(where, f"the job directory has a {place!r} already"))
        else:
            tops.add(place)
            placed = _placed(path, place)
            files += [file for file in placed.files if file.name not in taken]
            for directory in placed.empty_directories:
                if directory not in found.empty_directories:
                    empty.append(directory)

    return Listing(found.directory, tuple(files), (), tuple(empty))


def _own_path(path: Path) -> Path:
    """Resolve the directories above a path; a link keeps its own name."""
    if path.name == "..":
        return path.resolve()
    return path.parent.resolve() / path.name


def _placed(path: Path, place: str) -> Listing:
    if not path.is_dir():
        return Listing(path.parent, (sent_file(path, place),), ())
    found = listing(path)
    files = tuple(replace(file, name=f"{place}/{file.name}") for file in found.files)
    if files or found.empty_directories:
        names = [f"{place}/{name}" for name in found.empty_directories]
    else:
        names = [place]
    return Listing(path, files, (), tuple(names))


def _runtime_env(job: JobSpec, sent: Packages) -> dict[str, Any] | None:
    """Return the job's runtime environment in Ray's form, None if it is empty.

    `working_dir` is the package with the wheels, because Ray looks for wheels
    there.
    """
    declared = job.runtime_env
    env: dict[str, Any] = {}
    packages = [f"{WHEELS}{path.name}" for path in sent.wheel_files]
    packages += [name for name in (*declared.uv, *declared.pip) if not name.startswith(WHEELS)]
    if packages:
        installer = "pip" if declared.pip else "uv"
        if declared.install_options:
            env[installer] = {"packages": packages, **declared.install_options}
        else:
            env[installer] = packages

    if sent.wheels:
        env["working_dir"] = f"gcs://{sent.wheels.parts[0]}"
    if sent.modules:
        env["py_modules"] = [_address(module) for module in sent.modules]
    if declared.conda:
        env["conda"] = declared.conda
    if declared.env_vars:
        env["env_vars"] = dict(declared.env_vars)
    if env and declared.config:
        env["config"] = dict(declared.config)

    return env or None


def _address(module: str | Package) -> str:
    if isinstance(module, str):
        return module
    return f"gcs://{module.parts[0]}"
