"""What an image command is about: the image, the Docker engine that has it, the cluster file with the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainyard import paths
from trainyard.errors import Problem, RequestError
from trainyard.images import catalog
from trainyard.images.build import Building
from trainyard.images.types import Image
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.engine import Engine
from trainyard.spec import ClusterSpec, load_cluster


@dataclass(frozen=True)
class ImageFlags:
    """IMAGE and its flags as they were given; empty where they were left out."""

    image: str = ""
    file: str | None = None
    overrides: Sequence[str] = ()
    base: str = ""
    platform: str = ""
    backend: str = ""


@dataclass(frozen=True)
class ImageCommand:
    """An image and where it is worked on. `image` is None where `reference` names one that others built.

    Both are None where no image in particular is meant.
    """

    spec: ClusterSpec
    source: Path
    engine: Engine
    directory: Path
    flags: ImageFlags
    image: Image | None
    reference: str | None

    def building(
        self, *, no_cache: bool = False, report: Callable[[str, str], None] = lambda title, text: None
    ) -> Building:
        """Return how the image is built. Raises RequestError for an image that others built."""
        if self.image is None:
            raise RequestError(
                f"{self.reference} is built by others: there is nothing to build",
                problems=(Problem(str(self.source), f"image: {self.reference} is a full reference"),),
                hint=f"Name a directory of images/: {', '.join(paths.image_names(self.directory))}",
            )
        return Building(self.image, self.engine, self.spec, no_cache=no_cache, report=report)


@contextmanager
def find(
    flags: ImageFlags, environ: Mapping[str, str], *, directory: Path, with_image: bool = True
) -> Iterator[ImageCommand]:
    """Connect to the engine that builds: the one here, or the cluster's own where no registry stands in between.

    Without `with_image` no image in particular is meant. Raises RequestError for a wrong file, image or flag,
    PrerequisiteError without Docker.
    """
    spec, source = read(flags, environ, directory=directory)
    name = spec.image or catalog.DEFAULT_IMAGE
    is_reference = with_image and catalog.is_reference(name, directory=directory)
    image = None if is_reference or not with_image else catalog.find(name, directory=directory, base=spec.build.base)
    address = spec.docker_host if spec.registry is None else None
    with docker_engine.engine(environ, address=address) as engine:
        yield ImageCommand(spec, source, engine, directory, flags, image, name if is_reference else None)


def read(flags: ImageFlags, environ: Mapping[str, str], *, directory: Path) -> tuple[ClusterSpec, Path]:
    """Return the cluster file with the flags on top, and where it lies."""
    source = paths.cluster_file(flags.file, environ, directory=directory)
    named = {"base": flags.base, "platform": flags.platform}
    overrides = [*flags.overrides, *(f"build.{name}={value}" for name, value in named.items() if value)]
    spec = load_cluster(source, overrides=overrides, backend=flags.backend or None).spec
    return spec.model_copy(update={"image": flags.image}) if flags.image else spec, source
