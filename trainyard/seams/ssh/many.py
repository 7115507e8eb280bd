"""Many hosts side by side, with a bound: one host's failure is that host's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainyard.errors import TrainyardError

Result = TypeVar("Result")
AT_ONCE = 32


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What became of one host: what was asked for, or its error."""

    host: str
    result: Result | None = None
    error: TrainyardError | None = None


def side_by_side(
    hosts: Iterable[str], act: Callable[[str], Result], *, at_once: int = AT_ONCE
) -> Iterator[Outcome[Result]]:
    """Do it with every host, at most `at_once` at a time; yield each outcome as it comes."""

    def attempt(host: str) -> Outcome[Result]:
        try:
            return Outcome(host, act(host))
        except TrainyardError as error:
            return Outcome(host, error=error)

    pool = ThreadPoolExecutor(at_once)
    try:
        for done in as_completed([pool.submit(attempt, host) for host in hosts]):
            yield done.result()
    finally:
        # Ctrl-C, or a caller that has seen enough: what has not begun never does.
        pool.shutdown(wait=False, cancel_futures=True)
