"""Read `docker buildx build --progress=plain`: its step, or why it failed.

BuildKit numbers the vertices of its graph. `#5 [2/4] RUN make` opens vertex 5,
`#5 0.27 text` is its output, and `#5 DONE 1.2s`, `#5 CACHED`, `#5 CANCELED` or
`#5 ERROR: words` ends it.
"""

from __future__ import annotations

import re
from collections import deque

from trainyard.errors import OutsideError, RequestError

LONGEST_NAME = 76
TAIL_LINES = 20
_LINE = re.compile(r"#(\d+) (.*)")
_STEP = re.compile(r"\[(?:(?P<of>\S+) +)?(?P<number>\d+/\d+)\] (?P<instruction>.*)")
_OUTPUT = re.compile(r"\d+\.\d+ (.*)")
_CODE = re.compile(r"exit code: (\d+)")
_MOUNTS = re.compile(r"--(?:mount|network|security)=\S+ *")


class BuildProgress:
    """Reads the lines of one build, and keeps the last output of each step."""

    def __init__(self) -> None:
        self._steps: dict[str, str] = {}
        self._tails: dict[str, deque[str]] = {}
        self._failed = ""
        self._raw = ""

    def read(self, line: str) -> str | None:
        """Read a line; return the Dockerfile's step that it begins, if any."""
        if line.startswith("ERROR: "):
            self._raw = line.removeprefix("ERROR: ")

        vertex = _LINE.fullmatch(line)
        if vertex is None:
            return None

        number, text = vertex.groups()
        opened = _STEP.fullmatch(text)
        # The opening line is repeated after lines of another vertex, so only the first counts.
        if opened and number not in self._steps:
            self._steps[number] = _name(opened)
            return self._steps[number]

        if output := _OUTPUT.fullmatch(text):
            self._tails.setdefault(number, deque(maxlen=TAIL_LINES)).append(output[1])
        elif text.startswith("ERROR: "):
            self._failed = number

        return None

    def error(self, image: str) -> OutsideError | RequestError:
        """Return the build's error: RequestError for a wrong Dockerfile."""
        step = self._steps.get(self._failed, "")
        tail = self._tails.get(self._failed, ())
        code = _CODE.search(self._raw)
        said = "\n".join([*tail, self._raw])
        lacking = next(
            (hint for pattern, hint in LACKING if re.search(pattern, said, re.IGNORECASE)), None
        )
        if lacking is None and code is None and DOCKERFILE.search(self._raw):
            return RequestError(
                f"the Dockerfile of image {image} is wrong",
                where=f"step {step}: {self._raw}" if step else self._raw,
                hint="Correct it. What it copies must be in the image's directory, and must not be "
                "in its .dockerignore.",
            )

        what = f"image {image} was not built"
        what += f": step {step} failed" if step else ""
        what += f" (exit code {code[1]})" if code else ""
        return OutsideError(
            "\n  | ".join([what, *tail]),
            # If there is an exit code, the failed program's own output says why. BuildKit's line
            # only repeats the command.
            where=None if code else self._raw,
            hint=lacking or _REPEAT,
        )


def _name(step: re.Match[str]) -> str:
    """Shorten a step's name to LONGEST_NAME: `2/5 RUN pip install ...`."""
    if step["of"] and not step["of"].startswith("stage-"):
        of = f"{step['of']} "
    else:
        of = ""
    name = " ".join(f"{of}{step['number']} {_MOUNTS.sub('', step['instruction'])}".split())
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 3]}..."


# Patterns of failures that the Dockerfile did not cause, with hints: disk, network, certificates.
# The texts are from Python, pip, curl, git, apt and glibc.
LACKING = (
    (
        r"no space left on device",
        "The Docker host's disk is full: docker system df, docker builder prune.",
    ),
    (
        r"certificate[_ ]verify[_ ]failed|self.signed certificate|unknown authority|"
        r"temporary failure (?:in name resolution|resolving)|could not resolve (?:host|proxy|')|"
        r"network is unreachable|failed to establish a new connection|no matching distribution "
        r"found",
        "Does the build reach what it needs? A proxy is taken from HTTP_PROXY and HTTPS_PROXY; "
        "under "
        "`build:` in the cluster "
        "file are ca_bundle (a company's CA), pip_config (a private index) and network.",
    ),
)
# BuildKit's messages about a wrong Dockerfile, with which the same command would fail again.
DOCKERFILE = re.compile(
    r"failed to compute cache key.*(?:not found|no such file)|(?:COPY|ADD) failed|unable to find "
    r"(?:user|group)|"
    r"no matching entries in (?:passwd|group) file|parse error|unknown "
    r"(?:instruction|flag)|requires \w+ \w+ argument|"
    r"requires at least|syntax error|no build stage in current context|file with no instructions|"
    r"should not be blank|invalid reference format|Dockerfile.*cannot be empty|failed to "
    r"(?:parse|process)",
    re.IGNORECASE | re.DOTALL,
)
_REPEAT = (
    "Nothing was tagged. Repair the cause, then repeat the command: steps that worked "
    "are not run again."
)
