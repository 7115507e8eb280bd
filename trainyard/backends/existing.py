"""A Ray cluster that somebody else runs: an address or a service, perhaps a token; never made, never removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainyard.backends import contract, existing_service, existing_token
from trainyard.backends import logs as log_files
from trainyard.backends.contract import ClusterStatus, Discovered, LogLine, NodeStatus, Tools, Traits
from trainyard.backends.ray_nodes import ANSWER_SECONDS
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, RequestError
from trainyard.images.verified import Verified
from trainyard.seams.ray_api import RayApi, UnreachableError
from trainyard.seams.ray_types import Node
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.existing import ExistingSection
from trainyard.steps import YES, Answer, Step, no

# The cluster may be starting; whoever runs it knows how long that takes.
DEADLINE_SECONDS = 15.0
POLL_SECONDS = 2.0
TRAITS = Traits(makes_nodes=False)


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps that check the cluster; nothing is made."""
    section = _section(spec, tools)
    answers = (
        f"Ray answers at {_with_scheme(section.address)}" if section.address else f"Ray answers: {section.service}"
    )
    return [
        Step(answers, done=lambda: _version(spec, tools), do=_nothing, deadline=DEADLINE_SECONDS, every=1.0),
        Step(
            "It lists its nodes",
            done=lambda: _listed(spec, tools),
            do=_nothing,
            deadline=DEADLINE_SECONDS,
            every=1.0,
            after=answers,
        ),
    ]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Step]:
    """Return one step that says that nothing is removed."""
    if purge:
        raise contract.nothing_to_purge("existing", "somebody else runs this cluster.")
    title = "Nothing to remove: somebody else runs this cluster"
    return [Step(title, done=lambda: YES, do=_nothing)]


def documents(spec: ClusterSpec, tools: Tools) -> list[dict[str, Any]]:
    """Return none: nothing is made."""
    return []


def verify(spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]) -> Verified:
    """Raise RequestError: its nodes are no containers of ours."""
    raise contract.no_images(spec)


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask the cluster for its nodes. Raises RefusedError when it wants another token."""
    try:
        endpoint = connect(spec, tools)
    except (NotReadyError, existing_service.MissingServiceError) as error:
        return ClusterStatus(spec.name, "existing", "absent", (), detail=error.what)
    now = ClusterStatus(spec.name, "existing", "broken", (), address=endpoint.address, tunnel=endpoint.tunnel)
    now = replace(now, token=endpoint.token)
    try:
        found = tuple(_node_status(node) for node in _nodes(endpoint))
    except UnreachableError as error:
        return replace(now, detail=_why(error, endpoint))
    return replace(now, state="up" if found else "partial", nodes=found)


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the way in that the file names; to a service on Kubernetes, a port-forward that ends with this process.

    Raises PrerequisiteError when the token is not where the file says, or the service is not there.
    """
    section = _section(spec, tools)
    service = existing_service.named(section, tools) if section.service else None
    token = None
    if section.token_env:
        token = existing_token.of_environment(section.token_env, tools)
    elif section.token_file:
        token = existing_token.of_file(section.token_file, tools)
    elif section.token_secret and service:
        token = existing_service.token(service, section.token_secret)
    if service:
        address = existing_service.address(service)
        return Endpoint(spec.name, address, token, tunnel=service.tunnel, is_in_reach=service.kube.answers)
    return Endpoint(spec.name, _with_scheme(section.address or ""), token)


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return the ends of the nodes' log files, as Ray serves them; with `follow`, then what is added."""
    endpoint = connect(spec, tools)
    files = log_files.Follower()
    while True:
        yield from files.fresh(endpoint.address, endpoint.token)
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]], states: Sequence[Path], environ: Mapping[str, str]
) -> Discovered:
    """Find nothing: what is written down here is all that leads to such a cluster."""
    return Discovered()


def _nothing() -> None:
    """Change nothing: the cluster is somebody else's."""


def _section(spec: ClusterSpec, tools: Tools) -> ExistingSection:
    if spec.existing is None:
        raise RequestError(
            "backend 'existing' needs to know where the cluster is",
            where=str(tools.source) if tools.source else None,
            hint="Write: existing: {address: http://127.0.0.1:8265}",
        )
    return spec.existing


def _version(spec: ClusterSpec, tools: Tools) -> Answer:
    try:
        endpoint = connect(spec, tools)
    except NotReadyError as error:
        return no(f"{error.what} ({error.where})")
    try:
        with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
            return Answer(True, f"Ray {ray.version().ray}")
    except UnreachableError as error:
        return no(_why(error, endpoint))


def _listed(spec: ClusterSpec, tools: Tools) -> Answer:
    found = _nodes(connect(spec, tools))
    return Answer(bool(found), f"{len(found)} alive")


def _why(error: UnreachableError, endpoint: Endpoint) -> str:
    """Return why nobody answers; a port-forward knows more than whoever uses it."""
    return (existing_service.trouble(endpoint.address) if endpoint.tunnel else "") or error.what


def _nodes(endpoint: Endpoint) -> list[Node]:
    with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
        return [node for node in ray.nodes() if node.alive]


def _node_status(node: Node) -> NodeStatus:
    group = "head" if node.is_head else node.group or "worker"
    return NodeStatus(node.name, group, node.ip, "up", int(node.cpus), int(node.gpus))


def _with_scheme(address: str) -> str:
    return address.rstrip("/") if "://" in address else f"http://{address.rstrip('/')}"
