"""Build, check and push training images, and prove that the nodes can run them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.tasks import lazy
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
    with _open(_flags(call, image, base, platform)) as command:
        if call.dry:
            return lazy.image_report.planned(
                command, lazy.pipeline.plan_build(command, no_cache=not cache), again="image.build"
            )
        return lazy.image_report.built(command, *lazy.pipeline.run_build(command, call.progress, no_cache=not cache))


@task(*CLUSTER, positional=["image"], help=HELP)
def lint(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Run an image once and look at all that clusters need of it; exit 5 if something is wrong."""
    with _open(_flags(call, image, base, platform)) as command:
        return lazy.image_report.checked(lazy.pipeline.run_lint(command, on_progress=lazy.image_report.busy))


@task(
    *CLUSTER,
    dry=True,
    positional=["image"],
    help={**HELP, "skip_lint": "Push it as it is, without looking at it first."},
)
def push(call: Call, image: str = "", base: str = "", platform: str = "", skip_lint: bool = False) -> Report:
    """Build an image if it changed, check it, push it; clusters run the digest that this prints."""
    with _open(_flags(call, image, base, platform)) as command:
        if call.dry:
            return lazy.image_report.planned(
                command, lazy.pipeline.plan_push(command, skip_lint=skip_lint), again="image.push"
            )
        return lazy.image_report.pushed(command, *lazy.pipeline.run_push(command, call.progress, skip_lint=skip_lint))


@task(*CLUSTER, dry=True, positional=["image"], help=HELP)
def verify(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Let every host of a cluster pull what was pushed, by its digest, and run it; exit 6 if one cannot."""
    spec, _ = lazy.image_command.read(_flags(call, image, base, platform), os.environ, directory=call.here)
    if call.dry:
        return lazy.image_report.would_verify(spec)
    cluster = call.cluster()
    return lazy.image_report.verified(cluster.backend.verify(spec, cluster.tools, report=lazy.image_report.busy))


@task(*CLUSTER, dry=True, name="list")
def list_(call: Call) -> Report:
    """List the images that can be built here, and what Docker has of each."""
    with _open(_flags(call), with_image=False) as command:
        return lazy.image_report.listed(lazy.pipeline.listed(command))


def _flags(call: Call, image: str = "", base: str = "", platform: str = "") -> ImageFlags:
    return lazy.image_command.ImageFlags(image, call.file, call.overrides, base, platform, call.backend or "")


def _open(flags: ImageFlags, *, with_image: bool = True) -> AbstractContextManager[ImageCommand]:
    return lazy.image_command.find(flags, os.environ, directory=Path.cwd(), with_image=with_image)
