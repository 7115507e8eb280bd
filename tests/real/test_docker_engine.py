"""Connect to the Docker engine that `docker` itself uses, or say clearly why there is none."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.bed.engine import BedEngine
from trainyard.seams.docker import engine as docker_engine


def test_the_engine_of_docker_s_current_context_is_used(
    engine: BedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    for arguments in (("create", "bed", "--docker", f"host={engine.address}"), ("use", "bed")):
        _docker("docker", "context", *arguments, config=tmp_path)
    assert docker_engine.found_address({}) == engine.address
    with docker_engine.connect({}) as found:
        assert found.info()["Name"]
        assert found.is_here
        assert found.host == "here"


def _docker(*command: str, config: Path) -> None:
    env = {**os.environ, "DOCKER_CONFIG": str(config)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, json.dumps(done.stderr)
