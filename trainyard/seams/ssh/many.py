"""Work on many hosts at once; a host's failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trainyard.errors import Problem, TrainyardError, in_a_line
from trainyard.wording import counted, without_name

Result = TypeVar("Result")
AT_ONCE = 32
AGAIN = "Repair these hosts, and repeat the same command; the other hosts wait."


def gather(
    hosts: Iterable[str], act: Callable[[str], Result]
) -> tuple[dict[str, Result], dict[str, TrainyardError]]:
    """Call `act` for AT_ONCE hosts at a time; return results and errors.

    Results and errors have the order of `hosts`.
    """
    results: dict[str, Result] = {}
    errors: dict[str, TrainyardError] = {}
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        futures = {host: pool.submit(act, host) for host in hosts}
        for host, future in futures.items():
            try:
                results[host] = future.result()
            except TrainyardError as error:
                errors[host] = error
    finally:
        # After Ctrl-C or an unexpected error, cancel the work that has not begun.
        pool.shutdown(wait=False, cancel_futures=True)
    return results, errors


def refuse(errors: Mapping[str, TrainyardError]) -> None:
    """Raise the only error, or one for all hosts, in the class of the first."""
    for first in errors.values():
        if len(errors) == 1:
            raise first

        hint = None
        if len({error.hint for error in errors.values()}) == 1:
            hint = first.hint
        problems = by_host(errors, hints=hint is None)
        message = f"{counted(len(errors), 'host')} failed"
        raise type(first)(message, problems=problems, hint=hint or AGAIN)


def by_host(errors: Mapping[str, TrainyardError], *, hints: bool = True) -> tuple[Problem, ...]:
    """Return one problem for each host, by default with its error's hint."""

    def message(host: str, error: TrainyardError) -> str:
        line = without_name(host, in_a_line(error))
        if hints and error.hint:
            return f"{line} -> {error.hint}"
        return line

    return tuple(Problem(host, message(host, error)) for host, error in errors.items())
