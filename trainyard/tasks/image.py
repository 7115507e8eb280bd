"""Build, check and push training images, and prove that the nodes can run them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.tasks.report import Report

if TYPE_CHECKING:
    from trainyard.images.image_command import ImageCommand, ImageFlags

HELP = {
    "image": "Name of a directory of images/ (default: the cluster file's `image`, else ray-cpu).",
    "base": "Build on this image instead of the one that image.yaml names.",
    "platform": "Build for nodes of another kind than the Docker host, such as linux/arm64.",
}


@task(*CLUSTER, dry=True, positional=["image"], help={**HELP, "cache": "With --no-cache: run every stage again."})
def build(call: Call, image: str = "", base: str = "", platform: str = "", cache: bool = True) -> Report:
    """Build an image under the hash of its content; quick where nothing changed."""
    from trainyard.images import pipeline
    from trainyard.tasks import image_report

    with _open(_flags(call, image, base, platform)) as command:
        if call.dry:
            return image_report.planned(command, pipeline.plan_build(command, no_cache=not cache), again="image.build")
        return image_report.built(command, pipeline.run_build(command, call.progress, no_cache=not cache))


@task(*CLUSTER, positional=["image"], help=HELP)
def lint(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Run an image once and look at all that clusters need of it; exit 5 if something is wrong."""
    from trainyard.images import pipeline
    from trainyard.tasks import image_report

    with _open(_flags(call, image, base, platform)) as command:
        return image_report.checked(pipeline.run_lint(command, on_progress=image_report.busy))


@task(
    *CLUSTER,
    dry=True,
    positional=["image"],
    help={**HELP, "skip_lint": "Push it as it is, without looking at it first."},
)
def push(call: Call, image: str = "", base: str = "", platform: str = "", skip_lint: bool = False) -> Report:
    """Build an image if it changed, check it, push it; clusters run the digest that this prints."""
    from trainyard.images import pipeline
    from trainyard.tasks import image_report

    with _open(_flags(call, image, base, platform)) as command:
        if call.dry:
            return image_report.planned(command, pipeline.plan_push(command, skip_lint=skip_lint), again="image.push")
        return image_report.pushed(command, pipeline.run_push(command, call.progress, skip_lint=skip_lint))


@task(*CLUSTER, dry=True, positional=["image"], help=HELP)
def verify(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Let every host of a cluster pull what was pushed, by its digest, and run it; exit 6 if one cannot."""
    from trainyard.images import image_command
    from trainyard.tasks import image_report

    spec, _ = image_command.read(_flags(call, image, base, platform), os.environ, directory=call.here)
    if call.dry:
        return image_report.would_verify(spec)
    cluster = call.cluster()
    return image_report.verified(cluster.backend.verify(spec, cluster.tools, report=image_report.busy))


@task(*CLUSTER, dry=True, name="list")
def list_(call: Call) -> Report:
    """List the images that can be built here, and what Docker has of each."""
    from trainyard.images import pipeline
    from trainyard.tasks import image_report

    with _open(_flags(call), with_image=False) as command:
        return image_report.listed(pipeline.listed(command))


def _flags(call: Call, image: str = "", base: str = "", platform: str = "") -> ImageFlags:
    from trainyard.images import image_command

    return image_command.ImageFlags(image, call.file, call.overrides, base, platform, call.backend or "")


def _open(flags: ImageFlags, *, with_image: bool = True) -> AbstractContextManager[ImageCommand]:
    from trainyard.images import image_command

    return image_command.find(flags, os.environ, directory=Path.cwd(), with_image=with_image)
