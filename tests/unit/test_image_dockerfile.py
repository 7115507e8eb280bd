"""Dockerfiles for the engine's own builder."""

from __future__ import annotations

import pytest

from trainyard import paths
from trainyard.errors import PrerequisiteError
from trainyard.images.dockerfile import without_mounts


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("RUN make\n", "RUN make\n"),
        ("RUN --mount=type=secret,id=a make\n", "RUN make\n"),
        ("run --mount=type=cache,target=/x --mount=type=tmpfs,target=/y make\n", "run make\n"),
        (
            "RUN --mount=type=secret,id=a \\\n    --mount=type=secret,id=b \\\n    make; \\\n    done\n",
            "RUN make; \\\n    done\n",
        ),
        (
            "COPY --mount=type=x a b\nRUN echo --mount=type=secret,id=a\n",
            "COPY --mount=type=x a b\nRUN echo --mount=type=secret,id=a\n",
        ),
    ],
)
def test_mounts_that_a_build_can_do_without_are_left_out(given: str, plain: str) -> None:
    assert without_mounts(given) == plain


@pytest.mark.parametrize(
    "mount", ["type=bind,source=a,target=/b", "source=a,target=/b", "type=secret,id=a,required=true"]
)
def test_a_mount_that_is_needed_needs_buildkit(mount: str) -> None:
    with pytest.raises(PrerequisiteError) as raised:
        without_mounts(f"FROM debian\nRUN --mount={mount} make\n")
    assert str(raised.value) == (
        f"this Dockerfile needs BuildKit: RUN --mount={mount}\n"
        "  -> Install Docker's buildx plugin (Debian, Ubuntu: docker-buildx, or docker-buildx-plugin from Docker)."
    )


def test_the_dockerfiles_we_ship_can_be_built_without_buildkit() -> None:
    for path in sorted(paths.shipped("images").glob("*/Dockerfile")):
        text = path.read_text()
        assert "--mount=" in text
        assert "--mount=" not in without_mounts(text)
        # A syntax line would have every build fetch a frontend from Docker Hub.
        assert not text.startswith("# syntax")
