"""Build, check and push training images, and prove that the nodes can run them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from trainyard.tasks.cluster import BACKEND, JSON, SET
from trainyard.tasks.command import task

if TYPE_CHECKING:
    from trainyard.images.image_command import ImageCommand

IMAGE = "Name of a directory of images/ (default: the cluster file's `image`, else ray-cpu)."
FILE = "Cluster file, or a bare name of clusters/ (default: $TRAINYARD_CLUSTER, else local)."
BASE = "Build on this image instead of the one that image.yaml names."
PLATFORM = "Build for nodes of another kind than the Docker host, such as linux/arm64."
HELP = {
    "image": IMAGE,
    "file": FILE,
    "set": SET,
    "base": BASE,
    "platform": PLATFORM,
    "backend": BACKEND,
    "json": JSON,
}


@task(
    positional=["image"],
    iterable=["set_"],
    help={**HELP, "cache": "With --no-cache: run every stage again."},
)
def build(
    context: Context,
    image: str = "",
    file: str | None = None,
    set_: list[str] | None = None,
    base: str = "",
    platform: str = "",
    backend: str = "",
    cache: bool = True,
    json: bool = False,
) -> None:
    """Build an image under the hash of its content; quick where nothing changed."""
    from trainyard import progress
    from trainyard.images import pipeline
    from trainyard.tasks import image_output as output

    with _find(image, file, set_, base, platform, backend) as command:
        if context.config.run.dry:
            output.planned(command, pipeline.plan_build(command, no_cache=not cache), command="image.build", json=json)
            return
        output.made(command, pipeline.run_build(command, progress.for_stream(), no_cache=not cache), json=json)


@task(positional=["image"], iterable=["set_"], help=HELP)
def lint(
    context: Context,
    image: str = "",
    file: str | None = None,
    set_: list[str] | None = None,
    base: str = "",
    platform: str = "",
    backend: str = "",
    json: bool = False,
) -> None:
    """Run an image once and look at all that clusters need of it; exit 5 if something is wrong."""
    from trainyard.images import pipeline
    from trainyard.tasks import image_output as output

    with _find(image, file, set_, base, platform, backend) as command:
        output.checked(command, pipeline.run_lint(command, on_progress=output.looking), json=json)


@task(
    positional=["image"],
    iterable=["set_"],
    help={**HELP, "skip_lint": "Push it as it is, without looking at it first."},
)
def push(
    context: Context,
    image: str = "",
    file: str | None = None,
    set_: list[str] | None = None,
    base: str = "",
    platform: str = "",
    backend: str = "",
    skip_lint: bool = False,
    json: bool = False,
) -> None:
    """Build an image if it changed, check it, push it; clusters run the digest that this prints."""
    from trainyard import progress
    from trainyard.images import pipeline
    from trainyard.tasks import image_output as output

    with _find(image, file, set_, base, platform, backend) as command:
        if context.config.run.dry:
            output.planned(command, pipeline.plan_push(command, skip_lint=skip_lint), command="image.push", json=json)
            return
        output.sent(command, pipeline.run_push(command, progress.for_stream(), skip_lint=skip_lint), json=json)


@task(positional=["image"], iterable=["set_"], help=HELP)
def verify(
    context: Context,
    image: str = "",
    file: str | None = None,
    set_: list[str] | None = None,
    base: str = "",
    platform: str = "",
    backend: str = "",
    json: bool = False,
) -> None:
    """Let every host of a cluster pull what was pushed, by its digest, and run it; exit 6 if one cannot."""
    from trainyard import verifying
    from trainyard.images import image_command
    from trainyard.tasks import image_output as output

    flags = image_command.ImageFlags(image, file, set_ or (), base, platform, backend)
    spec, source = image_command.read(flags, os.environ, directory=Path.cwd())
    if context.config.run.dry:
        output.would_verify(spec, json=json)
        return
    found = verifying.verify(spec, flags, os.environ, source=source, directory=Path.cwd(), report=output.looking)
    output.verified(found, json=json)


@task(name="list", iterable=["set_"], help={"file": FILE, "set": SET, "backend": BACKEND, "json": JSON})
def list_(
    context: Context, file: str | None = None, set_: list[str] | None = None, backend: str = "", json: bool = False
) -> None:
    """List the images that can be built here, and what Docker has of each."""
    from trainyard.images import image_command, pipeline
    from trainyard.tasks import image_output as output

    flags = image_command.ImageFlags(file=file, overrides=set_ or (), backend=backend)
    with image_command.find(flags, os.environ, directory=Path.cwd(), with_image=False) as command:
        output.listed(pipeline.listed(command), json=json)


def _find(
    image: str, file: str | None, set_: list[str] | None, base: str, platform: str, backend: str
) -> AbstractContextManager[ImageCommand]:
    from trainyard.images import image_command

    flags = image_command.ImageFlags(image, file, set_ or (), base, platform, backend)
    return image_command.find(flags, os.environ, directory=Path.cwd())
