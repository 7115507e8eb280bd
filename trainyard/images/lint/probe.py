"""Ask an image about itself: one run of probe.sh in a container of it, or two if its entry point swallows the first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import ImageFacts
from trainyard.seams.docker.once import run_once
from trainyard.spec.image import LintSection

SECONDS = 180.0
# Something else than the probe may start then, and never end; a probe that is only slow is run once more without it.
ENTRYPOINT_SECONDS = 60.0
# SIGKILL, which is how the kernel ends what takes too much memory.
KILLED = 137
_MARK = "trainyard: "
_CANNOT_RUN = re.compile(r'exec: "[^"]*"|no such file or directory|executable file not found|exec format error')
# Answers come without colours, and no line of a program is worth more than this.
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x1f\x7f]")
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
    """What the image printed. Without `began`, it could run nothing, and `refusal` says why.

    `came_through` is whether the image's own entry point handed the command on; `code` is the exit code, None for what
    did not end in its time.
    """

    began: bool
    came_through: bool
    refusal: str
    facts: Mapping[str, str]
    answers: Mapping[str, str]
    code: int | None = 0

    @property
    def is_complete(self) -> bool:
        return "end" in self.facts

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
        *(run_question(command) for command in lint.runs),
    )


def run_question(command: Sequence[str]) -> str:
    return f"run:{shlex.join(command)}"


@cache
def script() -> str:
    return Path(__file__).with_name("probe.sh").read_text(encoding="utf-8")


def ask(engine: Engine, image: ImageFacts, questions: Sequence[str]) -> Probed:
    """Run the probe as clusters run nodes: as the image's user, through the image's entry point.

    Raises NotReadyError when it does not end in time, OutsideError when it is killed or cannot be run at all.
    """
    if not image.entrypoint:
        return _complete(image, _run(engine, image, questions, seconds=SECONDS))
    through = _run(engine, image, questions, seconds=ENTRYPOINT_SECONDS)
    if through.is_complete:
        return through
    around = _complete(image, _run(engine, image, questions, seconds=SECONDS, around=True))
    return replace(around, came_through=through.began)


def parse(output: str, questions: Sequence[str], *, came_through: bool) -> Probed:
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
    return Probed(began, came_through and began, "", facts, answers)


def _run(
    engine: Engine, image: ImageFacts, questions: Sequence[str], *, seconds: float, around: bool = False
) -> Probed:
    """Run the probe through the image's entry point, or around it."""
    words = ["-c", script(), "trainyard-probe", *questions]
    try:
        once = run_once(
            engine,
            image.id,
            words if around else ["/bin/sh", *words],
            entrypoint=["/bin/sh"] if around else None,
            seconds=seconds,
        )
    except OutsideError as error:
        if not _CANNOT_RUN.search(error.where or ""):
            raise
        return _refused(error.where or "")
    probed = parse(once.stdout, questions, came_through=not around)
    return replace(probed, code=once.code) if probed.began else _refused(once.stderr or once.stdout)


def _refused(output: str) -> Probed:
    """Return that an image ran nothing of ours, with the last line that came instead."""
    lines = [line for line in output.splitlines() if line.strip()] or ["it printed nothing"]
    return Probed(False, False, _shown(lines[-1]), {}, {})


def _complete(image: ImageFacts, probed: Probed) -> Probed:
    if probed.is_complete or not probed.began:
        return probed
    where = f"{image.id[:19]}: its last answer was: {' '.join(list(probed.facts.items())[-1]).strip()}"
    what = "the image was asked about itself and did not answer everything"
    if probed.code is None:
        hint = "Is the machine very busy? Repeat the same command."
        raise NotReadyError(f"{what} within {SECONDS:.0f} s", where=where, hint=hint)
    hint = "Repeat the same command; if it ends the same way: docker run --rm -it IMAGE /bin/sh"
    ended = f"it was ended with exit code {probed.code}"
    if probed.code == KILLED:
        hint = "Is the Docker host short of memory? free -h; dmesg | grep -i oom"
        ended += " (killed)"
    raise OutsideError(f"{what}: {ended}", where=where, hint=hint)


def _ended(value: str | None) -> Ended | None:
    code, _, output = (value or "").partition(" ")
    return Ended(int(code), output) if code.isdigit() else None


def _shown(text: str) -> str:
    return _CONTROL.sub("", text).strip()[:_LONGEST]
