"""A Ray cluster that somebody else runs: an address or a service, perhaps a token; never made, never removed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainyard.backends.contract import (
    ClusterStatus,
    LogLine,
    NodeStatus,
    Tools,
    Traits,
    no_images,
    nothing_to_discover,
    nothing_to_purge,
    nothing_to_show,
)
from trainyard.backends.existing import service as services
from trainyard.backends.logs import Follower
from trainyard.backends.ray_nodes import ANSWER_SECONDS
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, PrerequisiteError, RequestError
from trainyard.seams.kube import forward
from trainyard.seams.ray_api import RayApi, UnreachableError
from trainyard.seams.ray_types import Node
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.existing import ExistingSection
from trainyard.steps import YES, Answer, Step, no, nothing

__all__ = ["TRAITS", "connect", "discover", "documents", "down_steps", "logs", "status", "up_steps", "verify"]

# The cluster may be starting; whoever runs it knows how long that takes.
DEADLINE_SECONDS = 15.0
POLL_SECONDS = 2.0
TRAITS = Traits(makes_nodes=False)
documents = nothing_to_show
discover = nothing_to_discover
verify = no_images


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps that check the cluster; nothing is made."""
    section = _section(spec, tools)
    where = f" at {_with_scheme(section.address)}" if section.address else f": {section.service}"
    version = Step(
        f"Ray answers{where}", done=lambda: _version(spec, tools), do=nothing, deadline=DEADLINE_SECONDS, every=1.0
    )
    return [
        version,
        replace(version, title="It lists its nodes", done=lambda: _listed(spec, tools), after=version.title),
    ]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Step]:
    if purge:
        raise nothing_to_purge(tools.backend, "somebody else runs this cluster.")
    return [Step("Nothing to remove: somebody else runs this cluster", done=lambda: YES, do=nothing)]


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask the cluster for its nodes. Raises RefusedError when it wants another token."""
    try:
        endpoint = connect(spec, tools)
    except (NotReadyError, services.MissingServiceError) as error:
        return ClusterStatus(spec.name, tools.backend, "absent", (), detail=error.what)
    now = ClusterStatus(
        spec.name, tools.backend, "broken", (), address=endpoint.address, tunnel=endpoint.tunnel, token=endpoint.token
    )
    try:
        nodes = tuple(_node_status(node) for node in _nodes(endpoint))
    except UnreachableError as error:
        return replace(now, detail=_last_error(endpoint) or error.what)
    return replace(now, state="up" if nodes else "partial", nodes=nodes)


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the endpoint that the file names; of a service on Kubernetes, a port-forward that ends with this process.

    Raises PrerequisiteError when the token is not where the file says, or there is no such service.
    """
    section = _section(spec, tools)
    if not section.service:
        return Endpoint(spec.name, _with_scheme(section.address or ""), _token(section, tools))
    service = services.named(section, tools)
    secret = section.token_secret
    token = services.token(service, secret) if secret else _token(section, tools)
    address = services.address(service)
    return Endpoint(spec.name, address, token, tunnel=service.tunnel, is_in_reach=service.kube.answers)


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return the ends of the nodes' log files, as Ray serves them; with `follow`, then what is added."""
    endpoint = connect(spec, tools)
    files = Follower()
    while True:
        yield from files.fresh(endpoint.address, endpoint.token)
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def _section(spec: ClusterSpec, tools: Tools) -> ExistingSection:
    if spec.existing is None:
        raise RequestError(
            f"backend {tools.backend!r} needs to know where the cluster is",
            where=str(tools.source) if tools.source else None,
            hint="Write: existing: {address: http://127.0.0.1:8265}",
        )
    return spec.existing


def _token(section: ExistingSection, tools: Tools) -> str | None:
    """Return the token from where the file says that it is. Raises PrerequisiteError if it is not there."""
    if section.token_file:
        return _token_of_file(section.token_file, tools)
    name = section.token_env
    token = tools.environ.get(name, "").strip() if name else ""
    if name and not token:
        raise PrerequisiteError(
            f"the cluster's token is expected in ${name}, which is not set",
            where=str(tools.source) if tools.source else None,
            hint=f"Set it without showing it: read -rs {name} && export {name}",
        )
    return token or None


def _token_of_file(written: str, tools: Tools) -> str:
    """Return what a file holds; a relative path is the cluster file's neighbour."""
    path = Path(written).expanduser()
    if tools.source:
        path = tools.source.parent / path
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise PrerequisiteError(
            f"the cluster's token cannot be read: {error.strerror}",
            where=str(path),
            hint="Ask whoever runs the cluster for the file.",
        ) from error
    if not token:
        raise PrerequisiteError("the file with the cluster's token is empty", where=str(path))
    return token


def _version(spec: ClusterSpec, tools: Tools) -> Answer:
    try:
        endpoint = connect(spec, tools)
    except NotReadyError as error:
        return no(f"{error.what} ({error.where})")
    try:
        with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
            return Answer(True, f"Ray {ray.version().ray}")
    except UnreachableError as error:
        return no(_last_error(endpoint) or error.what)


def _listed(spec: ClusterSpec, tools: Tools) -> Answer:
    found = _nodes(connect(spec, tools))
    return Answer(bool(found), f"{len(found)} alive")


def _last_error(endpoint: Endpoint) -> str:
    """Return why nobody answers, "" if that is not known; a port-forward knows more than whoever uses it."""
    return forward.last_error(int(endpoint.address.rpartition(":")[2])) if endpoint.tunnel else ""


def _nodes(endpoint: Endpoint) -> list[Node]:
    with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
        return [node for node in ray.nodes() if node.alive]


def _node_status(node: Node) -> NodeStatus:
    group = "head" if node.is_head else node.group or "worker"
    return NodeStatus(node.name, group, node.ip, "up", int(node.cpus), int(node.gpus))


def _with_scheme(address: str) -> str:
    return address.rstrip("/") if "://" in address else f"http://{address.rstrip('/')}"
