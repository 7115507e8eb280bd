"""Run a registry of one's own, look into it, make Docker trust it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from trainyard.tasks import lazy
from trainyard.tasks.command import REGISTRY, Call, task
from trainyard.tasks.report import Report

if TYPE_CHECKING:
    from trainyard.registry.target import Target

FILE = "Cluster file whose `registry:` is meant, or a bare name of clusters/ (default: $TRAINYARD_CLUSTER, else local)."
PURGE = "Remove the images in it, too, and its CA."


@task(*REGISTRY, dry=True, help={"file": FILE})
def up(call: Call) -> Report:
    """Run the registry in a container of this Docker."""
    from trainyard.registry import up as registry

    with _open(call) as target:
        if call.dry:
            return lazy.registry_report.planned(target, registry.up_steps(target))
        lazy.registry_report.begin(target)
        return lazy.registry_report.made(target, registry.up(target, call.progress))


@task(*REGISTRY, dry=True, help={"file": FILE, "purge": PURGE})
def down(call: Call, purge: bool = False) -> Report:
    """Remove the registry; its images are kept unless --purge."""
    from trainyard.registry import down as registry

    with _open(call) as target:
        if call.dry:
            return lazy.registry_report.planned(target, registry.down_steps(target, purge=purge))
        lazy.registry_report.begin(target)
        results = registry.down(target, call.progress, purge=purge)
        kept, images = registry.kept_volume(target), registry.images_here(target)
        return lazy.registry_report.removed(target, results, kept=kept, images=images)


@task(*REGISTRY, dry=True, help={"file": FILE})
def status(call: Call) -> Report:
    """List its repositories, tags and sizes."""
    from trainyard.registry.status import status as ask

    with _open(call) as target:
        return lazy.registry_report.status(target, ask(target))


@task(*REGISTRY, dry=True, help={"file": FILE})
def trust(call: Call) -> Report:
    """Make this host's Docker trust it, without a restart; prove it with a pull."""
    from trainyard.registry import trust as registry

    with _open(call) as target:
        if call.dry:
            return lazy.registry_report.planned(target, registry.trust_steps(target))
        lazy.registry_report.begin(target)
        return lazy.registry_report.trusted(target, registry.trust(target, call.progress))


def _open(call: Call) -> AbstractContextManager[Target]:
    from trainyard.registry.target import find

    return find(call.file, os.environ, directory=call.here, overrides=call.overrides)
