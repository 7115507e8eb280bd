"""Requests to stop attempts: one entry per run in Ray's key-value store.

The head writes the entry, and workers poll it. `ray.cancel` would interrupt a
worker anywhere, even while the worker sends the task's outputs.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

# Seconds between SIGTERM and SIGKILL for a task; for the runner itself, RAY_JOB_STOP_WAIT_TIME_S.
GRACE = 5.0
_EVERY = 0.25
_OFTEN = 0.05
_NAMESPACE = b"trainyard"


@dataclass(frozen=True)
class Asked:
    """A request to stop; `grace`: seconds from SIGTERM to SIGKILL."""

    reason: str
    grace: float


class StopWatch:
    """Polls in a thread, from `start` on, whether an attempt should stop.

    Quick attempts do not call `start`.
    """

    def __init__(self, attempt: str, run: str) -> None:
        self._attempt = attempt
        self._run = run
        self._closed = threading.Event()
        self.asked: Asked | None = None
        self._asks = False

    def start(self) -> None:
        if self._asks:
            return
        self._asks = True
        threading.Thread(target=self._ask, daemon=True, name="trainyard-stop").start()

    def wait_for_others(self, attempt: int) -> Asked | None:
        """Wait until the gang may begin (returns None), or is asked to stop."""
        while self.asked is None:
            entry = read(self._run)
            self.asked = self._request(entry)
            if entry.get("go") == attempt:
                break
            time.sleep(_OFTEN)
        return self.asked

    def close(self) -> None:
        self._closed.set()

    def _ask(self) -> None:
        while not self._closed.wait(_EVERY):
            try:
                entry = read(self._run)
            except Exception as error:  # errors vary while Ray's head is busy or gone
                print(f"trainyard: cannot ask whether to stop: {error}", flush=True)
                continue
            self.asked = self._request(entry)
            if self.asked is not None:
                return

    def _request(self, entry: dict[str, Any]) -> Asked | None:
        reason = entry.get("all") or entry.get("attempts", {}).get(self._attempt)
        if reason:
            return Asked(reason, float(entry["grace"]))
        return None


def read(run: str) -> dict[str, Any]:
    """Return a run's "all", "attempts", "grace" and "go", if they were set."""
    raw = _internal_kv_get(_key(run), namespace=_NAMESPACE)
    if not raw:
        return {}
    return dict(json.loads(raw))


class StopBoard:
    """Writes the entry that a run's attempts poll."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._entry: dict[str, Any] = {}

    def stop_all(self, reason: str, *, grace: float) -> None:
        self._put({**self._entry, "all": reason, "grace": grace})

    def stop(self, attempts: Iterable[str], reason: str) -> None:
        asked = {**self._entry.get("attempts", {}), **dict.fromkeys(attempts, reason)}
        self._put({**self._entry, "attempts": asked, "grace": GRACE})

    def go(self, attempt: int) -> None:
        """Let the gang's tasks start the commands of this attempt."""
        self._put({**self._entry, "go": attempt})

    def clear(self) -> None:
        if self._entry:
            _internal_kv_del(_key(self._run), namespace=_NAMESPACE)
            self._entry = {}

    def _put(self, entry: dict[str, Any]) -> None:
        self._entry = entry
        value = json.dumps(entry).encode()
        _internal_kv_put(_key(self._run), value, overwrite=True, namespace=_NAMESPACE)


def _key(run: str) -> bytes:
    return f"stop:{run}".encode()
