"""A job -> its tasks: one per combination of the matrix, or the list as it stands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainyard_runner.wire.room import NO_ROOM, Room
from trainyard_runner.wire.space import fill

from trainyard.errors import RequestError
from trainyard.spec.job import AMOUNTS, JobSpec, Resources, TaskEntry, scalar_text


@dataclass(frozen=True)
class TaskSpec:
    """One command of a job, with nothing left to look up."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    cpus: float
    gpus: float
    memory: int | None
    node_name: str | None
    node_group: str | None
    retries: int
    timeout: float | None
    outputs: tuple[str, ...]
    watch: Mapping[str, Any] | None = None  # as the file has it, with its defaults
    share: float | None = None
    custom: Mapping[str, float] = field(default_factory=dict)
    actors: Room = NO_ROOM
    final_exit_codes: tuple[int, ...] = ()


def expand(job: JobSpec) -> tuple[TaskSpec, ...]:
    """Return the job's tasks in order: the last key of the matrix changes fastest; those of a sweep
    come later.
    """
    if job.tune is not None:
        return ()
    if job.tasks is not None:
        return _watched(job, [_task(job, entry, {}) for entry in job.tasks])
    tasks = _watched(job, list(_combinations(job)))
    if len({task.name for task in tasks}) < len(tasks):
        raise RequestError(
            f"two tasks of the job {job.name} would have the same name",
            hint="A value is in the matrix twice, or contains ',' and '=': then list these tasks "
            "under `tasks`.",
        )
    return tasks


def sweep(job: JobSpec) -> dict[str, Any] | None:
    """Return the sweep of a job as the runner needs it, with the task that tries a
    configuration.
    """
    if job.tune is None:
        return None
    entry = TaskEntry.model_construct(name="trial", command=job.command or ())
    task = replace(_task(job, entry, None), watch=job.tune.watch())
    return {**job.tune.document(), "task": asdict(task)}


def _watched(job: JobSpec, tasks: list[TaskSpec]) -> tuple[TaskSpec, ...]:
    """Give tasks their watch; of tasks that run together the first writes the metric of all."""
    watch = job.watch.model_dump() if job.watch else None
    return tuple(
        replace(task, watch=watch) if not (job.together and n) else task
        for n, task in enumerate(tasks)
    )


def _combinations(job: JobSpec) -> Iterator[TaskSpec]:
    texts = [[scalar_text(value) for value in values] for values in job.matrix.values()]
    for combination in itertools.product(*texts):
        chosen = dict(zip(job.matrix, combination, strict=True))
        text = ",".join(f"{key}={text}" for key, text in chosen.items()) or job.name
        name = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)
        yield _task(job, TaskEntry.model_construct(name=name, command=job.command or ()), chosen)


def _task(job: JobSpec, entry: TaskEntry, values: Mapping[str, str] | None) -> TaskSpec:
    """Return a task: what its entry says, else what the job says; placeholders stay where there are
    no values.
    """

    def filled(text: str) -> str:
        return text if values is None else fill(text, values)

    resources = _merged(job.resources, entry.resources)
    node = entry.node or job.node
    return TaskSpec(
        name=entry.name,
        command=tuple(filled(part) for part in entry.command),
        env={key: filled(text) for key, text in {**job.env, **entry.env}.items()},
        cpus=resources.cpus,
        gpus=resources.gpus,
        memory=resources.memory,
        node_name=node.name if node else None,
        node_group=node.group if node else None,
        retries=job.retries if entry.retries is None else entry.retries,
        timeout=entry.timeout or job.timeout,
        outputs=job.outputs if entry.outputs is None else entry.outputs,
        share=resources.share,
        custom=resources.custom,
        final_exit_codes=job.final_exit_codes,
        actors=Room(resources.actors.cpus, resources.actors.gpus, resources.actors.memory or 0),
    )


def _merged(shared: Resources, own: Resources | None) -> Resources:
    """Return the job's resources with what the task itself wrote on top; a share and amounts
    replace each other.
    """
    if own is None:
        return shared
    written = own.model_fields_set
    replaced = own.share is not None or (shared.share is not None and written & set(AMOUNTS))
    kept = Resources(custom=shared.custom) if replaced else shared
    return kept.model_copy(update={name: getattr(own, name) for name in written})
