"""The tasks registry.*: run, show, trust and remove a registry."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import paths, steps
from trainyard.api import lazy
from trainyard.console import report
from trainyard.console.report import Report, Table, note, step_documents
from trainyard.results.formats import size
from trainyard.tasks.command import REGISTRY, Call, task
from trainyard.tasks.image import after_push

if TYPE_CHECKING:
    from trainyard.registry.status import RegistryStatus
    from trainyard.registry.target import Target

FILE = (
    "Cluster file with the `registry:` to use, or a bare name of clusters/ (default: "
    "$TRAINYARD_CLUSTER, else local)."
)
PURGE = "Also remove the registry's images and its CA."


@task(*REGISTRY, dry=True, help={"file": FILE})
def up(call: Call) -> Report:
    """Run the registry in a container of this Docker."""
    from trainyard.registry import lifecycle as registry

    lazy.clusters.refuse_without_registry(call.cluster())

    with _open(call) as target:
        if call.dry:
            return _planned(target, registry.up_steps(target, call.progress))
        _begin(target)
        results = target.run(registry.up_steps(target, call.progress), call.progress)

    warnings: list[str] = []
    for step in results:
        warnings += step.warnings
    ca = _ca(target)
    document = {
        "address": target.address,
        "state": "up",
        "container": target.name,
        "volume": target.name,
        "ca_file": ca,
        "warnings": warnings,
        "steps": step_documents(results),
    }

    lines = [
        f"registry {target.address} is up: {_access(target)}; its images are in the volume "
        f"{target.name}"
    ]
    if ca:
        lines.append(f"its CA: {ca}")
    if target.host_port.is_loopback:
        next = "trainyard image.push"
    else:
        next = "trainyard registry.trust"
    return Report(document, lines, notes=[f"warning: {warning}" for warning in warnings], next=next)


@task(*REGISTRY, dry=True, help={"file": FILE, "purge": PURGE})
def down(call: Call, purge: bool = False) -> Report:
    """Remove the registry; its images are kept unless --purge."""
    from trainyard.registry import lifecycle as registry
    from trainyard.registry.trust import kept_here

    with _open(call) as target:
        if call.dry:
            return _planned(target, registry.down_steps(target, purge=purge))
        _begin(target)
        results = registry.down(target, call.progress, purge=purge)
        volume = target.volume
        images = registry.images_here(target)
        trust = kept_here(target)

    document = {
        "address": target.address,
        "state": "down",
        "volume": volume,
        "images_here": list(images),
        "trust_here": list(trust),
        "steps": step_documents(results),
    }
    lines = _left(target, volume, images, trust)
    return Report(document, lines, next="trainyard registry.up")


@task(*REGISTRY, dry=True, help={"file": FILE})
def status(call: Call) -> Report:
    """List the registry's repositories, tags and sizes."""
    from trainyard.registry.status import status as ask

    with _open(call) as target:
        return status_report(target, ask(target))


@task(*REGISTRY, dry=True, help={"file": FILE})
def trust(call: Call) -> Report:
    """Make this host's Docker trust the registry, without a restart; prove it with a pull."""
    from trainyard.registry import trust as registry

    with _open(call) as target:
        if call.dry:
            return _planned(target, registry.trust_steps(target))
        _begin(target)
        results = target.run(registry.trust_steps(target), call.progress)
    if target.engine.is_here:
        whose = "this host's Docker"
    else:
        whose = f"the Docker of {target.engine.host}"
    document = {"address": target.address, "trusted": True, "steps": step_documents(results)}
    return Report(document, [f"{whose} pulls from {target.address}"], next="trainyard image.push")


