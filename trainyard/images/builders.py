"""The two ways to build, with the same stages and the same errors: BuildKit, and the engine's own builder."""

from __future__ import annotations

from collections.abc import Callable

from trainyard.images.classic_progress import ClassicProgress
from trainyard.images.failures import build_error
from trainyard.images.plain_progress import PlainProgress
from trainyard.images.stages import Stage
from trainyard.seams import docker_build
from trainyard.seams.docker_build import BuildRequest
from trainyard.seams.docker_engine import Engine


def run_buildx(engine: Engine, request: BuildRequest, *, name: str, on_stage: Callable[[Stage], None]) -> None:
    """Build by `docker buildx`. Raises BuildError."""
    progress = PlainProgress()

    def read(line: str) -> None:
        stage = progress.read(line)
        if stage:
            on_stage(stage)

    if docker_build.buildx(engine, request, on_line=read).code != 0:
        raise build_error(name, progress.failure())


def run_classic(engine: Engine, request: BuildRequest, *, name: str, on_stage: Callable[[Stage], None]) -> None:
    """Build by the engine's own builder. Raises BuildError."""
    progress = ClassicProgress()
    for entry in docker_build.classic(engine, request):
        for stage in progress.read(entry):
            on_stage(stage)
    if progress.has_failed:
        raise build_error(name, progress.failure())
