"""Run probe.sh once, through the image's entry point; read the answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.docker.containers import KILLED, run_once
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import ImageFacts, MadeBy
from trainyard.spec.image import ImageFile, LintSection
from trainyard.wording import clean

SECONDS = 180.0
SHELL = ("/bin/sh",)
NAME = "trainyard-probe"
_MARK = "trainyard: "
_CANNOT_RUN = re.compile(
    r'exec: "[^"]*"|no such file or directory|executable file not found|exec format error'
)
# Characters. Longer lines of a program's output are cut.
_LONGEST = 300


@dataclass(frozen=True)
class Probed:
    """The answers of the probe, by question.

    If the image did not run the probe, there are no answers, and `refusal` is
    the reason. If the entry point did not run the given command, `swallowed` is
    the last line that it printed, and the answers are from a run without the
    entry point.
    """

    facts: Mapping[str, str]
    refusal: str = ""
    swallowed: str = ""

    def text(self, key: str) -> str:
        return self.facts.get(key, "")

    def failure(self, key: str) -> str:
        """Return a failed command's last line or exit code; "" on success."""
        code, _, output = self.text(key).partition(" ")
        if code == "0":
            return ""
        return output or (f"exit code {code}" if code else "it printed nothing")


@dataclass(frozen=True)
class Inspection:
    """All facts about an image: the engine's, the probe's, and image.yaml."""

    file: ImageFile
    image: ImageFacts
    history: tuple[MadeBy, ...]
    probed: Probed

    @property
    def lint(self) -> LintSection:
        return self.file.lint

    @property
    def user(self) -> str:
        return (
            f"{self.probed.text('user') or self.image.user or '?'} (uid "
            f"{self.probed.text('uid') or '?'})"
        )


def questions_of(lint: LintSection) -> tuple[str, ...]:
    """Return the questions of an image.yaml in probe.sh's form, KIND:VALUE."""
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
    """Run the probe through the image's entry point, and return the answers.

    If the entry point runs nothing, the probe runs again without it. Raises
    NotReadyError if the probe takes longer than SECONDS, OutsideError if it
    ends early or the engine cannot run a container.
    """
    probed = _run(engine, image, questions)
    if probed.facts or not image.entrypoint:
        return probed
    without = _run(engine, image, questions, entrypoint=SHELL)
    if without.facts:
        return replace(without, swallowed=probed.refusal)
    return probed


def _run(
    engine: Engine, image: ImageFacts, questions: Sequence[str], *, entrypoint: Sequence[str] = ()
) -> Probed:
    words = [*([] if entrypoint else SHELL), "-c", script(), NAME, *questions]
    try:
        ran = run_once(engine, image.id, words, entrypoint=entrypoint, seconds=SECONDS)
    except OutsideError as error:
        if not _CANNOT_RUN.search(error.where or ""):
            raise
        return Probed({}, _last_line(error.where or ""))

    facts = parse(ran.stdout, questions)
    if not facts or "end" in facts:
        return Probed(facts, "" if facts else _last_line(ran.stderr or ran.stdout))

    ended = f"ended with exit code {ran.code}"
    kind, how = (
        (NotReadyError, f"was not done after {SECONDS:.0f} s")
        if ran.code == KILLED
        else (OutsideError, ended)
    )

    raise kind(
        f"the probe of the image {how}",
        where=f"{image.id[:19]}: its last answer was: {' '.join(list(facts.items())[-1]).strip()}",
        hint="Is the machine very busy, or short of memory? Repeat the same command; if it ends "
        "the same way: "
        "docker run --rm -it IMAGE /bin/sh",
    )


def parse(output: str, questions: Sequence[str]) -> dict[str, str]:
    """Return the probe's answers by question; skip other lines of output."""
    facts: dict[str, str] = {}
    for line in output.splitlines():
        if line.startswith(_MARK):
            key, _, value = line.removeprefix(_MARK).partition(" ")
            is_answer = key.isdigit() and int(key) < len(questions)
            facts[questions[int(key)] if is_answer else key] = _shown(value)
    return facts


def _last_line(output: str) -> str:
    """Return the last output line that does not quote the probe's command."""
    lines = [line for line in output.splitlines() if line.strip() and NAME not in line]
    return _shown(lines[-1] if lines else "it printed nothing of its own")


def _shown(text: str) -> str:
    return clean(text).strip()[:_LONGEST]
