"""What image.verify says of an image that cannot be run."""

from __future__ import annotations

from typing import cast

import docker
import pytest

from trainyard.backends.compose import verification
from trainyard.errors import OutsideError
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine

IMAGE = PinnedImage("mine", "reg:5000/mine@sha256:1", "sha256:1")
ENGINE = Engine("unix:///docker.sock", cast(docker.APIClient, None), {})


def test_an_image_without_python_is_told_in_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **more: object) -> None:
        raise OutsideError(
            "Docker refused to run python -c import ray; print(ray.__version__) in reg:5000/mine@sha256:1",
            where='exec: "python": executable file not found in $PATH: unknown',
        )

    monkeypatch.setattr(docker_images, "pull", lambda *given, **more: None)
    monkeypatch.setattr(verification, "run_once", refuse)
    with pytest.raises(OutsideError) as raised:
        verification._pull_and_run(ENGINE, IMAGE, lambda text: None)
    assert str(raised.value) == (
        "image mine has no `python` on its PATH\n"
        "  at reg:5000/mine@sha256:1\n"
        "  -> See what is wrong with it: invoke image.lint"
    )
