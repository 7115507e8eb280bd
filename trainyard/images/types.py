"""What the parts of `images` hand to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainyard import versions
from trainyard.errors import TrainyardError
from trainyard.seams.registry.auth import Login
from trainyard.spec.image import ImageFile

LINT = "See what is wrong with it: invoke image.lint"


@dataclass(frozen=True)
class Image:
    """A directory of images/: what is built. `base` is what image.yaml names, or the one that was given instead."""

    name: str
    directory: Path
    file: ImageFile
    base: str

    @property
    def repository(self) -> str:
        return f"trainyard/{self.name}"

    @property
    def alias(self) -> str:
        """Return the tag that people read: what it is good for, not what is in it."""
        return f"ray-{versions.RAY}"


@dataclass(frozen=True)
class Built:
    """An image that an engine has. `content` is the hash that is also its tag, `source` the same without the base."""

    name: str
    reference_local: str
    alias_local: str
    content: str
    source: str
    image_id: str
    platform: str = ""
    size: int = 0


@dataclass(frozen=True)
class Pushed:
    """An image that a registry has. `reference` names it by its digest: that is what clusters run."""

    reference: str
    tag: str
    alias: str
    digest: str
    bytes_sent: int
    layers_sent: int
    layers_there: int


@dataclass(frozen=True)
class PinnedImage:
    """What to run. `digest` is None where no registry holds the image: `reference` is then an image id.

    `remark` says why `reference` has no digest although a registry may hold it, or why it `is_kept`: the registry did
    not answer from here, and the cluster runs that already.
    """

    name: str
    reference: str
    digest: str | None
    login: Login | None = None
    remark: str = ""
    is_kept: bool = False


@dataclass(frozen=True)
class HostResult:
    """One host, and whether it pulled and ran the image."""

    host: str
    reference: str
    seconds: float
    result: str
    error: TrainyardError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Verified:
    """Every host of a cluster; `remark` says which could not be tried, or only under which name."""

    hosts: tuple[HostResult, ...]
    remark: str = ""

    @property
    def ok(self) -> bool:
        return all(host.ok for host in self.hosts)

    @property
    def error(self) -> TrainyardError | None:
        """Return the first host's error; the table shows them all."""
        return next((host.error for host in self.hosts if host.error), None)
