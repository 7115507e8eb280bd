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
        "  -> Nothing was tagged. Mend what it says, then repeat the command: stages that worked are not run again."
    )


def test_a_file_that_is_not_there_is_the_requests_fault() -> None:
    error = build_error("schola", Failure("3/4 COPY x /", None, (), 'failed to compute cache key: "/x" not found'))
    assert error.exit_code == 2
    assert str(error) == (
        "the Dockerfile of image schola is wrong\n"
        '  at stage 3/4 COPY x /: failed to compute cache key: "/x" not found\n'
        "  -> Is the file in the image's directory, and not in its .dockerignore?"
    )


def test_a_dockerfile_that_cannot_be_read_by_the_builder_is_the_requests_fault() -> None:
    error = build_error("schola", Failure(None, None, (), "dockerfile parse error line 8: unknown instruction: BOGUS"))
    assert error.exit_code == 2
    assert str(error) == (
        "the Dockerfile of image schola is wrong\n"
        "  at dockerfile parse error line 8: unknown instruction: BOGUS\n"
        "  -> Correct its Dockerfile, then repeat the command."
    )


@pytest.mark.parametrize(
    "words",
    [
        "COPY failed: file not found in build context or excluded by .dockerignore: stat x: file does not exist",
        "unable to find user nosuch: no matching entries in passwd file",
        "base name (${BAES}) should not be blank",
    ],
)
def test_what_repeating_cannot_mend_is_the_requests_fault(words: str) -> None:
    assert build_error("schola", Failure("2/4 RUN make", None, (), words)).exit_code == 2


@pytest.mark.parametrize("words", ["COPY failed: no space left on device", "frontend grpc server closed unexpectedly"])
def test_what_a_machine_does_is_not(words: str) -> None:
    assert build_error("schola", Failure("3/4 COPY x /", None, (), words)).exit_code == 6


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
