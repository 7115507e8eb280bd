"""What an image command is about: the image, the Docker engine that has it, the cluster file that says the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainyard import paths
from trainyard.errors import Problem, RequestError
from trainyard.images import build, catalog, layers
from trainyard.images.build import Building
from trainyard.images.types import Image
from trainyard.seams import docker_engine
from trainyard.seams.docker_engine import Engine
from trainyard.seams.registry_login import login
from trainyard.spec import BuildSection, ClusterSpec, load_cluster
from trainyard.spec.docker import check_image, check_platform


@dataclass(frozen=True)
class Asked:
    """What was typed: IMAGE and its flags; empty where nothing was."""

    image: str = ""
    file: str | None = None
    overrides: Sequence[str] = ()
    base: str = ""
    platform: str = ""
    backend: str = ""


@dataclass(frozen=True)
class Workbench:
    """An image and where it is worked on. `image` is None where `reference` names one that others built.

    Both are None where no image in particular is meant.
    """

    spec: ClusterSpec
    source: Path
    engine: Engine
    directory: Path
    asked: Asked
    image: Image | None
    reference: str | None

    def building(self, *, no_cache: bool = False, saw: build.Saw = build.unseen) -> Building:
        """Return how the image is built. Raises RequestError for an image that others built."""
        if self.image is None:
            raise RequestError(
                f"{self.reference} is built by others: there is nothing to build",
                problems=(Problem(str(self.source), f"image: {self.reference} is a full reference"),),
                hint=f"Name a directory of images/: {', '.join(paths.image_names(self.directory))}",
            )
        image = self.image
        return build.building(
            image,
            self.engine,
            self.spec.build,
            no_cache=no_cache,
            saw=saw,
            layers=lambda: layers.known(image, self.engine, self.spec, self.engine.environ),
            login=self._base_login,
        )

    def _base_login(self, registry: str) -> Mapping[str, str] | None:
        """Return the cluster file's login where the base lies in its registry."""
        named = self.spec.registry
        who = login(named, self.engine.environ) if named and named.address == registry else None
        return who.for_engine(registry) if who else None


@contextmanager
def find(asked: Asked, environ: Mapping[str, str], *, directory: Path, with_image: bool = True) -> Iterator[Workbench]:
    """Connect to the engine that builds: the one here, or the cluster's own where no registry stands in between.

    Without `with_image` no image in particular is meant. Raises RequestError for a wrong file, image or flag,
    PrerequisiteError without Docker.
    """
    spec, source = read(asked, environ, directory=directory)
    name = spec.image or catalog.DEFAULT_IMAGE
    is_reference = with_image and catalog.is_reference(name, directory=directory)
    image = None if is_reference or not with_image else catalog.find(name, directory=directory, base=spec.build.base)
    address = spec.compose.docker if spec.backend == "compose" and spec.registry is None else None
    with docker_engine.engine(environ, address=address) as engine:
        yield Workbench(spec, source, engine, directory, asked, image, name if is_reference else None)


def read(asked: Asked, environ: Mapping[str, str], *, directory: Path) -> tuple[ClusterSpec, Path]:
    """Return the cluster file with the flags on top, and where it is. Raises RequestError."""
    source = paths.cluster_file(asked.file, environ, directory=directory)
    spec = load_cluster(source, overrides=asked.overrides, backend=asked.backend or None).spec
    named = {"image": asked.image} if asked.image else {}
    return spec.model_copy(update={**named, "build": _settings(spec.build, asked)}), source


def _settings(written: BuildSection, asked: Asked) -> BuildSection:
    """Return how to build: the file's section, with the flags on top."""
    given = {"base": (asked.base, check_image), "platform": (asked.platform, check_platform)}
    chosen: dict[str, str] = {}
    problems: list[Problem] = []
    for name, (value, check) in given.items():
        if value:
            try:
                chosen[name] = check(value)
            except ValueError as error:
                problems.append(Problem(f"--{name}", f"{error}, got {value!r}"))
    if problems:
        raise RequestError("the request is wrong", problems=tuple(problems))
    return written.model_copy(update=chosen)
