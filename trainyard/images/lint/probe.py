"""Ask an image about itself: one run of probe.sh in a container of it, as its user, through its entry point."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import ImageFacts
from trainyard.seams.docker.once import run_once
from trainyard.spec.image import LintSection
from trainyard.wording import clean

SECONDS = 180.0
_MARK = "trainyard: "
_CANNOT_RUN = re.compile(r'exec: "[^"]*"|no such file or directory|executable file not found|exec format error')
# No line of a program is worth more than this.
_LONGEST = 300


@dataclass(frozen=True)
class Ended:
    """How a command in the image ended: its exit code, and its last error or line."""

    code: int
    output: str

    @property
    def reason(self) -> str:
        return self.output or f"exit code {self.code}"


@dataclass(frozen=True)
class Probed:
    """What the image printed. Without `began`, it ran nothing of ours, and `refusal` is what came instead."""

    began: bool
    refusal: str
    facts: Mapping[str, str]
    answers: Mapping[str, str]

    def text(self, key: str) -> str:
        return self.facts.get(key, "")

    def ended(self, key: str) -> Ended | None:
        """Return how one of the fixed commands ended; None if it was not run."""
        return _ended(self.facts.get(key))

    def answer(self, question: str) -> Ended | None:
        return _ended(self.answers.get(question))


def questions_of(lint: LintSection) -> tuple[str, ...]:
    """Return what an image file asks, in the words of probe.sh."""
    return (
        *([f"python:{lint.python}"] if lint.python else []),
        *(f"path:{path}" for path in lint.must_have),
        *(f"program:{program}" for program in lint.programs),
        *(f"import:{module}" for module in lint.imports),
        *([f"entry:{lint.entry_point}"] if lint.entry_point else []),
        *(f"run:{shlex.join(command)}" for command in lint.runs),
    )


@cache
def script() -> str:
    return Path(__file__).with_name("probe.sh").read_text(encoding="utf-8")


def ask(engine: Engine, image: ImageFacts, questions: Sequence[str]) -> Probed:
    """Run the probe as clusters run nodes.

    Raises NotReadyError when it does not end in time, OutsideError when it is killed or cannot be run at all.
    """
    words = ["/bin/sh", "-c", script(), "trainyard-probe", *questions]
    try:
        once = run_once(engine, image.id, words, seconds=SECONDS)
    except OutsideError as error:
        if not _CANNOT_RUN.search(error.where or ""):
            raise
        return Probed(False, _last_line(error.where or ""), {}, {})
    probed = parse(once.stdout, questions, refusal=_last_line(once.stderr or once.stdout))
    if not probed.began or "end" in probed.facts:
        return probed
    ended = f"ended with exit code {once.code}"
    kind, how = (NotReadyError, f"was not done after {SECONDS:.0f} s") if once.code is None else (OutsideError, ended)
    raise kind(
        f"the image was asked about itself, and {how}",
        where=f"{image.id[:19]}: its last answer was: {' '.join(list(probed.facts.items())[-1]).strip()}",
        hint="Is the machine very busy, or short of memory? Repeat the same command; if it ends the same way: "
        "docker run --rm -it IMAGE /bin/sh",
    )


def parse(output: str, questions: Sequence[str], *, refusal: str = "") -> Probed:
    """Return what probe.sh printed; other lines are the entry point's own."""
    facts: dict[str, str] = {}
    answers: dict[str, str] = {}
    for line in output.splitlines():
        if line.startswith(_MARK):
            key, _, value = line.removeprefix(_MARK).partition(" ")
            is_answer = key.isdigit() and int(key) < len(questions)
            target, name = (answers, questions[int(key)]) if is_answer else (facts, key)
            target[name] = _shown(value)
    began = "begin" in facts
    return Probed(began, "" if began else refusal, facts, answers)


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()] or ["it printed nothing"]
    return _shown(lines[-1])


def _ended(value: str | None) -> Ended | None:
    code, _, output = (value or "").partition(" ")
    return Ended(int(code), output) if code.isdigit() else None


def _shown(text: str) -> str:
    return clean(text).strip()[:_LONGEST]
