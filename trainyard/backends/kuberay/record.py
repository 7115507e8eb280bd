"""What is written down about a cluster on Kubernetes, and whether a way leads to the Kubernetes that it is about."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from trainyard.backends import private_files
from trainyard.backends.contract import Tools
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError, GoneError
from trainyard.seams.kube.types import NAMESPACE

# A namespace that every Kubernetes has, that nobody makes anew, and whose uid therefore tells one from another.
EVERY_KUBERNETES_HAS = "kube-system"


@dataclass(frozen=True)
class Record:
    """What is written down, so that the cluster is found although its file or the kubeconfig's context changed.

    `kubeconfig` is written as $KUBECONFIG is; None inside a pod, where the service account is the way in. `kubernetes`
    tells one Kubernetes from another that is called the same, "" where the user may not see that.
    """

    name: str
    context: str
    kubeconfig: str | None
    namespace: str
    server: str
    kubernetes: str = ""


def read(tools: Tools) -> Record | None:
    """Return what was written down, or None."""
    found = private_files.read_json(tools.state / "cluster.json")
    if not found or found.get("backend") != tools.backend:
        return None
    words = ("name", "context", "kubeconfig", "namespace", "server")
    return Record(**{word: found[word] for word in words}, kubernetes=found.get("kubernetes", ""))


def write(tools: Tools, record: Record) -> None:
    """Write down where the cluster is."""
    tools.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    tools.state.chmod(0o700)
    private_files.write(
        tools.state / "cluster.json", json.dumps({"backend": tools.backend, **asdict(record)}, indent=2)
    )


def identity(kube: Kube) -> str:
    """Return what tells this Kubernetes from another one, "" if the user may not see it, or nobody answers."""
    try:
        found = kube.get(NAMESPACE, EVERY_KUBERNETES_HAS)
    except (ForbiddenError, GoneError):
        return ""
    return str(found["metadata"]["uid"]) if found else ""


def is_same(record: Record, server: str, kubernetes: str) -> bool:
    """Say whether a server is that of the Kubernetes that was written down; who may not see more goes by its address.

    k3s, MicroK8s and kubeadm each call all their contexts the same.
    """
    if record.kubernetes and kubernetes:
        return record.kubernetes == kubernetes
    return record.server == server


def other_kubernetes(record: Record, kube: Kube, tools: Tools) -> PrerequisiteError:
    """Return the error for a way that leads to another Kubernetes, though by the same name or address."""
    context = f"context {kube.context}" if kube.context else "the service account"
    return PrerequisiteError(
        f"cluster {record.name} is on another Kubernetes than the one that {context} leads to now",
        where=f"it was made on {record.server}; now {kube.server} answers",
        hint="Give the kubeconfig of that one (KUBECONFIG=...). If that Kubernetes is gone for good, or only got "
        f"another address (then what was written down is made anew): rm -r {tools.state}",
    )


def place(record: Record) -> str:
    """Return where a cluster is, as a person would say it."""
    via = f"of context {record.context} " if record.context else ""
    return f"namespace {record.namespace} {via}({record.server})"
