"""A failed build in words: which stage, what it said last, and what probably helps."""

from __future__ import annotations

import re

from trainyard.errors import OutsideError, RequestError
from trainyard.images.stages import Failure

# What builds say when a machine, and not the Dockerfile, is in the way: the first that matches is the hint.
_HINTS: tuple[tuple[str, str], ...] = (
    (r"no space left on device", "The Docker host's disk is full: docker system df, docker builder prune."),
    (
        r"exec format error",
        "This machine cannot run that platform's programs: install QEMU (qemu-user-static, binfmt).",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|self.signed certificate|unknown authority",
        "Behind a company's proxy, name its CA in the cluster file: build: {ca_bundle: FILE}.",
    ),
    (
        r"Temporary failure (?:in name resolution|resolving)|Could not resolve|Name or service not known"
        r"|Network is unreachable|ConnectTimeoutError|Failed to establish a new connection|ProxyError",
        "The build has no way out: set HTTP_PROXY and HTTPS_PROXY, not to a proxy on loopback unless the cluster file "
        "says build: {network: host}.",
    ),
    (
        r"No matching distribution found|Could not find a version that satisfies",
        "An index of one's own is named by a pip.conf in the cluster file: build: {pip_config: FILE}.",
    ),
    (r"pull access denied|unauthorized|denied: |403 Forbidden", "Log in to the base's registry: docker login HOST."),
)
# What they say when the Dockerfile is wrong: repeating the command cannot help.
_WRONG: tuple[tuple[str, str], ...] = (
    (
        r"failed to compute cache key.*(?:not found|no such file)|(?:COPY|ADD) failed",
        "Is the file in the image's directory, and not in its .dockerignore?",
    ),
    (
        r"unable to find (?:user|group)|no matching entries in (?:passwd|group) file",
        "The image has no such user or group: make it in an earlier stage (RUN useradd ...), or name one of the base.",
    ),
    (
        r"parse error|unknown instruction|unknown flag|requires (?:at least|exactly) \w+ argument|syntax error"
        r"|no build stage in current context|file with no instructions|should not be blank|invalid reference format"
        r"|Dockerfile.*cannot be empty|failed to parse|failed to process",
        "Correct its Dockerfile, then repeat the command.",
    ),
)
_REPEAT = "Nothing was tagged. Mend what it says, then repeat the command: stages that worked are not run again."


class BuildError(OutsideError):
    """A build that failed. `said` is what its stage printed last."""

    def __init__(self, what: str, *, said: tuple[str, ...] = (), where: str | None = None, hint: str | None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.said = said

    def lines(self) -> list[str]:
        """Return what failed, what it said last, and what to do."""
        first, *rest = super().lines()
        return [first, *(f"  | {line}" for line in self.said), *rest]


def build_error(name: str, failure: Failure) -> BuildError | RequestError:
    """Return the error for a build that failed: of the request where its Dockerfile is wrong."""
    wrong = wrong_dockerfile(name, failure.words, stage=failure.stage) if failure.code is None else None
    if wrong:
        return wrong
    if failure.stage is None:
        return BuildError(f"image {name} was not built", where=failure.words or None, hint=_hint(failure))
    ended = f" (exit code {failure.code})" if failure.code is not None else ""
    # Of a program that failed, its own words say all; the builder only repeats the command.
    where = None if failure.code is not None else failure.words or None
    return BuildError(
        f"image {name} was not built: stage {failure.stage} failed{ended}",
        said=failure.said,
        where=where,
        hint=_hint(failure),
    )


def wrong_dockerfile(name: str, words: str, *, stage: str | None = None) -> RequestError | None:
    """Return the error for a Dockerfile that a builder does not take; None if something else is in the way."""
    hint = _match(_WRONG, words)
    if hint is None or _match(_HINTS, words):
        return None
    where = f"stage {stage}: {words}" if stage else words
    return RequestError(f"the Dockerfile of image {name} is wrong", where=where, hint=hint)


def _hint(failure: Failure) -> str:
    return _match(_HINTS, "\n".join([*failure.said, failure.words])) or _REPEAT


def _match(hints: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((hint for pattern, hint in hints if re.search(pattern, text, re.IGNORECASE)), None)
