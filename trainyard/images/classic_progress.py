"""What the builder inside of every Docker engine reports: a stream of texts, errors and the image's id."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainyard.images.stages import TAIL_LINES, Failure, Stage, StageState, shortened

_STEP = re.compile(r"Step (\d+/\d+) : (.*)", re.DOTALL)
# The others (ENV, USER, our labels, one each) only write something down.
_WORKS = re.compile(r"\d+/\d+ (?:RUN|COPY|ADD|FROM) ")
# What the builder says about its own doing, between the lines of a stage's program.
_OWN = (" ---> ", "Removing intermediate container", "Successfully ")
_CACHED = " ---> Using cache"
_DONE = " ---> "
_RUNNING = " ---> Running in "


class ClassicProgress:
    """Reads the entries of one build. The builder does not say how long a stage took: a clock does."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = 0.0
        self._stage: str | None = None
        self._is_open = False
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._code: int | None = None
        self._words = ""

    def read(self, entry: Mapping[str, Any]) -> Iterator[Stage]:
        """Take one entry; yield what it says about stages."""
        if entry.get("error"):
            self._words = str(entry["error"]).strip()
            code = (entry.get("errorDetail") or {}).get("code")
            self._code = int(code) if code else None
            yield from self._ended("failed")
            return
        text = str(entry.get("stream", ""))
        step = _STEP.match(text)
        if step:
            self._tail.clear()
            self._stage, self._began = shortened(f"{step[1]} {step[2]}"), self._now()
            self._is_open = bool(_WORKS.match(self._stage))
            if self._is_open:
                yield Stage(self._stage, "started")
        elif text.startswith(_CACHED):
            yield from self._ended("cached")
        elif text.startswith(_DONE) and not text.startswith(_RUNNING):
            yield from self._ended("done")
        elif text.strip() and not text.startswith(_OWN):
            self._tail.extend(text.rstrip("\n").splitlines())

    @property
    def has_failed(self) -> bool:
        """Say whether an error came."""
        return bool(self._words)

    def failure(self) -> Failure:
        """Return how the build failed; for a build that did."""
        return Failure(self._stage, self._code, tuple(self._tail), self._words)

    def _ended(self, state: StageState) -> Iterator[Stage]:
        if self._stage and self._is_open:
            self._is_open = False
            yield Stage(self._stage, state, self._now() - self._began if state == "done" else None)
