"""The stages of a build, whichever builder reports them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

StageState = Literal["started", "done", "cached", "failed"]

# What a person sees of an instruction, and of what it printed before it failed.
LONGEST_NAME = 76
TAIL_LINES = 20
# Instructions that only write down or copy are not worth a line before they are done.
_QUICK = re.compile(r"\d+/\d+ (?!RUN )")


@dataclass(frozen=True)
class Stage:
    """What became of a stage: `2/5 RUN pip install ...`."""

    name: str
    state: StageState
    seconds: float | None = None

    def text(self) -> str:
        """Return it as one line of progress; nothing where a stage begins that takes no time."""
        if self.state == "started":
            return "" if _QUICK.search(self.name) else self.name
        took = f", {self.seconds:.1f} s" if self.seconds is not None and self.seconds >= 0.05 else ""
        return f"{self.name}: {self.state}{took}"


@dataclass(frozen=True)
class Failure:
    """How a build failed: in which stage if any, its exit code, what it printed last, and the builder's words."""

    stage: str | None
    code: int | None
    said: tuple[str, ...]
    words: str


def shortened(name: str) -> str:
    """Return an instruction in one short line."""
    line = " ".join(name.replace("\\\n", " ").split())
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 3]}..."
