"""What builders report, as stages and failures."""

from __future__ import annotations

from typing import Any

from trainyard.images.classic_progress import ClassicProgress
from trainyard.images.plain_progress import PlainProgress
from trainyard.images.stages import Failure, Stage

# BuildKit 0.8 (Docker 20.10) by buildx 0.29, as it printed it.
TWO_STAGES = """\
#0 building with "default" instance using docker driver

#1 [internal] load remote build context
#1 DONE 0.0s

#3 [internal] load metadata for docker.io/library/debian:12
#3 DONE 0.0s

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
# A newer BuildKit's words for the same.
NEWER = '#9 ERROR: process "/bin/sh -c exit 3" did not complete successfully: exit code: 3'
NO_BASE = (
    "ERROR: failed to build: failed to solve: rpc error: code = Unknown desc = failed to solve with frontend "
    "dockerfile.v0: failed to create LLB definition: dockerfile parse error line 8: unknown instruction: BOGUS"
)


def test_every_stage_of_the_dockerfile_is_told_once() -> None:
    progress = PlainProgress()
    stages = [stage for line in TWO_STAGES.splitlines() if (stage := progress.read(line))]
    assert stages == [
        Stage("send the content", "started"),
        Stage("wheels 1/2 FROM docker.io/library/debian:12", "started"),
        Stage("wheels 1/2 FROM docker.io/library/debian:12", "cached"),
        Stage("2/3 RUN echo one; exit 7", "started"),
        Stage("wheels 2/2 RUN touch /x", "started"),
        Stage("wheels 2/2 RUN touch /x", "done", 1.2),
        Stage("2/3 RUN echo one; exit 7", "failed"),
    ]


def test_a_failure_is_its_stage_with_its_last_words() -> None:
    progress = PlainProgress()
    for line in TWO_STAGES.splitlines():
        progress.read(line)
    assert progress.failure() == Failure(
        stage="2/3 RUN echo one; exit 7",
        code=7,
        said=("one", "to-stderr", "last words"),
        words="executor failed running [/bin/sh -c echo one; exit 7]: exit code: 7",
    )


def test_a_newer_builder_says_the_exit_code_in_other_words() -> None:
    progress = PlainProgress()
    progress.read("#9 [2/2] RUN exit 3")
    progress.read(NEWER)
    assert progress.failure().code == 3


def test_only_the_last_lines_are_kept() -> None:
    progress = PlainProgress()
    progress.read("#9 [2/2] RUN seq 100")
    for number in range(100):
        progress.read(f"#9 0.{number} line {number}")
    progress.read("#9 ERROR: exit code: 1")
    assert progress.failure().said == tuple(f"line {number}" for number in range(80, 100))


def test_a_build_without_a_failed_stage_has_the_builders_words() -> None:
    progress = PlainProgress()
    progress.read(NO_BASE)
    assert progress.failure() == Failure(None, None, (), "dockerfile parse error line 8: unknown instruction: BOGUS")


def test_a_stage_is_one_short_line() -> None:
    progress = PlainProgress()
    stage = progress.read(f"#9 [2/2] RUN --mount=type=cache,target=/root --network=host pip install {'x' * 100}")
    assert stage == Stage(f"2/2 RUN pip install {'x' * 53}...", "started")


def test_what_a_person_sees_of_a_stage() -> None:
    assert Stage("1/2 RUN make", "started").text() == "1/2 RUN make"
    assert Stage("1/2 COPY a b", "started").text() == ""
    assert Stage("keep the image", "started").text() == "keep the image"
    assert Stage("1/2 COPY a b", "done", 0.04).text() == "1/2 COPY a b: done"
    assert Stage("1/2 RUN make", "done", 61.24).text() == "1/2 RUN make: done, 61.2 s"
    assert Stage("1/2 RUN make", "cached").text() == "1/2 RUN make: cached"


CLASSIC: list[dict[str, Any]] = [
    {"stream": "Step 1/4 : FROM debian:12"},
    {"stream": "\n"},
    {"stream": " ---> 4f0d8b753ab2\n"},
    {"stream": "Step 2/4 : ENV A=b"},
    {"stream": " ---> 4f0d8b753ab9\n"},
    {"stream": "Step 3/4 : COPY a b"},
    {"stream": " ---> Using cache\n"},
    {"stream": " ---> 4f0d8b753ab3\n"},
    {"stream": "Step 4/4 : RUN echo one;     exit 7"},
    {"stream": " ---> Running in 2abe77c8cb2d\n"},
    {"stream": "one\ntwo\n"},
    {"stream": "Removing intermediate container 5b97a0af6709\n"},
    {
        "errorDetail": {"code": 7, "message": "The command returned a non-zero code: 7"},
        "error": "The command returned a non-zero code: 7",
    },
]


def test_the_engines_own_builder_reports_the_same_stages() -> None:
    clock = iter((0.0, 2.0, 3.0, 4.0, 5.0))
    progress = ClassicProgress(now=lambda: next(clock))
    assert [stage for entry in CLASSIC for stage in progress.read(entry)] == [
        Stage("1/4 FROM debian:12", "started"),
        Stage("1/4 FROM debian:12", "done", 2.0),
        Stage("3/4 COPY a b", "started"),
        Stage("3/4 COPY a b", "cached"),
        Stage("4/4 RUN echo one; exit 7", "started"),
        Stage("4/4 RUN echo one; exit 7", "failed"),
    ]
    assert progress.has_failed
    assert progress.failure() == Failure(
        "4/4 RUN echo one; exit 7", 7, ("one", "two"), "The command returned a non-zero code: 7"
    )
