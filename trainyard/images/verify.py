"""Prove on every host of a cluster that it can pull the image and run it: `image.verify`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard import versions
from trainyard.errors import OutsideError, PrerequisiteError, RequestError, TrainyardError
from trainyard.images.pinned import PinnedImage, pinned
from trainyard.seams import docker_images
from trainyard.seams.docker_engine import Engine, engine
from trainyard.seams.docker_once import Once, run_once
from trainyard.spec import ClusterSpec

# Ray's import reads some thousand files of an image that was just unpacked.
RUN_SECONDS = 180.0
# Compose gives nodes another entry point than the image's, too.
PROGRAM = ("python",)
# What Docker says of a program that is not there (runc).
NO_PROGRAM = re.compile(r"executable file not found|no such file or directory")
LINT = "See what is wrong with it: invoke image.lint"
ASK = ("-c", "import ray; print(ray.__version__)")


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
        """Say whether it did."""
        return self.error is None


@dataclass(frozen=True)
class Verified:
    """Every host of a cluster; `remark` says which could not be tried, or only under which name."""

    hosts: tuple[HostResult, ...]
    remark: str = ""

    @property
    def ok(self) -> bool:
        """Say whether all of them pulled and ran the image."""
        return all(host.ok for host in self.hosts)

    def check(self) -> None:
        """Raise what is wrong: the host's own error if it is one, else how many they are."""
        failed = [host for host in self.hosts if host.error]
        if len(failed) == 1 and failed[0].error:
            raise failed[0].error
        if failed:
            names = ", ".join(host.host for host in failed)
            raise OutsideError(f"{len(failed)} of {len(self.hosts)} hosts cannot run the image", where=names)


def verify(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    directory: Path,
    flag: str = "",
    tell: Callable[[str], None] = lambda text: None,
) -> Verified:
    """Let every host of the cluster pull the image by its digest, which asks the registry, and run it.

    Raises RequestError for a cluster that runs no images.
    """
    return Verified(tuple(_on_host(spec, address, environ, directory, flag, tell) for address in _docker_hosts(spec)))


def _docker_hosts(spec: ClusterSpec) -> Sequence[str | None]:
    """Return the addresses of the Docker engines that run the cluster's nodes; None is the one of this machine."""
    if spec.backend == "compose":
        return (spec.compose.docker,)
    raise RequestError(
        f"cluster {spec.name} ({spec.backend}) runs no images: there is nothing to verify",
        hint="Its nodes are not containers of ours. Name a cluster whose backend is compose or kuberay: "
        "invoke image.verify --backend compose",
    )


def _on_host(
    spec: ClusterSpec,
    address: str | None,
    environ: Mapping[str, str],
    directory: Path,
    flag: str,
    tell: Callable[[str], None],
) -> HostResult:
    began = time.monotonic()
    host, reference = address or "here", ""
    try:
        with engine(environ, address=address) as there:
            host = there.host
            image = pinned(spec, environ, there, directory=directory, flag=flag)
            reference = image.reference
            result = _pull_and_run(there, image, tell)
    except TrainyardError as error:
        return HostResult(host, reference, time.monotonic() - began, error.what, error)
    return HostResult(host, reference, time.monotonic() - began, result)


def _pull_and_run(there: Engine, image: PinnedImage, tell: Callable[[str], None]) -> str:
    """Return what the image said: its Ray version."""
    if image.digest is None:
        raise PrerequisiteError(
            f"no registry holds image {image.name}: there is nothing to pull",
            where=f"{there.host} has it as {image.reference[:19]}",
            hint="Push it: invoke image.push, and name the registry in the cluster file.",
        )
    registry = docker_images.registry_of(image.reference)
    auth = image.login.for_engine(registry) if image.login else {}
    docker_images.pull(there, image.reference, auth=auth, on_progress=tell)
    ran = _run(there, image)
    said = ran.stdout.strip()
    if ran.code == 0 and said == versions.RAY:
        return f"ray {said}"
    seen = "it did not end" if ran.code is None else f"exit code {ran.code}"
    raise OutsideError(
        f"image {image.name} does not run on {there.host} as a Ray {versions.RAY} node"
        + (f": it has Ray {said}" if ran.code == 0 else ""),
        where=f"{' '.join(PROGRAM + ASK)}: {seen}; {ran.stderr.strip()[-300:]}" if ran.code != 0 else image.reference,
        hint=LINT,
    )


def _run(there: Engine, image: PinnedImage) -> Once:
    """Ask the image's Ray for its version. Raises OutsideError in our words where there is no Python."""
    try:
        return run_once(there, image.reference, ASK, entrypoint=PROGRAM, seconds=RUN_SECONDS)
    except OutsideError as error:
        if not NO_PROGRAM.search(error.where or ""):
            raise
        raise OutsideError(
            f"image {image.name} has no `{PROGRAM[0]}` on its PATH", where=image.reference, hint=LINT
        ) from error
