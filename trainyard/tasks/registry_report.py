"""What the registry tasks print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trainyard import paths
from trainyard.registry.access import ca_file
from trainyard.registry.status import RegistryStatus
from trainyard.registry.target import Target
from trainyard.registry.up import CHECK
from trainyard.results.formats import size
from trainyard.steps import Step, StepResult, plan
from trainyard.tasks import report
from trainyard.tasks.image_report import after_push
from trainyard.tasks.report import Report, Table, note, step_documents


def begin(target: Target) -> None:
    """Say which registry is meant, by which file, and on whose Docker."""
    where = "" if target.engine.is_here else f", on the Docker of {target.engine.host}"
    source = paths.shown(target.source) if target.source else "no file"
    note(f"registry {target.address}, as {source} says{where}")


def made(target: Target, results: Sequence[StepResult]) -> Report:
    """Say where the registry answers, how, and what the user should know about it."""
    checks = [step for step in results if step.title == CHECK and step.detail]
    warnings = [warning for step in checks for warning in step.detail.split("; ")]
    ca = ca_file(target.registry, target.environ)
    facts = {"address": target.address, "state": "up", "container": target.name, "volume": target.name}
    up = f"registry {target.address} is up: {_access(target)}; its images are in the volume {target.name}"
    return Report(
        {**facts, "ca_file": str(ca) if ca else None, "warnings": warnings, "steps": step_documents(results)},
        [up, *([f"its CA: {ca}"] if ca else [])],
        notes=[f"warning: {warning}" for warning in warnings],
        next="invoke image.push" if target.host_port.is_loopback else "invoke registry.trust",
    )


def planned(target: Target, steps: Sequence[Step]) -> Report:
    return report.planned({"address": target.address}, plan(steps), next="invoke registry.status")


def removed(target: Target, results: Sequence[StepResult], *, kept: str | None, images: Sequence[str]) -> Report:
    """Say what was removed, and what was kept: the volume, and the names that images in Docker have."""
    lines = [f"registry {target.address} is gone, nothing of it is left"]
    if kept:
        what = f"registry {target.address} is gone; its images are kept in the volume {kept}"
        lines = [what, "to remove them too: invoke registry.down --purge"]
    elif images:
        lines.append(f"Docker keeps what was built or pulled here: docker images '{target.address}/*'")
        lines.append("to remove what no container uses: docker image prune --all --filter label=io.trainyard.image")
    facts = {"address": target.address, "state": "down", "volume": kept, "images_here": list(images)}
    return Report({**facts, "steps": step_documents(results)}, lines, next="invoke registry.up")


def status(target: Target, now: RegistryStatus) -> Report:
    """Show the repositories."""
    is_up = now.state == "up"
    body: list[str | Table] = [f"registry {target.address} is {now.state}" + (f" ({_access(target)})" if is_up else "")]
    if now.content is None:
        body.append(f"it does not {'list what it holds' if is_up else 'answer'}: {now.detail}")
    else:
        body += _content(now)
    if not is_up and now.volume:
        body.append(f"its images are kept in the volume {now.volume}")
    if now.others:
        body.append(f"other registries of this Docker: {', '.join(now.others)}")
    if now.trusted is False:
        body.append("Docker here does not trust it yet")
    return Report(_document(target, now), body, next=f"invoke {_next(target, now)}")


def trusted(target: Target, results: Sequence[StepResult]) -> Report:
    whose = "this host's Docker" if target.engine.is_here else f"the Docker of {target.engine.host}"
    document = {"address": target.address, "trusted": True, "steps": step_documents(results)}
    return Report(document, [f"{whose} pulls from {target.address}"], next="invoke image.push")


def _next(target: Target, now: RegistryStatus) -> str:
    if now.state != "up":
        return "registry.up"
    if now.trusted is False:
        return "registry.trust"
    return after_push(target.backend) if now.content and now.content.repositories else "image.push"


def _content(now: RegistryStatus) -> list[str | Table]:
    content = now.content
    if content is None or not content.repositories:
        return ["it holds nothing yet"]
    rows = [
        (repository.name, tag.name, size(tag.size), tag.problem or (tag.digest or "")[:19])
        for repository in content.repositories
        for tag in repository.tags
    ]
    free = f"; {size(now.disk_free)} of disk are free" if now.disk_free is not None else ""
    table = Table(("repository", "tag", "size", "digest"), rows)
    return [table, f"together {size(content.size)}, as layers are shared{free}"]


def _document(target: Target, now: RegistryStatus) -> dict[str, Any]:
    registry, container, ca = target.registry, now.container, ca_file(target.registry, target.environ)
    return {
        **{name: getattr(registry, name) for name in ("address", "insecure", "username")},
        **{name: getattr(now, name) for name in ("state", "volume", "trusted", "disk_free")},
        "container": container and container.name,
        "image": container and container.image,
        "ca_file": str(ca) if ca else None,
        "size": now.content.size if now.content else None,
        "repositories": [asdict(repository) for repository in now.content.repositories] if now.content else [],
        "seen": now.detail,
        "others": list(now.others),
    }


def _access(target: Target) -> str:
    protocol = "plain HTTP" if target.registry.insecure else "TLS"
    return f"{protocol}, user {target.registry.username}" if target.registry.username else f"{protocol}, no login"
