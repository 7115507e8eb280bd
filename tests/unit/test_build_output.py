"""What BuildKit reports, as stages, failures and errors in words."""

from __future__ import annotations

import pytest

from trainyard.images.build_output import BuildProgress, Failure, build_error

# BuildKit 0.8 (Docker 20.10) by buildx 0.29, as it printed it.
TWO_STAGES = """\
#0 building with "default" instance using docker driver

#1 [internal] load remote build context
#1 DONE 0.0s

#4 [wheels 1/2] FROM docker.io/library/debian:12
#4 CACHED

#5 [stage-1 2/3] RUN --mount=type=secret,id=ca_bundle,target=/dev/shm/ca.pem     echo one; exit 7
#5 0.275 one
#5 0.277 to-stderr

#6 [wheels 2/2] RUN touch /x
#6 0.205 part 1
#6 DONE 1.2s

#5 [stage-1 2/3] RUN --mount=type=secret,id=ca_bundle,target=/dev/shm/ca.pem     echo one; exit 7
#5 0.301 last words
#5 ERROR: executor failed running [/bin/sh -c echo one; exit 7]: exit code: 7
------
 > [stage-1 2/3] RUN echo one; exit 7:
0.301 last words
------
ERROR: failed to build: failed to solve: executor failed running [/bin/sh -c echo one; exit 7]: exit code: 7
"""


def test_every_stage_is_reported_once_and_a_failure_has_its_last_words() -> None:
    progress = BuildProgress()
    assert [stage for line in TWO_STAGES.splitlines() if (stage := progress.read(line))] == [
        "wheels 1/2 FROM docker.io/library/debian:12",
        "2/3 RUN echo one; exit 7",
        "wheels 2/2 RUN touch /x",
    ]
    assert progress.failure() == Failure(
        stage="2/3 RUN echo one; exit 7",
        code=7,
        log_tail=("one", "to-stderr", "last words"),
        raw="failed to build: failed to solve: executor failed running [/bin/sh -c echo one; exit 7]: exit code: 7",
    )


def test_a_stage_is_one_short_line_and_only_its_last_lines_are_kept() -> None:
    progress = BuildProgress()
    stage = progress.read(f"#9 [2/2] RUN --mount=type=cache,target=/root --network=host pip install {'x' * 100}")
    assert stage == f"2/2 RUN pip install {'x' * 53}..."
    for number in range(100):
        progress.read(f"#9 0.{number} line {number}")
    progress.read('#9 ERROR: process "/bin/sh -c exit 3" did not complete successfully: exit code: 3')
    assert progress.failure().log_tail == tuple(f"line {number}" for number in range(80, 100))


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
        "  -> Correct it. What it copies is in the image's directory, and not in its .dockerignore."
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
        ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]", "ca_bundle (a company's CA)"),
        ("Temporary failure resolving 'deb.debian.org'", "HTTPS_PROXY"),
        ("ERROR: No matching distribution found for our-package", "pip_config (an index of one's own)"),
    ],
)
def test_what_a_machine_lacks_is_named(printed: str, hint: str) -> None:
    assert hint in str(build_error("schola", Failure("2/4 RUN make", 1, ("...", printed), "exit code: 1")).hint)
