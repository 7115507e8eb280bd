"""The image of a cluster: which one exactly, and how it comes to the Docker host."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainyard.backends.contract import Tools
from trainyard.errors import OutsideError
from trainyard.images import resolve
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# Isaac Sim's image is 20 GB: an hour at 50 Mbit/s.
PULL_SECONDS = 2 * 3600.0
Report = Callable[[str], None]


def pinned_for(spec: ClusterSpec, tools: Tools, engine: Engine) -> PinnedImage:
    """Return the exact image that the file means now."""
    return resolve.for_engine(spec, tools.environ, engine, directory=tools.directory)


def step(engine: Engine, image: PinnedImage) -> Step:
    """Return the step after which the Docker host has the image; it is pulled in the background, and says how far."""
    pulling = _Pulling(lambda report: _pull(engine, image, report))

    def done() -> Answer:
        # Asked before the engine is: what it has by then is what the pull left.
        ended = pulling.has_ended
        if docker_images.inspect(engine, image.reference):
            return YES
        if ended:
            raise OutsideError(f"Docker ended the pull of {image.name}, and does not have it", where=image.reference)
        return no(pulling.seen or "it is not there")

    return Step(f"Pull the image {image.name}", done=done, do=pulling.start, deadline=PULL_SECONDS, every=0.5)


def _pull(engine: Engine, image: PinnedImage, report: Report) -> None:
    auth = image.login.for_engine(docker_images.registry_of(image.reference)) if image.login else None
    # A connection of its own: the step goes on asking through the other one.
    with docker_engine.engine(engine.environ, address=engine.address) as own:
        docker_images.pull(own, image.reference, auth=auth, on_progress=report)


class _Pulling:
    """One pull, and the error that ended it."""

    def __init__(self, pull: Callable[[Report], None]) -> None:
        self.seen = ""
        self._pull = pull
        self._error: BaseException | None = None
        self._ended = False

    def start(self) -> None:
        self._ended = False
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def has_ended(self) -> bool:
        """Say whether it was started and is over. Raises what the pull raised."""
        if self._error:
            raise self._error
        return self._ended

    def _run(self) -> None:
        try:
            self._pull(self._saw)
        except BaseException as error:
            # Handed to whoever waits for the image.
            self._error = error
        self._ended = True

    def _saw(self, text: str) -> None:
        self.seen = text
