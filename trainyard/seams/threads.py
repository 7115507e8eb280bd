"""Deadlines for whole calls, in threads; libraries only limit each wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Result = TypeVar("Result")
Subject = TypeVar("Subject")


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return a call's result. Raises TimeoutError if it takes longer."""
    future = begin(call)
    if not wait([future], timeout=seconds).done:
        raise TimeoutError(f"not done within {seconds:g} s")
    return future.result()


def side_by_side(
    ask: Callable[[Subject], Result], subjects: Iterable[Subject], *, at_once: int = 8
) -> list[Result]:
    """Call `ask` for all subjects, `at_once` at a time; keep their order.

    Raises the error of the first subject that failed.
    """
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(ask, subjects))


def begin(call: Callable[[], Result]) -> Future[Result]:
    """Begin a call in a daemon thread, which ends with this process."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
