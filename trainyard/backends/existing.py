"""A Ray cluster that somebody else runs: an address, perhaps a token; never made, never removed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainyard.backends import purging, ray_logs
from trainyard.backends.answering import ANSWER_SECONDS
from trainyard.backends.contract import ClusterStatus, LogLine, NodeStatus, Tools
from trainyard.endpoint import Endpoint
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.ray_api import RayApi, UnreachableError
from trainyard.seams.ray_types import Node
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# The cluster may be starting; whoever runs it knows how long that takes.
DEADLINE_SECONDS = 15.0
POLL_SECONDS = 2.0


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps that check the cluster; nothing is made."""
    endpoint = connect(spec, tools)
    answers = f"Ray answers at {endpoint.address}"
    return [
        Step(answers, done=lambda: _version(endpoint), do=_nothing, deadline=DEADLINE_SECONDS, every=1.0),
        Step(
            "It lists its nodes",
            done=lambda: _listed(endpoint),
            do=_nothing,
            deadline=DEADLINE_SECONDS,
            every=1.0,
            after=answers,
        ),
    ]


def down_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return one step that says that nothing is removed."""
    title = "Nothing to remove: somebody else runs this cluster"
    return [Step(title, done=lambda: YES, do=_nothing)]


def documents(spec: ClusterSpec, tools: Tools) -> list[dict[str, Any]]:
    """Return none: nothing is made."""
    return []


def purge_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Raise RequestError: nothing was made."""
    raise purging.refusal("existing", "somebody else runs this cluster.")


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask the cluster for its nodes. Raises RefusedError when it wants another token."""
    endpoint = connect(spec, tools)
    try:
        found = tuple(_node_status(node) for node in _nodes(endpoint))
    except UnreachableError as error:
        return ClusterStatus(spec.name, "existing", "down", (), address=endpoint.address, seen=error.what)
    return ClusterStatus(spec.name, "existing", "up" if found else "partial", found, address=endpoint.address)


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the way in that the file names. Raises PrerequisiteError when the token is not where it says."""
    section = spec.existing
    if section is None:
        raise RequestError(
            "backend 'existing' needs to know where the cluster is",
            where=str(tools.source) if tools.source else None,
            hint="Write: existing: {address: http://127.0.0.1:8265}",
        )
    token = None
    if section.token_env:
        token = _token_of_environment(section.token_env, tools)
    elif section.token_file:
        token = _token_of_file(section.token_file, tools)
    return Endpoint(cluster=spec.name, address=_with_scheme(section.address), token=token)


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return the ends of the nodes' log files, as Ray serves them; with `follow`, then what is added."""
    endpoint = connect(spec, tools)
    files = ray_logs.Follower()
    while True:
        yield from files.fresh(endpoint.address, endpoint.token)
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def _nothing() -> None:
    """Change nothing: the cluster is somebody else's."""


def _version(endpoint: Endpoint) -> Answer:
    try:
        with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
            return Answer(True, f"Ray {ray.version().ray}")
    except UnreachableError as error:
        return no(error.what)


def _listed(endpoint: Endpoint) -> Answer:
    found = _nodes(endpoint)
    return Answer(bool(found), f"{len(found)} alive")


def _nodes(endpoint: Endpoint) -> list[Node]:
    with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
        return [node for node in ray.nodes() if node.alive]


def _node_status(node: Node) -> NodeStatus:
    group = "head" if node.is_head else node.group or "worker"
    return NodeStatus(node.name, group, node.ip, "up", int(node.cpus), int(node.gpus))


def _with_scheme(address: str) -> str:
    return address.rstrip("/") if "://" in address else f"http://{address.rstrip('/')}"


def _token_of_environment(name: str, tools: Tools) -> str:
    token = tools.environ.get(name, "").strip()
    if not token:
        raise PrerequisiteError(
            f"the cluster's token is expected in ${name}, which is not set",
            where=str(tools.source) if tools.source else None,
            hint=f"Set it without showing it: read -rs {name} && export {name}",
        )
    return token


def _token_of_file(written: str, tools: Tools) -> str:
    path = Path(written).expanduser()
    if not path.is_absolute() and tools.source:
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
