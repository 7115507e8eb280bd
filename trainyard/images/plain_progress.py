"""What `docker buildx build --progress=plain` prints, read line by line.

Every line belongs to a numbered vertex: `#5 [2/4] RUN make` opens one, `#5 0.27 text` is its output, and it ends with
`#5 DONE 1.2s`, `#5 CACHED`, `#5 CANCELED` or `#5 ERROR: words`. People are shown the stages of the Dockerfile.
"""

from __future__ import annotations

import re
from collections import deque

from trainyard.images.stages import TAIL_LINES, Failure, Stage, StageState, shortened

_LINE = re.compile(r"#(\d+) (.*)")
_STAGE = re.compile(r"\[(?:(?P<of>\S+) +)?(?P<step>\d+/\d+)\] (?P<instruction>.*)")
# Not of the Dockerfile, but they take their time where there are gigabytes.
_AROUND = {"[internal] load remote build context": "send the content", "exporting to image": "keep the image"}
_OUTPUT = re.compile(r"\d+\.\d+ (.*)")
_DONE = re.compile(r"DONE (\d+\.\d+)s")
_CODE = re.compile(r"(?:exit code: |did not complete successfully: exit code: )(\d+)")
_MOUNTS = re.compile(r"--(?:mount|network|security)=\S+ *")
_PREFIX = re.compile(r"^ERROR: (?:failed to build: )?(?:failed to solve: )?")
# What BuildKit 0.8 puts before what happened.
_NOISE = re.compile(r"(?:rpc error: code = \w+ desc = |failed to solve with frontend \S+: |failed to create LLB \w+: )")


class PlainProgress:
    """Reads the lines of one build."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._tails: dict[str, deque[str]] = {}
        self._failed: str | None = None
        self._code: int | None = None
        self._words = ""

    def read(self, line: str) -> Stage | None:
        """Take one line; return the stage that it says something about."""
        if line.startswith("ERROR: "):
            self._words = _NOISE.sub("", _PREFIX.sub("", line))
        found = _LINE.fullmatch(line)
        return self._of_vertex(found[1], found[2]) if found else None

    def failure(self) -> Failure:
        """Return how the build failed; for a build that did."""
        number = self._failed
        tail = self._tails.get(number, deque()) if number else ()
        return Failure(self._names.get(number) if number else None, self._code, tuple(tail), self._words)

    def _of_vertex(self, number: str, text: str) -> Stage | None:
        opened = _STAGE.fullmatch(text)
        if opened:
            return self._opened(number, opened)
        if text in _AROUND:
            return Stage(_AROUND[text], "started")
        if text.startswith("ERROR: "):
            return self._broke(number, text)
        output = _OUTPUT.fullmatch(text)
        if output:
            self._tails.setdefault(number, deque(maxlen=TAIL_LINES)).append(output[1])
            return None
        done = _DONE.fullmatch(text)
        if done or text == "CACHED":
            return self._ended(number, "done" if done else "cached", float(done[1]) if done else None)
        return None

    def _opened(self, number: str, found: re.Match[str]) -> Stage | None:
        # Opened once more whenever lines of another vertex came in between.
        if number in self._names:
            return None
        of = f"{found['of']} " if found["of"] and not found["of"].startswith("stage-") else ""
        self._names[number] = shortened(f"{of}{found['step']} {_MOUNTS.sub('', found['instruction'])}")
        return Stage(self._names[number], "started")

    def _ended(self, number: str, state: StageState, seconds: float | None) -> Stage | None:
        return Stage(self._names[number], state, seconds) if number in self._names else None

    def _broke(self, number: str, text: str) -> Stage | None:
        self._failed = number
        code = _CODE.search(text)
        self._code = int(code[1]) if code else None
        return self._ended(number, "failed", None)
