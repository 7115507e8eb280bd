"""A job that may be sent: some node of its cluster can run each task, and what travels is known, also in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import trainyard_runner

from trainyard import backends
from trainyard.dispatch.package import Listing, Package, SentFile, listing, pack
from trainyard.errors import Problem, RequestError
from trainyard.results import formats
from trainyard.seams.ray_api import PART_LIMIT
from trainyard.spec.cluster import ClusterSpec, LoadedCluster, NodeSpec
from trainyard.spec.expand import TaskSpec, expand
from trainyard.spec.job import JobSpec
from trainyard.wording import counted, did_you_mean, named


@dataclass(frozen=True)
class Prepared:
    """A job and the cluster it is meant for, checked against each other; nothing has been sent.

    `files` and `wheels` are what is to be sent, apart because Ray itself has to find wheels.
    """

    cluster: LoadedCluster
    job: JobSpec
    tasks: tuple[TaskSpec, ...]
    files: Listing
    wheels: Listing | None


def prepare(cluster: LoadedCluster, job: JobSpec, directory: Path) -> Prepared:
    """Check a job against its cluster and list what would be sent. Raises RequestError."""
    tasks = expand(job)
    check_fits(cluster.spec, job, tasks)
    return Prepared(cluster, job, tasks, *_sending(directory, job))


def described(prepared: Prepared) -> Iterator[str]:
    """Yield lines that say what is sent, how much it is, and what stays here because of which ignore file."""
    yield f"job {prepared.job.name} on cluster {prepared.cluster.spec.name}: {counted(len(prepared.tasks), 'task')}"
    listed = prepared.files
    yield f"sends {counted(len(listed.files), 'file')}, {formats.size(listed.size)}"
    if wheels := prepared.wheels:
        yield f"sends {counted(len(wheels.files), 'wheel')}, {formats.size(wheels.size)}"
    if listed.left_out:
        yield f"left out: {named([f'{path.name} ({path.by})' for path in listed.left_out], most=6)}"


def _sending(directory: Path, job: JobSpec) -> tuple[Listing, Listing | None]:
    """List what a job sends. Raises RequestError naming every extra file or wheel that is missing or in the way."""
    found = listing(directory)
    problems: list[Problem] = []
    extra = _extra_files(found, job.runtime_env.files, problems)
    wheels = _wheels(found.directory, job.runtime_env.wheels, problems)
    if problems:
        raise RequestError(f"job {job.name} names files that cannot be sent", problems=tuple(problems))
    files = tuple(sorted((*found.files, *extra), key=lambda file: file.name))
    return replace(found, files=files), Listing(found.directory, wheels, ()) if wheels else None


def runner_package() -> Package:
    found = listing(Path(trainyard_runner.__file__).parent)
    sources = tuple(file for file in found.files if file.name.endswith(".py"))
    return pack(replace(found, files=sources), prefix="trainyard_runner/")


def _extra_files(found: Listing, names: Sequence[str], problems: list[Problem]) -> list[SentFile]:
    """Return the files of `runtime_env.files` that the listing lacks.

    What lies in the job directory keeps its place (an ignore file left it out); anything else lands at the top of the
    job under its own last name.
    """
    taken = {file.name for file in found.files}
    tops = {name.split("/", 1)[0] for name in taken}
    extra: list[SentFile] = []
    for index, name in enumerate(names):
        path = (found.directory / name).resolve()
        inside = path.is_relative_to(found.directory)
        place = path.relative_to(found.directory).as_posix() if inside else path.name
        if not path.exists():
            problems.append(Problem(f"runtime_env.files.{index}", f"no such file or directory: {name}"))
        elif not inside and place in tops:
            problems.append(Problem(f"runtime_env.files.{index}", f"the job directory has a {place!r} already"))
        else:
            tops.add(place)
            extra += [file for file in _placed(path, place) if file.name not in taken]
    return extra


def _placed(path: Path, place: str) -> list[SentFile]:
    if path.is_dir():
        return [replace(file, name=f"{place}/{file.name}") for file in listing(path).files]
    found = path.stat()
    return [SentFile(place, path, found.st_size, executable=bool(found.st_mode & 0o100))]


def _wheels(directory: Path, names: Sequence[str], problems: list[Problem]) -> tuple[SentFile, ...]:
    wheels: list[SentFile] = []
    for index, name in enumerate(names):
        path = directory / name
        if path.suffix != ".whl" or not path.is_file():
            problems.append(Problem(f"runtime_env.wheels.{index}", f"no such wheel file: {name}"))
        else:
            wheels.append(SentFile(path.name, path, path.stat().st_size))
    size = sum(wheel.size for wheel in wheels)
    if size >= PART_LIMIT:
        problems.append(
            Problem("runtime_env.wheels", f"{formats.size(size)} in all, at most {formats.size(PART_LIMIT)}")
        )
    return tuple(wheels)


def check_fits(cluster: ClusterSpec, job: JobSpec, tasks: Sequence[TaskSpec]) -> None:
    """Raise RequestError when a task can never run on the nodes that the cluster file declares.

    What a file leaves open (cpus of a node, every node of an existing cluster) is not judged here.
    """
    if not backends.named(cluster.backend).TRAITS.makes_nodes:
        return
    problems = dict.fromkeys(problem for task in tasks for problem in _misfits(cluster, task))
    if problems:
        raise RequestError(
            f"job {job.name} can never run on cluster {cluster.name}",
            problems=tuple(problems),
            hint="Change `resources` or `node` in the job file, or the nodes in the cluster file.",
        )


def _misfits(cluster: ClusterSpec, task: TaskSpec) -> Iterator[Problem]:
    nodes = _possible_nodes(cluster)
    groups = sorted({node.group for node in nodes})
    named = [node for node in nodes if _is_called(cluster, node, task.node_name)]
    allowed = [node for node in named if task.node_group in (None, node.group)]
    if not named:
        known = _known(task.node_name, [node.name for node in nodes])
        yield Problem("node.name", f"no node is called {task.node_name!r}{known}")
    elif task.node_group not in (None, *groups):
        yield Problem("node.group", f"no group is called {task.node_group!r}{_known(task.node_group, groups)}")
    elif not any(_holds(node, task) for node in allowed):
        needed = _resources(task.cpus, task.gpus, task.memory)
        offered = sorted({f"{node.group}: {_resources(node.cpus, node.gpus, node.memory)}" for node in allowed})
        yield Problem("resources", f"a task needs {needed}, but no node has that much ({'; '.join(offered)})")


def _possible_nodes(cluster: ClusterSpec) -> tuple[NodeSpec, ...]:
    """Return every node that may ever exist: a group that grows counts with its maximum."""
    growing = [
        NodeSpec(f"{group.name}-{index}", group.name, group.cpus, group.memory, group.gpus)
        for group in cluster.workers
        for index in range(group.least, max(group.least, group.max or 0))
    ]
    return (*cluster.nodes(), *growing)


def _is_called(cluster: ClusterSpec, node: NodeSpec, name: str | None) -> bool:
    """Say whether a name may be this node's: where names change it begins with the group, the rest is made up there."""
    if name is None or name == node.name:
        return True
    names_change = backends.named(cluster.backend).TRAITS.names_change
    return names_change and node.name != "head" and name.startswith(f"{node.group}-")


def _holds(node: NodeSpec, task: TaskSpec) -> bool:
    pairs = ((task.cpus, node.cpus), (task.gpus, node.gpus), (task.memory or 0, node.memory))
    return all(has is None or needs <= has for needs, has in pairs)


def _resources(cpus: float | None, gpus: float, memory: int | None) -> str:
    parts = [f"{cpus:g} CPU" if cpus is not None else "CPUs of its host", f"{gpus:g} GPU"]
    return ", ".join([*parts, *([f"{memory / 2**30:.3g} GiB"] if memory is not None else [])])


def _known(wrong: str | None, names: Sequence[str]) -> str:
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{did_you_mean(wrong or '', names)} (there are: {listed})"
