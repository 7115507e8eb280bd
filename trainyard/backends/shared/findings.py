"""Findings of several backends: a full disk, and unfinished steps of `up`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainyard.backends.contract import Finding
from trainyard.errors import TrainyardError
from trainyard.steps import Stage, Step, asked

FIX = "trainyard cluster.doctor --fix"
UP = "trainyard cluster.up"

# RAY_local_fs_capacity_threshold is 0.95.
LEAST_FREE = 0.05


def full_disk(
    path: Path, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
) -> Iterator[Finding]:
    """Yield a finding if the disk of `path` is too full for Ray to spill.

    `usage` returns total, used and free bytes. An unreadable disk yields
    nothing.
    """
    with suppress(OSError):
        total, _, free = usage(path)
        if free < LEAST_FREE * total:
            message = (
                f"the disk of {path} is {100 - 100 * free // total} % full: from 95 % on "
                "Ray spills no objects to it"
            )
            yield Finding("this machine", message, "Free space on this disk.")


def unmet(steps: Callable[[], Sequence[Step | Stage]]) -> list[Finding]:
    """Return a finding for each step of `up` that does not hold, or that warns.

    A step that waits for a repair becomes part of that repair's finding; a step
    that waits for anything else is left out. An error of a check becomes the
    last finding, and later steps are not asked. A disruptive step is no repair
    here: only `cluster.up` checks for runs in flight.
    """
    found: list[Finding] = []
    # The index in `found` of each step's finding, by the step's id.
    places: dict[str, int] = {}
    try:
        for step, planned in asked(steps()):
            repair = step if isinstance(step, Step) and not step.disruptive else None
            place = places.get(step.after or "")
            if repair and planned.state == "after" and place is not None:
                places[repair.id] = place
                found[place] = replace(found[place], then=(*found[place].then, repair))
            elif repair and planned.state == "would":
                places[repair.id] = len(found)
                found.append(Finding(step.title, planned.detail, FIX, repair))
            elif planned.state == "would" or planned.warnings:
                found.append(Finding(step.title, planned.detail, UP))
    except TrainyardError as error:
        found += _of_error(error)
    return found


def _of_error(error: TrainyardError) -> list[Finding]:
    remedy = error.hint or UP
    if not error.problems:
        return [Finding(error.where or "hosts", error.what, remedy)]
    return [Finding(problem.where, problem.message, remedy) for problem in error.problems]
