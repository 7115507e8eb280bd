"""How a cluster on Kubernetes is, the way into it, and what its nodes say."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from trainyard import versions
from trainyard.backends import record
from trainyard.backends.contract import ClusterStatus, LogLine, Tools
from trainyard.backends.kuberay import log_lines, names, objects, site, view, way_in
from trainyard.backends.kuberay import look as looking
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import progress
from trainyard.backends.kuberay.causes.facts import Object
from trainyard.backends.kuberay.errands import gpu_checks
from trainyard.backends.kuberay.look import Look
from trainyard.backends.kuberay.site import Site
from trainyard.backends.ray_nodes import cluster_state
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.ray_api import RefusedError
from trainyard.spec.cluster import ClusterSpec

# How a kubelet begins that has no way to a pod's port (kubelet/pkg/cri/streaming/portforward).
_KUBELET = "error forwarding port"


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask Kubernetes about every node that the file names or that has a pod, and Ray about all."""
    where = site.find(spec, tools)
    with ThreadPoolExecutor(2) as threads:
        read = threads.submit(_readable_token, where)
        seen = looking.look(where, spec)
        token = read.result()
    answering, said = _answer(where, token, seen)
    nodes = view.statuses(view.declared(spec, seen), seen.facts, answering)
    # Of a head that ends again and again, the container runs for a moment.
    runs = _runs(seen.head) and not any(
        node.group == view.HEAD and node.state in ("absent", "broken") for node in nodes
    )
    return ClusterStatus(
        name=spec.name,
        backend=tools.backend,
        state=cluster_state(node.state for node in nodes),
        nodes=nodes,
        address=way_in.address(where) if runs else None,
        token_command=_token_command(spec, tools, where) if token else None,
        simulated_gpus=_annotation(seen, names.SIMULATED) == "true",
        tunnel=way_in.tunnel(where) if runs else None,
        detail="; ".join([*view.problems(seen.facts, nodes, asked=not said), *([said] if said else [])]),
        remark=site.moved(spec, tools),
        token=token,
    )


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the way in, a port-forward that ends with this process. Raises NotReadyError if there is none."""
    where = site.find(spec, tools)
    with ThreadPoolExecutor(2) as threads:
        read = threads.submit(objects.token, where)
        seen = looking.without_events(where, spec)
        token = read.result()
    if seen.cluster is None or not _runs(seen.head):
        raise _not_up(spec, tools, where)
    groups = view.made(seen)
    return Endpoint(
        cluster=spec.name,
        address=way_in.address(where),
        token=token,
        simulated_gpus=_annotation(seen, names.SIMULATED) == "true",
        expected=tuple(view.expected(groups)),
        ray_version=versions.RAY,
        image=_annotation(seen, names.IMAGE),
        tunnel=way_in.tunnel(where),
        down=tuple(view.down(groups, seen.facts)),
        checks=lambda: gpu_checks.checks(where, spec),
        quick_checks=lambda: gpu_checks.quick_checks(where, spec),
        is_in_reach=where.kube.answers,
        names_change=True,
        refused=f"Secret {names.token_secret(where.name)} in {site.place(where)} holds another token than the nodes "
        f"were started with. To make them anew, which ends all that runs: invoke cluster.up --recreate",
    )


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return what the containers print and Ray's own log files say, from their ends on."""
    where = site.find(spec, tools)
    if not site.pods(where):
        raise _not_up(spec, tools, where)
    found = log_lines.lines(where, objects.token(where), follow=follow)
    return found if follow else _or_why_none(found, where, spec)


def _or_why_none(found: Iterator[LogLine], where: Site, spec: ClusterSpec) -> Iterator[LogLine]:
    """Return the lines. Raises NotReadyError if there are none, with why no container has said anything."""
    line = None
    for line in found:
        yield line
    if line is None:
        raise NotReadyError(f"cluster {spec.name} has said nothing yet{_why(where, spec)}")


def _not_up(spec: ClusterSpec, tools: Tools, where: Site) -> NotReadyError:
    hint = "Make it: invoke cluster.up"
    return NotReadyError(f"cluster {spec.name} is not up{_why(where, spec)}", hint=hint)


def _why(where: Site, spec: ClusterSpec) -> str:
    """Return what is wrong, or what the nodes do: `: head pulls the image; cpu-a, cpu-b wait for the head`."""
    seen = looking.look(where, spec)
    why = [*view.problems(seen.facts, ()), progress.text(seen.facts)]
    said = "; ".join(one for one in why if one)
    return f": {said}" if said else ""


def _answer(where: Site, token: str | None, seen: Look) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    if seen.cluster is None:
        return frozenset(), ""
    if not _runs(seen.head):
        return frozenset(), "the head does not run"
    try:
        return way_in.answer(where, token, seen.pods), ""
    except RefusedError:
        return frozenset(), _refused(where, token)
    except OutsideError as error:
        raw = way_in.trouble(where) or error.what
        # A kubelet answers with what every layer below it said.
        return frozenset(), "nothing listens on the head's dashboard port" if _KUBELET in raw else raw


def _refused(where: Site, token: str | None) -> str:
    secret = f"Secret {names.token_secret(where.name)}"
    if token is None:
        return f"Ray does not say which nodes it has: its token is in {secret}, which is not there or not ours to read"
    return f"Ray does not say which nodes it has: {secret} holds another token than the nodes were started with"


def _readable_token(where: Site) -> str | None:
    """Return the token, None for who may look at pods and at no Secret."""
    try:
        return objects.token(where)
    except ForbiddenError:
        return None


def _runs(head: Object | None) -> bool:
    return head is not None and pods.phase(head) == "Running" and not pods.is_leaving(head)


def _annotation(seen: Look, name: str) -> str | None:
    annotations = (seen.cluster or {"metadata": {}})["metadata"].get("annotations") or {}
    found = annotations.get(name)
    return None if found is None else str(found)


def _token_command(spec: ClusterSpec, tools: Tools, where: Site) -> str:
    """Return the command that prints the cluster's token, for who may read its Secret."""
    words = ["kubectl"]
    if spec.kuberay.kubeconfig:
        words += ["--kubeconfig", str(site.kubeconfig(spec, tools) or spec.kuberay.kubeconfig)]
    if where.kube.context:
        words += ["--context", where.kube.context]
    words += ["--namespace", where.namespace, "get", "secret", names.token_secret(where.name)]
    words += ["-o", f"jsonpath={{.data.{record.TOKEN_KEY}}}"]
    return f"{shlex.join(words)} | base64 -d"
