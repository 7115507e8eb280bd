"""Many hosts side by side, with a bound: one host's failure is that host's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from trainyard.errors import Problem, TrainyardError, in_a_line
from trainyard.wording import counted, without_name

Result = TypeVar("Result")
AT_ONCE = 32
AGAIN = "Mend them, and repeat the same command; the others wait."


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What became of one host: what was asked for, or its error."""

    host: str
    result: Result | None = None
    error: TrainyardError | None = None


def gather(
    hosts: Iterable[str], act: Callable[[str], Result]
) -> tuple[dict[str, Result], dict[str, TrainyardError]]:
    """Do it with every host side by side; return the results and the errors, by host and in the
    order of hosts.
    """
    named = list(hosts)
    outcomes = {outcome.host: outcome for outcome in side_by_side(named, act)}
    errors = {host: error for host in named if (error := outcomes[host].error)}
    return {
        host: cast(Result, outcomes[host].result) for host in named if host not in errors
    }, errors


def refuse(errors: Mapping[str, TrainyardError]) -> None:
    """Raise the error of one host, or one with those of several, of the first one's kind."""
    for first in errors.values():
        if len(errors) == 1:
            raise first
        hint = None
        if len({error.hint for error in errors.values()}) == 1:
            hint = first.hint
        problems = by_host(errors, hints=hint is None)
        raise type(first)(
            f"{counted(len(errors), 'host')} failed", problems=problems, hint=hint or AGAIN
        )


def by_host(errors: Mapping[str, TrainyardError], *, hints: bool = True) -> tuple[Problem, ...]:
    """Return what is wrong with each host, by default with what helps there."""

    def message(host: str, error: TrainyardError) -> str:
        line = without_name(host, in_a_line(error))
        if hints and error.hint:
            return f"{line} -> {error.hint}"
        return line

    return tuple(Problem(host, message(host, error)) for host, error in errors.items())


def side_by_side(hosts: Iterable[str], act: Callable[[str], Result]) -> Iterator[Outcome[Result]]:
    """Do it with every host, at most AT_ONCE at a time; yield each outcome as it comes."""

    def attempt(host: str) -> Outcome[Result]:
        try:
            return Outcome(host, act(host))
        except TrainyardError as error:
            return Outcome(host, error=error)

    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        for done in as_completed([pool.submit(attempt, host) for host in hosts]):
            yield done.result()
    finally:
        # Ctrl-C, or a caller that has seen enough: what has not begun never does.
        pool.shutdown(wait=False, cancel_futures=True)
