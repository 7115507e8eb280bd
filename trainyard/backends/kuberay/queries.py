"""Questions to Kubernetes: many at once, and such as not everybody may ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainyard.seams.kube.errors import ForbiddenError

AT_ONCE = 8
Found = TypeVar("Found")
Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Reply(Generic[Found]):
    """What the API found, or why the user may not know."""

    found: Found | None
    refusal: ForbiddenError | None = None


def if_allowed(ask: Callable[[], Found | None]) -> Reply[Found]:
    """Return the answer to a question, or that it may not be asked."""
    try:
        return Reply(ask())
    except ForbiddenError as error:
        return Reply(None, error)


def side_by_side(ask: Callable[[Subject], Found], subjects: Iterable[Subject]) -> list[Found]:
    """Return the answers in the order of what was asked about; the first question that fails raises."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, subjects))
