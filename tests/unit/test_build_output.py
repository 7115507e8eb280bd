"""BuildKit's reports, as stages, failures and errors in words."""

from __future__ import annotations

import pytest

from trainyard.errors import TrainyardError
from trainyard.images.build_output import BuildProgress

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


def error(stage: str, *printed: str, raw: str) -> TrainyardError:
    """Return the error for a stage that printed something and then failed like this."""
    progress = BuildProgress()
    for line in (f"[{stage}", *(f"0.1 {line}" for line in printed), f"ERROR: {raw}"):
        progress.read(f"#9 {line}")
    progress.read(f"ERROR: {raw}")
    return progress.error("schola")


def test_every_step_is_reported_once_and_a_failure_has_its_last_words() -> None:
    progress = BuildProgress()
    assert [stage for line in TWO_STAGES.splitlines() if (stage := progress.read(line))] == [
        "wheels 1/2 FROM docker.io/library/debian:12",
        "2/3 RUN echo one; exit 7",
        "wheels 2/2 RUN touch /x",
    ]

    assert progress.error("schola").exit_code == 6
    assert str(progress.error("schola")) == (
        "image schola was not built: step 2/3 RUN echo one; exit 7 failed (exit code 7)\n"
        "  | one\n"
        "  | to-stderr\n"
        "  | last words\n"
        "  -> Nothing was tagged. Repair the cause, then repeat the command: steps that worked "
        "are not run again."
    )


def test_a_stage_is_one_short_line_and_only_its_last_lines_are_kept() -> None:
    progress = BuildProgress()
    stage = progress.read(
        f"#9 [2/2] RUN --mount=type=cache,target=/root --network=host pip install {'x' * 100}"
    )
    assert stage == f"2/2 RUN pip install {'x' * 53}..."
    failed = error(
        "2/2] RUN seq 100", *(f"line {number}" for number in range(100)), raw="exit code: 3"
    )
    assert failed.what.splitlines()[1:] == [f"  | line {number}" for number in range(80, 100)]


def test_a_wrong_dockerfile_is_the_requests_fault() -> None:
    wrong = error("3/4] COPY x /", raw='failed to compute cache key: "/x" not found')
    assert str(wrong) == (
        "the Dockerfile of image schola is wrong\n"
        '  at step 3/4 COPY x /: failed to compute cache key: "/x" not found\n'
        "  -> Correct it. What it copies must be in the image's directory, and must not be in its "
        ".dockerignore."
    )


@pytest.mark.parametrize(
    ("raw", "exit_code"),
    [
        ('failed to compute cache key: "/x" not found', 2),
        ("dockerfile parse error line 8: unknown instruction: BOGUS", 2),
        ("unable to find user nosuch: no matching entries in passwd file", 2),
        ("base name (${BAES}) should not be blank", 2),
        ("COPY failed: no space left on device", 6),
        ("frontend grpc server closed unexpectedly", 6),
    ],
)
def test_a_machines_fault_is_told_from_a_dockerfiles(raw: str, exit_code: int) -> None:
    assert error("2/4] RUN make", raw=raw).exit_code == exit_code


@pytest.mark.parametrize(
    ("printed", "hint"),
    [
        ("OSError: [Errno 28] No space left on device", "docker builder prune"),
        (
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]",
            "ca_bundle (a company's CA)",
        ),
        ("Temporary failure resolving 'deb.debian.org'", "HTTPS_PROXY"),
        ("curl: (6) Could not resolve host: mirror", "HTTPS_PROXY"),
        (
            "ERROR: No matching distribution found for our-package",
            "pip_config (a private index)",
        ),
    ],
)
def test_machine_problems_in_a_failed_build_come_with_a_hint(printed: str, hint: str) -> None:
    assert hint in str(error("2/4] RUN make", "...", printed, raw="exit code: 1").hint)


@pytest.mark.parametrize(
    "printed", ["Resolving deltas: 100%", "npm error ERESOLVE could not resolve", "resolving x"]
)
def test_a_name_that_resolves_is_not_taken_for_one_that_does_not(printed: str) -> None:
    assert str(error("2/4] RUN make", printed, raw="exit code: 1").hint).startswith(
        "Nothing was tagged."
    )
