"""The metadata of a driver's Ray job, which name the attempt whose command connected to Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_RUN = "trainyard_run"
_TASK = "trainyard_task"
_ATTEMPT = "trainyard_attempt"


def left_in_words(actors: int, groups: int) -> str:
    """Count the actors and groups that drivers left, in words; "" if there are none."""
    parts = []
    for count, name in [(actors, "detached actor"), (groups, "detached placement group")]:
        if count:
            plural = "s" if count > 1 else ""
            parts.append(f"{count} {name}{plural}")
    return " and ".join(parts)


def is_run(metadata: Mapping[str, str]) -> bool:
    """Return whether a Ray job is a run of Trainyard, or the driver of one of its attempts."""
    return _RUN in metadata


@dataclass(frozen=True)
class Driver:
    """The attempt whose command connected to Ray."""

    run: str
    task: str
    attempt: int

    def metadata(self) -> dict[str, str]:
        """Return the metadata of the driver's Ray job; Ray accepts only text."""
        return {_RUN: self.run, _TASK: self.task, _ATTEMPT: str(self.attempt)}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Driver | None:
        """Return the attempt that a Ray job's metadata name; None if they name no task."""
        if _TASK not in metadata:
            return None
        attempt = 0
        text = metadata.get(_ATTEMPT, "")
        if text.isdecimal():
            attempt = int(text)
        return cls(metadata.get(_RUN, ""), metadata[_TASK], attempt)
