"""A failed build in words."""

from __future__ import annotations

import pytest

from trainyard.images.failures import build_error
from trainyard.images.progress import Failure


def test_a_failed_stage_prints_its_last_lines_and_its_exit_code() -> None:
    error = build_error("schola", Failure("2/4 RUN make", 2, ("cc main.c", "main.c:1: error"), "exit code: 2"))
    assert error.exit_code == 6
    assert str(error) == (
        "image schola was not built: stage 2/4 RUN make failed (exit code 2)\n"
        "  | cc main.c\n"
        "  | main.c:1: error\n"
        "  -> Nothing was tagged. Mend what it says, then repeat the command: stages that worked are not run again."
    )


def test_a_wrong_dockerfile_is_the_requests_fault() -> None:
    error = build_error("schola", Failure("3/4 COPY x /", None, (), 'failed to compute cache key: "/x" not found'))
    assert error.exit_code == 2
    assert str(error) == (
        "the Dockerfile of image schola is wrong\n"
        '  at stage 3/4 COPY x /: failed to compute cache key: "/x" not found\n'
        "  -> Is the file in the image's directory, and not in its .dockerignore?"
    )


@pytest.mark.parametrize(
    ("raw", "exit_code"),
    [
        ("dockerfile parse error line 8: unknown instruction: BOGUS", 2),
        ("unable to find user nosuch: no matching entries in passwd file", 2),
        ("base name (${BAES}) should not be blank", 2),
        ("COPY failed: no space left on device", 6),
        ("frontend grpc server closed unexpectedly", 6),
    ],
)
def test_a_machines_fault_is_told_from_a_dockerfiles(raw: str, exit_code: int) -> None:
    assert build_error("schola", Failure("2/4 RUN make", None, (), raw)).exit_code == exit_code


@pytest.mark.parametrize(
    ("printed", "hint"),
    [
        ("OSError: [Errno 28] No space left on device", "docker builder prune"),
        ("exec /bin/sh: exec format error", "install QEMU"),
        ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]", "build: {ca_bundle: FILE}"),
        ("Temporary failure resolving 'deb.debian.org'", "not to a proxy on loopback unless"),
        ("ERROR: No matching distribution found for our-package", "build: {pip_config: FILE}"),
        ("denied: requested access to the resource is denied", "docker login"),
    ],
)
def test_what_a_machine_lacks_is_named(printed: str, hint: str) -> None:
    assert hint in str(build_error("schola", Failure("2/4 RUN make", 1, ("...", printed), "exit code: 1")).hint)
