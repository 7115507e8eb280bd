"""A cluster's image on the Docker host: its pull, and whether it runs there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from trainyard import versions
from trainyard.backends.compose.diagnosis import explained
from trainyard.backends.contract import LINT, HostResult, Site, Verified
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.images import resolve
from trainyard.images.resolve import PinnedImage
from trainyard.seams import threads
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker import transfer
from trainyard.seams.docker.containers import run_once
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# Isaac Sim's image is 20 GB: an hour at 50 Mbit/s.
PULL_SECONDS = 2 * 3600.0
# `import ray` reads thousands of files of an image that was just unpacked.
RUN_SECONDS = 180.0
# Nodes replace the image's entry point too.
PROGRAM = ("python",)
ASK = ("-c", "import ray; print(ray.__version__)")
Report = Callable[[str], None]


def pull_step(engine: Engine, image: PinnedImage) -> Step:
    """Return the step that pulls the image in the background, with progress."""
    begun: list[Future[None]] = []
    details = deque(["the host does not have it"], maxlen=1)

    def pull() -> None:
        # The pull needs a connection of its own: `done` uses `engine` at the same time.
        with docker_engine.connect(engine.environ, engine.address) as own:
            _pull(own, image, details.append)

    def done() -> Answer:
        # The pull's result is read first: if the pull has ended, the engine's answer is newer.
        ended = [pulling.result() for pulling in begun if pulling.done()]
        if docker_images.inspect(engine, image.reference):
            return YES
        if ended:
            raise OutsideError(
                f"the pull of {image.name} has ended, and Docker does not have the image",
                where=image.reference,
            )
        return no(details[0])

    def do() -> None:
        begun.append(threads.begin(pull))

    title = f"Pull the image {image.name}"
    return Step(f"pull:{image.name}", title, done, do, deadline=PULL_SECONDS, every=0.5)


def verify(spec: ClusterSpec, site: Site, *, report: Report) -> Verified:
    """Let the Docker host pull each image by its digest, and run it.

    Errors are in the result, not raised.
    """
    address = spec.compose.docker
    host = address or "here"
    began = time.monotonic()

    try:
        with docker_engine.connect(site.environ, address) as engine:
            host = engine.host
            image = resolve.pinned(spec, site.environ, directory=site.directory, engine=engine)
            others = resolve.of_groups(spec, site.environ, directory=site.directory, engine=engine)
            return Verified(
                tuple(_verified(engine, each, report) for each in resolve.distinct(image, others))
            )
    except TrainyardError as error:
        return Verified((HostResult(host, "", time.monotonic() - began, error.what, error),))


def _verified(engine: Engine, image: PinnedImage, report: Report) -> HostResult:
    began = time.monotonic()
    try:
        result = pull_and_run(engine, image, report)
    except TrainyardError as error:
        return HostResult(engine.host, image.reference, time.monotonic() - began, error.what, error)
    return HostResult(engine.host, image.reference, time.monotonic() - began, result)


def pull_and_run(engine: Engine, image: PinnedImage, report: Report) -> str:
    """Pull the image and run it once; return its Ray, such as `ray 2.9.0`.

    A wrong version of Ray raises OutsideError.
    """
    if image.digest is None and not image.remark:
        raise PrerequisiteError(
            f"no registry holds image {image.name}: there is nothing to pull",
            where=f"{engine.host} has it as {image.reference[:19]}",
            hint="Push it: trainyard image.push, and name the registry in the cluster file.",
        )

    _pull(engine, image, report)
    with explained(image=image.name, program=PROGRAM[0], error=OutsideError):
        ran = run_once(engine, image.reference, ASK, entrypoint=PROGRAM, seconds=RUN_SECONDS)

    version = ran.stdout.strip()
    if ran.code == 0 and version == versions.RAY:
        return f"ray {version}"

    raise OutsideError(
        f"image {image.name} does not run on {engine.host} as a Ray {versions.RAY} node",
        where=f"{' '.join(PROGRAM + ASK)}: exit code {ran.code}; "
        f"{(ran.stderr or version).strip()[-300:]}",
        hint=LINT,
    )


def _pull(engine: Engine, image: PinnedImage, report: Report) -> None:
    transfer.pull(engine, image.reference, login=image.login, on_progress=report)
