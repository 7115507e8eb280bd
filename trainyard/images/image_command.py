"""What an image command is about: the image, the Docker engine that has it, the cluster file with the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainyard import paths
from trainyard.errors import Problem, RequestError
from trainyard.images import catalog
from trainyard.images.build import Building
from trainyard.images.types import Image
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec, LoadedCluster


@dataclass(frozen=True)
class ImageCommand:
    """An image and where it is worked on."""

    spec: ClusterSpec
    source: Path
    engine: Engine
    directory: Path

    @property
    def name(self) -> str:
        return self.spec.image or catalog.DEFAULT_IMAGE

    @cached_property
    def image(self) -> Image | None:
        """Return the directory of images/ that is meant; None for an image that others built. Raises RequestError."""
        if catalog.is_reference(self.name, directory=self.directory):
            return None
        return catalog.find(self.name, directory=self.directory, base=self.spec.build.base)

    def building(
        self, *, no_cache: bool = False, report: Callable[[str, str], None] = lambda title, text: None
    ) -> Building:
        """Return how the image is built. Raises RequestError for an image that others built."""
        if self.image is None:
            raise RequestError(
                f"{self.name} is built by others: there is nothing to build",
                problems=(Problem(str(self.source), f"image: {self.name} is a full reference"),),
                hint=f"Name a directory of images/: {', '.join(paths.image_names(self.directory))}",
            )
        return Building(self.image, self.engine, self.spec, no_cache=no_cache, report=report)


@contextmanager
def find(cluster: LoadedCluster, environ: Mapping[str, str], *, directory: Path) -> Iterator[ImageCommand]:
    """Connect to the engine that builds: the one here, or the cluster's own where no registry stands in between.

    Raises PrerequisiteError without Docker.
    """
    address = cluster.spec.docker_host if cluster.spec.registry is None else None
    with docker_engine.engine(environ, address=address) as engine:
        yield ImageCommand(cluster.spec, cluster.source, engine, directory)
