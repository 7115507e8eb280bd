"""A call within a deadline: for libraries that count the silence between two bytes, and never the whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return what a call returns. Raises TimeoutError when it takes longer: it then ends for nobody."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="within", daemon=True).start()
    if not wait([future], timeout=seconds).done:
        raise TimeoutError(f"not done within {seconds:g} s")
    return future.result()
