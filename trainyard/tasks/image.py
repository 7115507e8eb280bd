"""Build, check and push training images, and prove that the nodes can run them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard.tasks import lazy
from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.tasks.report import Report

if TYPE_CHECKING:
    from trainyard.images.image_command import ImageCommand
    from trainyard.lifecycle import Cluster

HELP = {
    "image": "Name of a directory of images/ (default: the cluster file's `image`, else ray-cpu).",
    "base": "Build on this image instead of the one that image.yaml names.",
    "platform": "Build for nodes of another kind than the Docker host, such as linux/arm64.",
}


@task(*CLUSTER, dry=True, positional=["image"], help={**HELP, "cache": "With --no-cache: run every stage again."})
def build(call: Call, image: str = "", base: str = "", platform: str = "", cache: bool = True) -> Report:
    """Build an image under the hash of its content; quick where nothing changed."""
    with _open(call, image, base, platform) as command:
        if call.dry:
            return lazy.image_report.planned(
                command, lazy.pipeline.plan_build(command, no_cache=not cache), again="image.build"
            )
        return lazy.image_report.built(*lazy.pipeline.run_build(command, call.progress, no_cache=not cache), base=base)


@task(*CLUSTER, positional=["image"], help=HELP)
def lint(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Run an image once and look at all that clusters need of it; exit 5 if something is wrong."""
    with _open(call, image, base, platform) as command:
        return lazy.image_report.checked(lazy.pipeline.run_lint(command, on_progress=lazy.image_report.busy))


@task(
    *CLUSTER,
    dry=True,
    positional=["image"],
    help={**HELP, "skip_lint": "Push it as it is, without looking at it first."},
)
def push(call: Call, image: str = "", base: str = "", platform: str = "", skip_lint: bool = False) -> Report:
    """Build an image if it changed, check it, push it; clusters run the digest that this prints."""
    with _open(call, image, base, platform) as command:
        if call.dry:
            return lazy.image_report.planned(
                command, lazy.pipeline.plan_push(command, skip_lint=skip_lint), again="image.push"
            )
        return lazy.image_report.pushed(command, *lazy.pipeline.run_push(command, call.progress, skip_lint=skip_lint))


@task(*CLUSTER, dry=True, positional=["image"], help=HELP)
def verify(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Let every host of a cluster pull what was pushed, by its digest, and run it; exit 6 if one cannot."""
    cluster = _cluster(call, image, base, platform)
    if call.dry:
        return lazy.image_report.would_verify(cluster.spec)
    found = cluster.backend.verify(cluster.spec, cluster.tools, report=lazy.image_report.busy)
    return lazy.image_report.verified(found)


@task(*CLUSTER, dry=True, name="list")
def list_(call: Call) -> Report:
    """List the images that can be built here, and what Docker has of each."""
    with _open(call) as command:
        return lazy.image_report.listed(lazy.pipeline.listed(command))


def _cluster(call: Call, image: str = "", base: str = "", platform: str = "") -> Cluster:
    """Return the cluster that the flags mean, with the image and its build as they say."""
    named = {"base": base, "platform": platform}
    overrides = (*call.overrides, *(f"build.{name}={value}" for name, value in named.items() if value))
    cluster = replace(call, overrides=overrides).cluster()
    spec = cluster.spec.model_copy(update={"image": image}) if image else cluster.spec
    return replace(cluster, loaded=replace(cluster.loaded, spec=spec))


def _open(call: Call, image: str = "", base: str = "", platform: str = "") -> AbstractContextManager[ImageCommand]:
    loaded = _cluster(call, image, base, platform).loaded
    return lazy.image_command.find(loaded, os.environ, directory=call.here)
