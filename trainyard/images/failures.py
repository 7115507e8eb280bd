"""A failed build: which stage, what it printed last, and what probably helps."""

from __future__ import annotations

from trainyard.diagnosis import Rule, explain
from trainyard.errors import OutsideError, RequestError
from trainyard.images.progress import Failure

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
