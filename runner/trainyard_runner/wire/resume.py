"""A run that resumes another one: which tasks it skips, and what the others begin with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# How a part of what tasks begin with says whether another part of the same archive follows.
MORE = b"+"
LAST = b"."
PART_BYTES = 8 * 1024 * 1024
# So many parts wait on the head at most: they are in its memory.
AHEAD = 2


@dataclass(frozen=True)
class Inherited:
    """What a task begins with: whether the operator sends a checkpoint, and then whether
    outputs.
    """

    task: str
    checkpoint: bool
    outputs: bool


@dataclass(frozen=True)
class Resume:
    """The run that is resumed, its tasks that are not run again, and what the others begin with."""

    run: str
    skipped: tuple[str, ...] = ()
    inherited: tuple[Inherited, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Resume | None:
        if document is None:
            return None
        inherited = tuple(Inherited(**each) for each in document["inherited"])
        return cls(document["run"], tuple(document["skipped"]), inherited)


def part_name(run: str, number: int) -> str:
    """Return the name under which Ray keeps a part of what the tasks of a run begin with."""
    return f"_ray_pkg_{hashlib.sha256(f'{run}/{number}'.encode()).hexdigest()[:40]}.zip"
