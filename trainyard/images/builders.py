"""The two ways to build, with the same stages and the same errors: BuildKit, and the engine's own builder."""

from __future__ import annotations

from collections.abc import Callable

from trainyard.errors import OutsideError
from trainyard.images.classic_progress import ClassicProgress
from trainyard.images.failures import build_error, wrong_dockerfile
from trainyard.images.plain_progress import PlainProgress
from trainyard.images.stages import Stage
from trainyard.seams import docker_build
from trainyard.seams.docker_build import BuildRequest
from trainyard.seams.docker_engine import Engine


def run_buildx(engine: Engine, request: BuildRequest, *, name: str, on_stage: Callable[[Stage], None]) -> None:
    """Build by `docker buildx`. Raises BuildError, or RequestError for a wrong Dockerfile."""
    progress = PlainProgress()

    def read(line: str) -> None:
        stage = progress.read(line)
        if stage:
            on_stage(stage)

    if docker_build.buildx(engine, request, on_line=read).code != 0:
        raise build_error(name, progress.failure())


def run_classic(engine: Engine, request: BuildRequest, *, name: str, on_stage: Callable[[Stage], None]) -> None:
    """Build by the engine's own builder. Raises BuildError, or RequestError for a wrong Dockerfile."""
    progress = ClassicProgress()
    try:
        for entry in docker_build.classic(engine, request):
            for stage in progress.read(entry):
                on_stage(stage)
    except OutsideError as error:
        # It reads the whole Dockerfile before it begins.
        raise wrong_dockerfile(name, error.where or "") or error from error
    if progress.has_failed:
        raise build_error(name, progress.failure())
