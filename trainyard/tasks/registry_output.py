"""What the registry tasks print: a document for machines, or a table and the next command for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trainyard.backends.wording import counted
from trainyard.registry import settings
from trainyard.registry.site import Site
from trainyard.registry.status import RegistryStatus
from trainyard.registry.up import CHECKS
from trainyard.results.formats import size
from trainyard.steps import PlannedStep, StepResult
from trainyard.tasks.command_hints import complete
from trainyard.tasks.image_output import after_push
from trainyard.tasks.output import as_document, print_json, print_next, print_table, say


def begun(site: Site) -> None:
    """Say which registry is meant, by which file, and on whose Docker."""
    where = "" if site.engine.is_here else f", on the Docker of {site.engine.host}"
    say(f"registry {site.address}, as {site.source} says{where}", file=sys.stderr)


def made(site: Site, results: Sequence[StepResult], *, json: bool) -> None:
    """Print where the registry answers, how, and what the user should know about it."""
    warnings = [
        one for result in results if result.title in CHECKS and result.detail for one in result.detail.split("; ")
    ]
    for warning in warnings:
        say(f"warning: {warning}", file=sys.stderr)
    ca = settings.ca_file(site.registry, site.environ)
    if json:
        facts = {"address": site.address, "state": "up", "container": site.name, "volume": site.name}
        print_json({**facts, "ca_file": str(ca) if ca else None, "warnings": warnings, "steps": _steps(results)})
        return
    say(f"registry {site.address} is up: {_how(site)}; its images are in the volume {site.name}")
    if ca:
        say(f"its CA: {ca}")
    if site.place.is_loopback:
        print_next("invoke image.push")
    else:
        print_next("invoke registry.trust")


def planned(site: Site, plan: Sequence[PlannedStep], *, json: bool) -> None:
    """Print what would be done."""
    if json:
        print_json({"address": site.address, "steps": [as_document(step) for step in plan]})
        return
    for step in plan:
        say(f"  {step.state:<7}  {step.title}" + (f"  ({step.detail})" if step.detail else ""))
    print_next("invoke registry.status")


def removed(
    site: Site, results: Sequence[StepResult], *, kept: str | None, here: Sequence[str] = (), json: bool
) -> None:
    """Print what was removed, and what was kept: the volume, and the names `here` of images in Docker."""
    if json:
        facts = {"address": site.address, "state": "down", "volume": kept, "images_here": list(here)}
        print_json({**facts, "steps": _steps(results)})
        return
    if kept:
        say(f"registry {site.address} is gone; its images are kept in the volume {kept}")
        purge = "to remove them too: invoke registry.down --purge"
        say(complete(purge))
    else:
        say(f"registry {site.address} is gone, nothing of it is left")
    if here and not kept:
        names = counted(len(here), "name")
        say(f"Docker keeps what was built or pulled here, {names}: docker images '{site.address}/*'")
        say("to remove what no container uses: docker image prune --all --filter label=io.trainyard.image")
    print_next("invoke registry.up")


def status(site: Site, now: RegistryStatus, *, json: bool) -> None:
    """Print the repositories."""
    if json:
        print_json(_document(now))
        return
    say(f"registry {now.address} is {now.state}" + (f" ({_how(site)})" if now.state == "up" else ""))
    if now.content is None:
        say(f"it does not {'list what it holds' if now.state == 'up' else 'answer'}: {now.seen}")
    else:
        _print_content(now)
    if now.state != "up" and now.volume:
        say(f"its images are kept in the volume {now.volume}")
    if now.others:
        say(f"other registries of this Docker: {', '.join(now.others)}")
    if now.trusted is False:
        say("Docker here does not trust it yet")
    print_next(f"invoke {_next(site, now)}")


def trusted(site: Site, results: Sequence[StepResult], *, json: bool) -> None:
    """Print that Docker pulls from the registry."""
    if json:
        print_json({"address": site.address, "trusted": True, "steps": _steps(results)})
        return
    whose = "this host's Docker" if site.engine.is_here else f"the Docker of {site.engine.host}"
    say(f"{whose} pulls from {site.address}")
    print_next("invoke image.push")


def _next(site: Site, now: RegistryStatus) -> str:
    if now.state != "up":
        return "registry.up"
    if now.trusted is False:
        return "registry.trust"
    if not now.content or not now.content.repositories:
        return "image.push"
    following = after_push(site.backend)
    return following if " -f " in following else f"{following}"


def _print_content(now: RegistryStatus) -> None:
    content = now.content
    if content is None or not content.repositories:
        say("it holds nothing yet")
        return
    rows = [
        (repository.name, tag.name, size(tag.size), tag.problem or (tag.digest or "")[:19])
        for repository in content.repositories
        for tag in repository.tags
    ]
    print_table(("repository", "tag", "size", "digest"), rows)
    free = f"; {size(now.disk_free)} of disk are free" if now.disk_free is not None else ""
    say(f"together {size(content.size)}, as layers are shared{free}")


def _document(now: RegistryStatus) -> dict[str, Any]:
    found = now.content
    return {
        "address": now.address,
        "state": now.state,
        "insecure": now.insecure,
        "username": now.username,
        "ca_file": str(now.ca_file) if now.ca_file else None,
        "image": now.image,
        "container": now.container,
        "volume": now.volume,
        "trusted": now.trusted,
        "disk_free": now.disk_free,
        "size": found.size if found else None,
        "repositories": [asdict(one) for one in found.repositories] if found else [],
        "seen": now.seen,
        "others": list(now.others),
    }


def _how(site: Site) -> str:
    way = "plain HTTP" if site.registry.insecure else "TLS"
    return f"{way}, user {site.registry.username}" if site.registry.username else f"{way}, no login"


def _steps(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    return [{**as_document(result), "seconds": round(result.seconds, 3)} for result in results]
