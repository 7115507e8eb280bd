"""What a validator of ours says when it has more than one thing to say, or says it about a part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainyard.spec.yaml_source import KeyPath

NOTHING = object()


@dataclass(frozen=True)
class Complaint:
    """One thing that is wrong, below (or with `root`, instead of) the place where the validator stands."""

    path: KeyPath
    message: str
    value: object = NOTHING
    suggestion: str = ""
    root: bool = False


class ComplaintsError(ValueError):
    """Several complaints at once; pydantic hands it on, `problems` takes it apart."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self.complaints = tuple(complaints)
        super().__init__("; ".join(complaint.message for complaint in self.complaints))


def complain(complaints: Iterable[Complaint]) -> None:
    """Raise, if there is anything to complain about."""
    found = tuple(complaints)
    if found:
        raise ComplaintsError(found)
