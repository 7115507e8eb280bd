"""A driver of Ray's that a task's command started: the node says in its metadata to which attempt
it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_RUN = "trainyard_run"
_TASK = "trainyard_task"
_ATTEMPT = "trainyard_attempt"


def left_in_words(actors: int, groups: int) -> str:
    """Return what drivers left on a cluster, in words; "" if that is nothing."""
    counts = [(actors, "detached actor"), (groups, "detached placement group")]
    return " and ".join(f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count)


def is_run(metadata: Mapping[str, str]) -> bool:
    """Say whether a job of Ray's is a run of Trainyard's, or the driver of one of its attempts."""
    return _RUN in metadata


@dataclass(frozen=True)
class Driver:
    """The attempt whose command connected to Ray."""

    run: str
    task: str
    attempt: int

    def metadata(self) -> dict[str, str]:
        """Return what Ray keeps with the driver's job; Ray takes text alone."""
        return {_RUN: self.run, _TASK: self.task, _ATTEMPT: str(self.attempt)}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Driver | None:
        """Return None for a job that no task's command started, a run's own among them."""
        if _TASK not in metadata:
            return None
        attempt = metadata.get(_ATTEMPT, "")
        return cls(
            metadata.get(_RUN, ""), metadata[_TASK], int(attempt) if attempt.isdecimal() else 0
        )
