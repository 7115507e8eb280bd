"""A failed build in words."""

from __future__ import annotations

import pytest

from trainyard.images.failures import build_error
from trainyard.images.stages import Failure


def test_a_failed_stage_prints_its_last_lines_and_its_exit_code() -> None:
    error = build_error("schola", Failure("2/4 RUN make", 2, ("cc main.c", "main.c:1: error"), "exit code: 2"))
    assert error.exit_code == 6
    assert str(error) == (
        "image schola was not built: stage 2/4 RUN make failed (exit code 2)\n"
        "  | cc main.c\n"
        "  | main.c:1: error\n"
        "  -> Nothing was tagged. Repeat the same command: stages that worked are not run again."
    )


def test_a_stage_that_runs_nothing_fails_in_the_builders_words() -> None:
    error = build_error("schola", Failure("3/4 COPY x /", None, (), 'failed to compute cache key: "/x" not found'))
    assert str(error) == (
        "image schola was not built: stage 3/4 COPY x / failed\n"
        '  at failed to compute cache key: "/x" not found\n'
        "  -> Is the file in the image's directory, and not in its .dockerignore?"
    )


def test_a_build_that_never_began() -> None:
    error = build_error("schola", Failure(None, None, (), "dockerfile parse error line 8: unknown instruction: BOGUS"))
    assert str(error) == (
        "image schola was not built\n"
        "  at dockerfile parse error line 8: unknown instruction: BOGUS\n"
        "  -> Nothing was tagged. Repeat the same command: stages that worked are not run again."
    )


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("OSError: [Errno 28] No space left on device", "docker builder prune"),
        ("exec /bin/sh: exec format error", "install QEMU"),
        (
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            "build: {ca_bundle",
        ),
        ("Temporary failure resolving 'deb.debian.org'", "HTTP_PROXY"),
        ("urllib3.exceptions.NewConnectionError: Failed to establish a new connection", "build: {network: host}"),
        ("urllib3.exceptions.ProxyError: Cannot connect to proxy", "not to a proxy on loopback"),
        ("ERROR: No matching distribution found for our-package", "build: {pip_config: FILE}"),
        ("denied: requested access to the resource is denied", "docker login"),
    ],
)
def test_what_a_machine_lacks_is_named(said: str, hint: str) -> None:
    assert hint in str(build_error("schola", Failure("2/4 RUN make", 1, ("...", said), "exit code: 1")).hint)