def status_report(target: Target, now: RegistryStatus) -> Report:
    """Return the report of a registry's state and content."""
    is_up = now.state == "up"
    line = f"registry {target.address} is {now.state}"
    if is_up:
        line += f" ({_access(target)})"

    body: list[str | Table] = [line]
    if now.content is not None:
        body += _content(now)
    elif is_up:
        body.append(f"it does not list what it holds: {now.detail}")
    else:
        body.append(f"it does not answer: {now.detail}")

    if not is_up and now.volume:
        body.append(f"its images are kept in the volume {now.volume}")
    if now.others:
        body.append(f"other registries of this Docker: {', '.join(now.others)}")
    if now.trusted is False:
        body.append("Docker here does not trust it yet")

    return Report(_document(target, now), body, next=f"trainyard {_next(target, now)}")


def _open(call: Call) -> AbstractContextManager[Target]:
    from trainyard.registry.target import find

    return find(call.file, os.environ, directory=Path.cwd(), overrides=call.overrides)


def _left(
    target: Target, volume: str | None, images: Sequence[str], trust: Sequence[str]
) -> list[str]:
    """Name what a removed registry leaves, and how to remove each part."""
    lines = [f"registry {target.address} is gone with what it held"]
    if volume:
        lines = [f"registry {target.address} is gone; its images are kept in the volume {volume}"]
        lines.append("to remove them too: trainyard registry.down --purge")
    elif images:
        lines.append(
            f"Docker keeps what was built or pulled here: docker images '{target.address}/*'"
        )
        lines.append(
            "to remove what no container uses: docker image prune --all --filter "
            "label=io.trainyard.image"
        )

    lines += trust
    if not target.host_port.is_loopback:
        lines.append(
            "other hosts on which registry.trust ran still trust the address: docs/registry.md, "
            "Trust"
        )

    return lines


def _begin(target: Target) -> None:
    if target.engine.is_here:
        where = ""
    else:
        where = f", on the Docker of {target.engine.host}"
    if target.source:
        source = paths.shown(target.source)
    else:
        source = "no file"
    note(f"registry {target.address}, as {source} says{where}")


def _planned(target: Target, todo: Sequence[steps.Step]) -> Report:
    return report.planned(
        {"address": target.address}, steps.plan(todo), next="trainyard registry.status"
    )


def _next(target: Target, now: RegistryStatus) -> str:
    if now.state != "up":
        return "registry.up"
    if now.trusted is False:
        return "registry.trust"
    if now.content and now.content.repositories:
        return after_push(target.backend)
    return "image.push"


def _content(now: RegistryStatus) -> list[str | Table]:
    content = now.content
    if content is None or not content.repositories:
        return ["it holds nothing yet"]

    rows = []
    for repository in content.repositories:
        for tag in repository.tags:
            digest = tag.problem or (tag.digest or "")[:19]
            rows.append((repository.name, tag.name, size(tag.size), digest))

    line = f"together {size(content.size)}, as layers are shared"
    if now.disk_free is not None:
        line += f"; {size(now.disk_free)} of disk are free"
    return [Table(("repository", "tag", "size", "digest"), rows), line]


def _document(target: Target, now: RegistryStatus) -> dict[str, Any]:
    registry = target.registry
    container = now.container
    repositories = now.content.repositories if now.content else ()
    return {
        "address": registry.address,
        "insecure": registry.insecure,
        "username": registry.username,
        "state": now.state,
        "volume": now.volume,
        "trusted": now.trusted,
        "disk_free": now.disk_free,
        "container": container and container.name,
        "image": container and container.image,
        "ca_file": _ca(target),
        "size": now.content.size if now.content else None,
        "repositories": [asdict(repository) for repository in repositories],
        "seen": now.detail,
        "others": list(now.others),
    }


def _ca(target: Target) -> str | None:
    from trainyard.registry.access import ca_file

    ca = ca_file(target.registry, target.environ)
    return str(ca) if ca else None


def _access(target: Target) -> str:
    protocol = "plain HTTP" if target.registry.insecure else "TLS"
    if target.registry.username:
        return f"{protocol}, user {target.registry.username}"
    return f"{protocol}, no login"
