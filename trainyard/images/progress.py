"""What `docker buildx build --progress=plain` prints, read line by line.

Every line belongs to a numbered vertex: `#5 [2/4] RUN make` opens one, `#5 0.27 text` is its output, and it ends with
`#5 DONE 1.2s`, `#5 CACHED`, `#5 CANCELED` or `#5 ERROR: words`. People are shown the stages of the Dockerfile.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Literal

StageState = Literal["started", "done", "cached", "failed"]

LONGEST_NAME = 76
TAIL_LINES = 20
# Instructions that only write down or copy are not worth a line before they are done.
_QUICK = re.compile(r"\d+/\d+ (?!RUN )")
_LINE = re.compile(r"#(\d+) (.*)")
_STAGE = re.compile(r"\[(?:(?P<of>\S+) +)?(?P<step>\d+/\d+)\] (?P<instruction>.*)")
# Not of the Dockerfile, but they take their time where there are gigabytes.
_AROUND = {"[internal] load remote build context": "send the content", "exporting to image": "keep the image"}
_OUTPUT = re.compile(r"\d+\.\d+ (.*)")
_DONE = re.compile(r"DONE (\d+\.\d+)s")
_CODE = re.compile(r"exit code: (\d+)")
_MOUNTS = re.compile(r"--(?:mount|network|security)=\S+ *")
# What stands before the reason; the second line is BuildKit 0.8's.
_BEFORE_REASON = re.compile(
    r"^ERROR: (?:failed to build: )?(?:failed to solve: )?"
    r"|rpc error: code = \w+ desc = |failed to solve with frontend \S+: |failed to create LLB \w+: "
)


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
    log_tail: tuple[str, ...]
    raw: str


class BuildProgress:
    """Reads the lines of one build."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._tails: dict[str, deque[str]] = {}
        self._failed = ""
        self._code: int | None = None
        self._raw = ""

    def read(self, line: str) -> Stage | None:
        """Take one line; return the stage that it is about."""
        if line.startswith("ERROR: "):
            self._raw = _BEFORE_REASON.sub("", line)
        vertex = _LINE.fullmatch(line)
        return self._of_vertex(vertex[1], vertex[2]) if vertex else None

    def failure(self) -> Failure:
        tail = tuple(self._tails.get(self._failed, ()))
        return Failure(self._names.get(self._failed), self._code, tail, self._raw)

    def _of_vertex(self, number: str, text: str) -> Stage | None:
        if text in _AROUND:
            return Stage(_AROUND[text], "started")
        if opened := _STAGE.fullmatch(text):
            return self._opened(number, opened)
        if output := _OUTPUT.fullmatch(text):
            self._tails.setdefault(number, deque(maxlen=TAIL_LINES)).append(output[1])
        elif done := _DONE.fullmatch(text):
            return self._ended(number, "done", float(done[1]))
        elif text == "CACHED":
            return self._ended(number, "cached")
        elif text.startswith("ERROR: "):
            code = _CODE.search(text)
            self._failed, self._code = number, int(code[1]) if code else None
            return self._ended(number, "failed")
        return None

    def _opened(self, number: str, stage: re.Match[str]) -> Stage | None:
        # Opened once more whenever lines of another vertex came in between.
        if number in self._names:
            return None
        of = f"{stage['of']} " if stage["of"] and not stage["of"].startswith("stage-") else ""
        name = " ".join(f"{of}{stage['step']} {_MOUNTS.sub('', stage['instruction'])}".split())
        self._names[number] = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."
        return Stage(self._names[number], "started")

    def _ended(self, number: str, state: StageState, seconds: float | None = None) -> Stage | None:
        return Stage(self._names[number], state, seconds) if number in self._names else None
