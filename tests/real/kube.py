"""Helpers for tests of clusters on Kubernetes: a command line, and an administrator's kubectl."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.bed import images
from tests.bed.kubernetes import KubeBed
from tests.real.yard import Yard, wait_until
from trainyard.backends.kuberay import naming
from trainyard.paths import shipped

RAY_IMAGE = "trainyard-bed/ray:1"
GPU_IMAGE = "trainyard-bed/ray-gpu:1"
OPERATOR = "kuberay-operator"
# The namespace of the operator that an administrator installs.
ADMINISTRATORS = "administrators"
# kubectl's errors for an unknown kind; the second one where its cache still has a removed kind.
_UNKNOWN = ("the server doesn't have a resource type", "could not find the requested resource")
# Every kind of object that may belong to a cluster.
KINDS = (
    "rayclusters.ray.io",
    "pods",
    "services",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "serviceaccounts",
    "roles",
    "rolebindings",
    "poddisruptionbudgets",
    "networkpolicies",
)


def yard(kube: KubeBed, home: Path, cluster: str, *, kubeconfig: Path | None = None) -> Yard:
    """Give a place to work as a user of this Kubernetes, by default as its administrator."""
    environ = kube.environ()
    if kubeconfig:
        environ["KUBECONFIG"] = str(kubeconfig)
    return Yard(home, cluster=cluster, environ=environ)


def write(
    kube: KubeBed,
    yard: Yard,
    sections: Mapping[str, Any],
    *,
    namespace: str,
    image: str = RAY_IMAGE,
) -> Path:
    """Write the cluster's file: small pods, an image of the bed's registry, and `sections`."""
    path = yard.home / "clusters" / f"{yard.cluster}.yaml"
    path.parent.mkdir(exist_ok=True, parents=True)
    ours = {
        "namespace": namespace,
        "operator": {"chart": str(kube.chart)},
        # This machine has two CPUs, and pods of several clusters.
        "requests": {"cpus": 0.1, "memory": "128MiB"},
    }

    document = {
        "name": yard.cluster,
        "backend": "kuberay",
        "image": f"{kube.registry}/{image}",
        "registry": {"address": kube.registry, "insecure": True},
        **sections,
        "kuberay": {**ours, **sections.get("kuberay", {})},
    }

    # JSON is YAML.
    path.write_text(json.dumps(document, indent=1))
    return path


def as_shipped(kube: KubeBed, site: Yard, kuberay: Mapping[str, Any]) -> None:
    """Write the shipped cluster file; only registry, base image and `kuberay` are the bed's.

    The base has Ray, as every host already has that base: unpacking it takes a host half a minute
    of a core.
    """
    images.ensure_ray_root(kube.engine)
    text = (shipped("clusters") / f"{site.cluster}.yaml").read_text()
    assert f"\nname: {site.cluster} " in text
    ours = {
        "registry": {"address": kube.registry, "insecure": True},
        "build": {"base": images.RAY_ROOT, "network": "host"},
        "kuberay": kuberay,
    }
    (site.home / "clusters").mkdir()
    # JSON is YAML.
    sections = "".join(f"{key}: {json.dumps(value)}\n" for key, value in ours.items())
    (site.home / "clusters" / f"{site.cluster}.yaml").write_text(f"{text}\n{sections}")


@contextmanager
def operator(kube: KubeBed) -> Iterator[None]:
    """Have an administrator's own KubeRay operator installed inside the block."""
    made = ("--create-namespace", "--wait", "--timeout=120s")
    with ExitStack() as removed:
        removed.callback(kube.kubectl, "delete", "namespace", ADMINISTRATORS, "--ignore-not-found")
        removed.callback(
            kube.kubectl, "delete", "-f", str(kube.chart / "crds"), "--ignore-not-found"
        )
        removed.callback(
            _helm, kube, "uninstall", "theirs", "-n", ADMINISTRATORS, "--wait", "--ignore-not-found"
        )
        _helm(kube, "install", "theirs", str(kube.chart), "-n", ADMINISTRATORS, *made)
        yield


