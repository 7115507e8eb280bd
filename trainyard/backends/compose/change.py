"""In what a container differs from the node that the cluster file now asks for; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.backends.compose import labels
from trainyard.backends.compose.document import DASHBOARD_PORT
from trainyard.seams.docker.containers import Bind, Container
from trainyard.spec.units import format_size

# What `ray start` is told, and what it is called in a cluster file.
_OPTIONS = (("--num-cpus", "cpus"), ("--num-gpus", "gpus"))
_SIZES = (("--memory", "memory"), ("--object-store-memory", "object store"))


def changes(service: Mapping[str, Any], there: Container, image_env: Mapping[str, str]) -> list[str]:
    """Say what a node of the document has otherwise than its container; `image_env` is what the container's image set.

    Values of variables are not shown: some of them are secrets.
    """
    found = [*_node(service, there), *_labels(service, there), *_variables(service, there, image_env)]
    found += _mounts(service, there)
    found += _ports(service, there)
    return found or ["something that Trainyard sets itself: it was made by another version"]


def _node(service: Mapping[str, Any], there: Container) -> Iterator[str]:
    old, new = _arguments(there.entrypoint), _arguments(service["entrypoint"])
    for option, word in _OPTIONS:
        if old.get(option) != new.get(option):
            yield _from_to(word, old.get(option), new.get(option))
    for option, word in _SIZES:
        if old.get(option) != new.get(option):
            yield _from_to(word, _size(old.get(option)), _size(new.get(option)))
    if int(service["shm_size"]) != there.shm_size:
        yield _from_to("shared memory", format_size(there.shm_size), format_size(int(service["shm_size"])))


def _labels(service: Mapping[str, Any], there: Container) -> Iterator[str]:
    new = service["labels"]
    if there.labels.get(labels.IMAGE) != new[labels.IMAGE]:
        yield _from_to("image", there.labels.get(labels.IMAGE), new[labels.IMAGE])
    if there.labels.get(labels.TOKEN) != new[labels.TOKEN]:
        yield "its token: the one that was made for it is not known here"
    if there.labels.get(labels.SIMULATED) != new[labels.SIMULATED]:
        yield _from_to("simulated GPUs", there.labels.get(labels.SIMULATED), new[labels.SIMULATED])


def _variables(service: Mapping[str, Any], there: Container, image_env: Mapping[str, str]) -> Iterator[str]:
    new = {name: str(value).replace("$$", "$") for name, value in service["environment"].items()}
    old = there.environment
    for name in sorted(new):
        if old.get(name) != new[name]:
            yield f"env.{name} is {'another' if name in old else 'new'}"
    for name in sorted(old.keys() - new.keys()):
        if image_env.get(name) != old[name]:
            yield f"env.{name} is gone"


def _mounts(service: Mapping[str, Any], there: Container) -> Iterator[str]:
    new = {
        Bind(_plain(one["source"]), _plain(one["target"]), bool(one.get("read_only")))
        for one in service["volumes"]
        if one["type"] == "bind"
    }
    # Compose mounts the token itself.
    old = {one for one in there.binds if not one.target.startswith("/run/secrets/")}
    for bind in sorted(new - old, key=str):
        yield f"mount {_shown(bind)} is new"
    for bind in sorted(old - new, key=str):
        yield f"mount {_shown(bind)} is gone"


def _ports(service: Mapping[str, Any], there: Container) -> Iterator[str]:
    wanted = [str(one).split(":")[1] for one in service["ports"]]
    has = [port.outside for port in there.ports if port.inside == DASHBOARD_PORT]
    if wanted and wanted[0] and has and str(has[0]) != wanted[0]:
        yield _from_to("dashboard_port", str(has[0]), wanted[0])


def _arguments(command: Sequence[str]) -> dict[str, str]:
    pairs = (one.partition("=") for one in command if one.startswith("--"))
    return {name: value for name, _, value in pairs}


def _from_to(word: str, old: str | None, new: str | None) -> str:
    return f"{word}: {old or 'none'} now, {new or 'none'} wanted"


def _size(text: str | None) -> str | None:
    return format_size(int(text)) if text else None


def _plain(text: str) -> str:
    return text.replace("$$", "$")


def _shown(bind: Bind) -> str:
    return f"{bind.source} at {bind.target}{' (read only)' if bind.read_only else ''}"
