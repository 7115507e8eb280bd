"""Run a registry of one's own, look into it, make Docker trust it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from trainyard.tasks.cluster import JSON, SET
from trainyard.tasks.command import task

if TYPE_CHECKING:
    from trainyard.registry.site import Site

FILE = "Cluster file whose `registry:` is meant, or a bare name of clusters/ (default: $TRAINYARD_CLUSTER, else local)."
HELP = {"file": FILE, "set": SET, "json": JSON}
PURGE = "Remove the images in it, too, and its CA."


@task(iterable=["set_"], help=HELP)
def up(context: Context, file: str | None = None, set_: list[str] | None = None, json: bool = False) -> None:
    """Run the registry in a container of this Docker."""
    from trainyard import progress
    from trainyard.registry import up as registry
    from trainyard.tasks import registry_output as output

    with _find(file, set_) as site:
        if context.config.run.dry:
            output.planned(site, registry.plan_up(site), json=json)
            return
        output.begun(site)
        output.made(site, registry.up(site, progress.for_stream()), json=json)


@task(iterable=["set_"], help={**HELP, "purge": PURGE})
def down(
    context: Context,
    file: str | None = None,
    set_: list[str] | None = None,
    json: bool = False,
    purge: bool = False,
) -> None:
    """Remove the registry; its images are kept unless --purge."""
    from trainyard import progress
    from trainyard.registry import down as registry
    from trainyard.tasks import registry_output as output

    with _find(file, set_) as site:
        if context.config.run.dry:
            output.planned(site, registry.plan_down(site, purge=purge), json=json)
            return
        output.begun(site)
        results = registry.down(site, progress.for_stream(), purge=purge)
        kept, here = registry.kept_volume(site), registry.images_here(site)
        output.removed(site, results, kept=kept, here=here, json=json)


@task(iterable=["set_"], help=HELP)
def status(context: Context, file: str | None = None, set_: list[str] | None = None, json: bool = False) -> None:
    """List its repositories, tags and sizes."""
    from trainyard.registry.status import status as look
    from trainyard.tasks import registry_output as output

    with _find(file, set_) as site:
        output.status(site, look(site), json=json)


@task(iterable=["set_"], help=HELP)
def trust(context: Context, file: str | None = None, set_: list[str] | None = None, json: bool = False) -> None:
    """Make this host's Docker trust it, without a restart; prove it with a pull."""
    from trainyard import progress
    from trainyard.registry import trust as registry
    from trainyard.tasks import registry_output as output

    with _find(file, set_) as site:
        if context.config.run.dry:
            output.planned(site, registry.plan_trust(site), json=json)
            return
        output.begun(site)
        output.trusted(site, registry.trust(site, progress.for_stream()), json=json)


def _find(file: str | None, set_: list[str] | None) -> AbstractContextManager[Site]:
    from trainyard.registry import site

    return site.find(file, os.environ, directory=Path.cwd(), overrides=set_ or ())
