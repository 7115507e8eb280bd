"""Another owner's Ray cluster, at an address or a Kubernetes service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from trainyard.backends import contract
from trainyard.backends.contract import (
    Backend,
    ClusterStatus,
    Finding,
    LogLine,
    NodeStatus,
    Site,
    Traits,
)
from trainyard.backends.existing import service as services
from trainyard.backends.shared.logs import followed, ray_files
from trainyard.backends.shared.ray_nodes import ANSWER_SECONDS
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, PrerequisiteError, TrainyardError
from trainyard.seams.kube import forward
from trainyard.seams.ray_api import RayApi, UnreachableError
from trainyard.seams.ray_types import Node
from trainyard.spec.cluster import ClusterSpec, ExistingSection
from trainyard.steps import YES, Answer, Step, no, nothing
from trainyard.wording import counted

# The cluster may be starting.
DEADLINE_SECONDS = 15.0


def up_steps(spec: ClusterSpec, site: Site) -> list[Step]:
    section = _section(spec)
    title = f"Ray answers at {section.address or section.service}"
    done = partial(_answer, spec, site)
    return [Step("ray-answers", title, done, nothing, deadline=DEADLINE_SECONDS, every=1.0)]


def down_steps(spec: ClusterSpec, site: Site, *, purge: bool) -> list[Step]:
    title = "Nothing to remove: Trainyard did not make this cluster"
    return [Step("nothing-to-remove", title, done=lambda: YES, do=nothing)]


def status(spec: ClusterSpec, site: Site) -> ClusterStatus:
    """Ask Ray for its living nodes.

    The state is "broken" if Ray does not answer, and "absent" if the service
    does not exist or has no running pod. Raises RefusedError if Ray rejects the
    token.
    """
    try:
        endpoint = connect(spec, site)
    except (NotReadyError, services.MissingServiceError) as error:
        return ClusterStatus(spec.name, site.backend, "absent", (), detail=error.what)

    now = ClusterStatus(
        spec.name,
        site.backend,
        "broken",
        (),
        address=endpoint.address,
        tunnel=endpoint.tunnel,
        token=endpoint.token,
    )

    try:
        with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
            nodes = tuple(_node_status(node) for node in ray.nodes() if node.alive)
    except UnreachableError as error:
        return replace(now, detail=_last_error(endpoint) or error.what)

    return replace(now, state="up" if nodes else "partial", nodes=nodes)


def diagnose(spec: ClusterSpec, site: Site) -> list[Finding]:
    """Return a finding for Ray's error, for example about a wrong token.

    Silence is no finding, because `cluster.status` shows it.
    """
    try:
        _answer(spec, site)
    except TrainyardError as error:
        return [Finding(spec.name, error.what, error.hint or "Ask its administrator.")]
    return []


def connect(spec: ClusterSpec, site: Site) -> Endpoint:
    """Return the endpoint; for a Kubernetes service, a port-forward.

    The port-forward ends with this process. Raises PrerequisiteError for a
    missing token or service, and NotReadyError if the service has no running
    pod.
    """
    section = _section(spec)
    if not section.service:
        address = (section.address or "").rstrip("/")
        token = _token(section, site)
        # Ray sets this variable on its nodes, so this program runs on one.
        if "RAY_ADDRESS" in site.environ:
            return Endpoint(spec.name, address, token, ray_address=lambda: "auto")
        return Endpoint(spec.name, address, token)

    service = services.named(section, site)
    secret = section.token_secret
    token = services.token(service, secret) if secret else _token(section, site)
    address = services.address(service)

    return Endpoint(
        spec.name, address, token, tunnel=service.tunnel, is_in_reach=service.kube.answers
    )


def logs(spec: ClusterSpec, site: Site, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    endpoint = connect(spec, site)
    if node:
        nodes = {known.name: known for known in status(spec, site).nodes}
        contract.pick(nodes, node, cluster=spec.name)
    return followed(lambda: ray_files(endpoint.address, endpoint.token, node), lambda: follow)


def _section(spec: ClusterSpec) -> ExistingSection:
    # ClusterSpec rejects a file with this backend and without this section.
    return cast(ExistingSection, spec.existing)


def _token(section: ExistingSection, site: Site) -> str | None:
    """Return the token that the section names; None if it names none.

    Raises PrerequisiteError if the file cannot be read, or the variable is not
    set.
    """
    if section.token_file:
        # A relative path is relative to the cluster file.
        directory = site.source.parent if site.source else Path()
        path = directory / Path(section.token_file).expanduser()
        try:
            return path.read_text().strip() or None
        except OSError as error:
            raise PrerequisiteError(
                f"the cluster's token cannot be read: {error.strerror}",
                where=str(path),
                hint="Ask the administrator of the cluster for the file.",
            ) from error

    name = section.token_env
    token = site.environ.get(name, "").strip() if name else ""
    if name and not token:
        raise PrerequisiteError(
            f"the cluster's token is expected in ${name}, which is not set",
            where=str(site.source) if site.source else None,
            hint=f"Set it without showing it: read -rs {name} && export {name}",
        )

    return token or None


def _answer(spec: ClusterSpec, site: Site) -> Answer:
    try:
        endpoint = connect(spec, site)
    except NotReadyError as error:
        return no(f"{error.what} ({error.where})")
    try:
        with RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS) as ray:
            version = ray.supported_version()
            alive = [node for node in ray.nodes() if node.alive]
            return Answer(bool(alive), f"Ray {version}, {counted(len(alive), 'node')} alive")
    except UnreachableError as error:
        return no(_last_error(endpoint) or error.what)


def _last_error(endpoint: Endpoint) -> str:
    """Return the newest error of a port-forward; "" without either."""
    if endpoint.tunnel:
        return forward.last_error(int(endpoint.address.rpartition(":")[2]))
    return ""


def _node_status(node: Node) -> NodeStatus:
    group = "head" if node.is_head else node.group or "worker"
    return NodeStatus(node.name, group, node.ip, "up", int(node.cpus), int(node.gpus))


BACKEND = Backend(
    traits=Traits(makes_nodes=False, has_leash=False),
    up_steps=up_steps,
    down_steps=down_steps,
    status=status,
    connect=connect,
    logs=logs,
    diagnose=diagnose,
)
