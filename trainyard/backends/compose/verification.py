"""`image.verify` on a Docker host: its engine pulls the image and runs it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from trainyard import versions
from trainyard.backends.compose.image import pinned_for
from trainyard.backends.contract import Tools
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.images.types import PinnedImage
from trainyard.images.verified import LINT, HostResult, Verified
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine, engine
from trainyard.seams.docker.once import Once, run_once
from trainyard.spec.cluster import ClusterSpec

# Ray's import reads some thousand files of an image that was just unpacked.
RUN_SECONDS = 180.0
# Compose gives nodes another entry point than the image's, too.
PROGRAM = ("python",)
# What Docker says of a program that is not there (runc).
NO_PROGRAM = re.compile(r"executable file not found|no such file or directory")
ASK = ("-c", "import ray; print(ray.__version__)")


def verify(spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]) -> Verified:
    """Let the Docker host pull the image by its digest, which asks the registry, and run it."""
    address = spec.compose.docker
    began = time.monotonic()
    host, reference = address or "here", ""
    try:
        with engine(tools.environ, address=address) as there:
            host = there.host
            image = pinned_for(spec, tools, there)
            reference = image.reference
            said = _pull_and_run(there, image, report)
    except TrainyardError as error:
        return Verified((HostResult(host, reference, time.monotonic() - began, error.what, error),))
    return Verified((HostResult(host, reference, time.monotonic() - began, said),))


def _pull_and_run(there: Engine, image: PinnedImage, report: Callable[[str], None]) -> str:
    """Return what the image said: its Ray version."""
    if image.digest is None:
        raise PrerequisiteError(
            f"no registry holds image {image.name}: there is nothing to pull",
            where=f"{there.host} has it as {image.reference[:19]}",
            hint="Push it: invoke image.push, and name the registry in the cluster file.",
        )
    registry = docker_images.registry_of(image.reference)
    auth = image.login.for_engine(registry) if image.login else {}
    docker_images.pull(there, image.reference, auth=auth, on_progress=report)
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
