"""A failed build in words: which stage, what it said last, and what probably helps."""

from __future__ import annotations

import re

from trainyard.errors import OutsideError
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
    (r"failed to compute cache key|COPY failed", "Is the file in the image's directory, and not in its .dockerignore?"),
)


class BuildError(OutsideError):
    """A build that failed. `said` is what its stage printed last."""

    def __init__(self, what: str, *, said: tuple[str, ...] = (), where: str | None = None, hint: str | None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.said = said

    def lines(self) -> list[str]:
        """Return what failed, what it said last, and what to do."""
        first, *rest = super().lines()
        return [first, *(f"  | {line}" for line in self.said), *rest]


def build_error(name: str, failure: Failure) -> BuildError:
    """Return the error for a build that failed."""
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


def _hint(failure: Failure) -> str:
    text = "\n".join([*failure.said, failure.words])
    found = (hint for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE))
    return next(found, "Nothing was tagged. Repeat the same command: stages that worked are not run again.")
