"""What `docker buildx build --progress=plain` prints, read line by line: how far it is, and why it failed.

Every line belongs to a numbered vertex: `#5 [2/4] RUN make` opens one, `#5 0.27 text` is its output, and it ends with
`#5 DONE 1.2s`, `#5 CACHED`, `#5 CANCELED` or `#5 ERROR: words`. People are shown the stages of the Dockerfile.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Literal

from trainyard.diagnosis import Rule, explain
from trainyard.errors import OutsideError, RequestError

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


# A machine, and not the Dockerfile, is in the way.
MACHINE = (
    Rule(
        r"(?i)no space left on device",
        "the Docker host's disk is full",
        "The Docker host's disk is full: docker system df, docker builder prune.",
    ),
    Rule(
        r"(?i)exec format error",
        "this machine cannot run that platform's programs",
        "This machine cannot run that platform's programs: install QEMU (qemu-user-static, binfmt).",
    ),
    Rule(
        r"(?i)certificate[_ ]verify[_ ]failed|self.signed certificate|unknown authority",
        "a certificate is not trusted",
        "Behind a company's proxy, name its CA in the cluster file: build: {ca_bundle: FILE}.",
    ),
    Rule(
        r"(?i)Temporary failure (?:in name resolution|resolving)|Could not resolve|Name or service not known"
        r"|Network is unreachable|ConnectTimeoutError|Failed to establish a new connection|ProxyError",
        "the build reaches nothing outside",
        "The build has no way out: set HTTP_PROXY and HTTPS_PROXY, not to a proxy on loopback unless the cluster file "
        "says build: {network: host}.",
    ),
    Rule(
        r"(?i)No matching distribution found|Could not find a version that satisfies",
        "the index has no such package",
        "An index of one's own is named by a pip.conf in the cluster file: build: {pip_config: FILE}.",
    ),
    Rule(
        r"(?i)pull access denied|unauthorized|denied: |403 Forbidden",
        "the base's registry refuses",
        "Log in to the base's registry: docker login HOST.",
    ),
)
# The Dockerfile is wrong: repeating the command cannot help.
DOCKERFILE = (
    Rule(
        r"(?is)failed to compute cache key.*(?:not found|no such file)|(?:COPY|ADD) failed",
        "the Dockerfile of image {image} is wrong",
        "Is the file in the image's directory, and not in its .dockerignore?",
    ),
    Rule(
        r"(?i)unable to find (?:user|group)|no matching entries in (?:passwd|group) file",
        "the Dockerfile of image {image} is wrong",
        "The image has no such user or group: make it in an earlier stage (RUN useradd ...), or name one of the base.",
    ),
    Rule(
        r"(?i)parse error|unknown instruction|unknown flag|requires (?:at least|exactly) \w+ argument|syntax error"
        r"|no build stage in current context|file with no instructions|should not be blank|invalid reference format"
        r"|Dockerfile.*cannot be empty|failed to parse|failed to process",
        "the Dockerfile of image {image} is wrong",
        "Correct its Dockerfile, then repeat the command.",
    ),
)
_REPEAT = "Nothing was tagged. Mend what it says, then repeat the command: stages that worked are not run again."


class BuildError(OutsideError):
    """A build that failed. `log_tail` is what its stage printed last."""

    def __init__(self, what: str, *, log_tail: tuple[str, ...], where: str | None, hint: str | None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.log_tail = log_tail

    def lines(self) -> list[str]:
        first, *rest = super().lines()
        return [first, *(f"  | {line}" for line in self.log_tail), *rest]


def build_error(name: str, failure: Failure) -> BuildError | RequestError:
    """Return the error for a build that failed: of the request where its Dockerfile is wrong."""
    machine = explain("\n".join([*failure.log_tail, failure.raw]), MACHINE)
    if machine is None and failure.code is None:
        wrong = explain(failure.raw, DOCKERFILE, image=name)
        if wrong:
            where = f"stage {failure.stage}: {failure.raw}" if failure.stage else failure.raw
            return RequestError(wrong.message, where=where, hint=wrong.hint)
    what = f"image {name} was not built"
    if failure.stage:
        what += f": stage {failure.stage} failed"
    if failure.stage and failure.code is not None:
        what += f" (exit code {failure.code})"
    # A program that failed has said all itself; the builder only repeats its command.
    reason = None if failure.code is not None else failure.raw or None
    return BuildError(what, log_tail=failure.log_tail, where=reason, hint=machine.hint if machine else _REPEAT)