def general(kube: KubeBed) -> list[str]:
    """Return KubeRay's objects besides clusters: CRDs, operators, all with Trainyard's label."""
    found = [
        one["metadata"]["name"] for one in objects(kube, "crds") if one["spec"]["group"] == "ray.io"
    ]
    found += [
        _place(one)
        for one in objects(kube, "deployments", "-A", "-l", f"app.kubernetes.io/name={OPERATOR}")
    ]
    ours = f"{naming.MADE_BY}={naming.US}"
    found += [one["metadata"]["name"] for one in objects(kube, "namespaces", "-l", ours)]
    found += [_place(one) for one in objects(kube, ",".join(KINDS[1:]), "-A", "-l", ours)]
    return sorted(found)


def listed(yard: Yard) -> dict[str, str]:
    """Return the states of the clusters that cluster.list finds.

    Asked again while the state is unknown: on a busy machine the 3 s of cluster.list may be too
    few.
    """
    found: dict[str, str] = {}

    def has_answers() -> bool:
        found.update({one["name"]: one["state"] for one in yard.json("cluster.list")["clusters"]})
        return found[yard.cluster] != "unknown"

    wait_until(has_answers, seconds=60, what="Kubernetes answers within 3 s")
    return found


def settled(kube: KubeBed, namespace: str) -> None:
    """Wait until nothing in the namespace changes by itself any more."""
    seen: list[dict[str, str]] = []

    def is_still() -> bool:
        seen.append(versions(kube, namespace, "rayclusters.ray.io,pods"))
        return len(seen) > 3 and seen[-1] == seen[-4]

    wait_until(is_still, seconds=60, what=f"nothing changes in namespace {namespace}")


def objects(kube: KubeBed, kind: str, *options: str) -> list[dict[str, Any]]:
    """Return the objects of a kind as kubectl gets them; none of a kind unknown to Kubernetes."""
    done = kube.kubectl("get", kind, *options, "-o", "json", check=False)
    if done.returncode != 0:
        if any(words in done.stderr for words in _UNKNOWN):
            return []
        raise AssertionError(done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return found


def one(
    kube: KubeBed, kind: str, name: str, *, namespace: str = "default"
) -> dict[str, Any] | None:
    """Return an object, None if none has the name; an object without a namespace needs none."""
    done = kube.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
    return json.loads(done.stdout) if done.stdout.strip() else None


def belongings(kube: KubeBed, cluster: str) -> list[str]:
    """Return a cluster's objects in all namespaces: those with our label or KubeRay's."""
    labels = (naming.of_cluster(cluster), naming.of_ray_cluster(cluster))
    listed = [_named(kube, ",".join(KINDS), label) for label in labels]
    return sorted({name for found in listed for name in found})


def _named(kube: KubeBed, kinds: str, label: str) -> list[str]:
    done = kube.kubectl("get", kinds, "-A", "-l", label, "-o", "name", check=False)
    if "the server doesn't have a resource type" in done.stderr:
        return _named(kube, kinds.partition(",")[2], label)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def versions(kube: KubeBed, namespace: str, *kinds: str) -> dict[str, str]:
    """Return the resourceVersion of every object of these kinds in a namespace."""
    found = objects(kube, ",".join(kinds), "-n", namespace)
    return {
        f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
        for one in found
    }


def pods(kube: KubeBed, cluster: str, *, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the pods that run a cluster's nodes, by the nodes' names."""
    found = objects(kube, "pods", "-n", namespace, "-l", naming.of_ray_cluster(cluster))
    return {naming.node_name(pod): pod for pod in found}


def hosts_of(kube: KubeBed, cluster: str, *, namespace: str) -> dict[str, str]:
    return {
        node: pod["spec"]["nodeName"]
        for node, pod in pods(kube, cluster, namespace=namespace).items()
    }


def uids(kube: KubeBed, cluster: str, *, namespace: str) -> dict[str, str]:
    return {
        node: pod["metadata"]["uid"]
        for node, pod in pods(kube, cluster, namespace=namespace).items()
    }


def _place(one: dict[str, Any]) -> str:
    return f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"


def _helm(kube: KubeBed, *arguments: str) -> None:
    environ = {**os.environ, **kube.environ()}
    done = subprocess.run(
        ["helm", *arguments], env=environ, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
