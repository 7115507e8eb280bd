"""A run that resumes another: skipped tasks, and files for the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The first byte of a part says whether another part of the same archive follows.
MORE = b"+"
LAST = b"."
PART_BYTES = 8 * 1024 * 1024
# The most parts that the operator's machine sends ahead: parts wait in the head's memory.
AHEAD = 2


@dataclass(frozen=True)
class Inherited:
    """A task whose checkpoint, outputs or both the operator's machine sends.

    The checkpoint is sent before the outputs.
    """

    task: str
    checkpoint: bool
    outputs: bool


@dataclass(frozen=True)
class Resume:
    """How a run resumes the former run `run`.

    `skipped`: tasks that are not run again. `inherited`: the files sent for
    other tasks.
    """

    run: str
    skipped: tuple[str, ...] = ()
    inherited: tuple[Inherited, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Resume | None:
        if document is None:
            return None
        inherited = tuple(Inherited(**task) for task in document["inherited"])
        return cls(document["run"], tuple(document["skipped"]), inherited)


def part_name(run: str, number: int) -> str:
    """Return a part's name in Ray's GCS, which accepts only package names."""
    digest = hashlib.sha256(f"{run}/{number}".encode()).hexdigest()
    return f"_ray_pkg_{digest[:40]}.zip"
