"""The GPUs of a Docker host, found by a stand-in for nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bed import nvidia as standin
from tests.bed.engine import BedEngine
from trainyard.seams import nvidia
from trainyard.seams.docker.engine import connect


@pytest.mark.parametrize(("gpus", "found"), [(2, ("0", "1")), (0, ())])
def test_a_driver_that_works_has_gpus(
    engine: BedEngine, tmp_path: Path, gpus: int, found: tuple[str, ...]
) -> None:
    standin.driver(tmp_path, gpus=gpus)
    with connect(
        {"DOCKER_HOST": engine.address, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ) as docker:
        assert nvidia.gpu_ids(docker) == found
