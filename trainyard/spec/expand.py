"""A job's tasks, from the combinations of the matrix or from `tasks`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from trainyard_runner.wire.plan import Task
from trainyard_runner.wire.room import Room
from trainyard_runner.wire.space import fill, text_of

from trainyard.errors import RequestError
from trainyard.spec.job import AMOUNTS, JobSpec, Placement, Resources, TaskEntry


def expand(job: JobSpec) -> tuple[Task, ...]:
    """Return the tasks in the file's order; none for a sweep.

    A sweep chooses its tasks later. The matrix's last key changes fastest.
    Raises RequestError if two tasks have the same name.
    """
    if job.tune is not None:
        return ()
    if job.tasks is not None:
        listed = [_task(job, index, entry, {}) for index, entry in enumerate(job.tasks)]
        return _watched(job, listed)
    tasks = _watched(job, list(_combinations(job)))
    if len({task.name for task in tasks}) < len(tasks):
        raise RequestError(
            f"two tasks of the job {job.name} would have the same name",
            hint="A value is in the matrix twice, or contains ',' and '=': then list these tasks "
            "under `tasks`.",
        )
    return tasks


def sweep(job: JobSpec) -> dict[str, Any] | None:
    """Return the runner's sweep with a template task; None without `tune`."""
    if job.tune is None:
        return None
    entry = TaskEntry.model_construct(name="trial", command=job.command or ())
    task = replace(_task(job, 0, entry, None), watch=job.tune.watch())
    return {**job.tune.document(), "task": asdict(task)}


def _watched(job: JobSpec, tasks: list[Task]) -> tuple[Task, ...]:
    """Give the job's watch to every task.

    In a gang, only the first task gets it: that task writes the metric of all.
    """
    if job.watch is None:
        return tuple(tasks)

    watch = job.watch.model_dump()
    if job.together:
        return (*(replace(task, watch=watch) for task in tasks[:1]), *tasks[1:])
    return tuple(replace(task, watch=watch) for task in tasks)


def _combinations(job: JobSpec) -> Iterator[Task]:
    texts = [list(map(text_of, values)) for values in job.matrix.values()]
    for index, combination in enumerate(itertools.product(*texts)):
        chosen = dict(zip(job.matrix, combination, strict=True))
        name = _printable(",".join(f"{key}={text}" for key, text in chosen.items()) or job.name)
        entry = TaskEntry.model_construct(name=name, command=job.command or ())
        yield _task(job, index, entry, chosen)


def _printable(text: str) -> str:
    return "".join(
        character if character.isprintable() else f"\\x{ord(character):02x}" for character in text
    )


def _task(job: JobSpec, index: int, entry: TaskEntry, values: Mapping[str, str] | None) -> Task:
    """Build a task; the entry's keys win over the job's.

    Without `values`, as in a sweep, placeholders stay.
    """

    def filled(text: str) -> str:
        if values is None:
            return text
        return fill(text, values)

    resources = _merged(job.resources, entry.resources)
    actors = resources.actors
    node = entry.node or job.node or Placement.model_construct()
    retries = entry.retries
    if retries is None:
        retries = job.retries
    outputs = entry.outputs
    if outputs is None:
        outputs = job.outputs

    return Task(
        index=index,
        name=entry.name,
        command=tuple(filled(part) for part in entry.command),
        env={key: filled(text) for key, text in {**job.env, **entry.env}.items()},
        cpus=resources.cpus,
        gpus=resources.gpus,
        memory=resources.memory,
        node_name=node.name,
        node_group=node.group,
        retries=retries,
        timeout=entry.timeout or job.timeout,
        outputs=outputs,
        share=resources.share,
        custom=resources.custom,
        final_exit_codes=job.final_exit_codes,
        actors=Room(actors.cpus, actors.gpus, actors.memory or 0),
    )


def _merged(shared: Resources, own: Resources | None) -> Resources:
    """Override the job's resources with the task's own.

    Resources are either a share of a node, or amounts. If job and task have
    different forms, only `custom` of the job's resources stays.
    """
    if own is None:
        return shared
    written = own.model_fields_set
    replaced = own.share is not None or (shared.share is not None and written & set(AMOUNTS))
    kept = shared
    if replaced:
        kept = Resources(custom=shared.custom)
    return kept.model_copy(update={name: getattr(own, name) for name in written})
