"""Steps once the hosts are one cluster: addons, trust in a registry, and a kubeconfig here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trainyard.backends.kuberay import pods
from trainyard.backends.microk8s import files, kubeconfig
from trainyard.backends.microk8s.facts import DATA, Facts
from trainyard.backends.microk8s.files import CERTS_D, KUBELET_ARGUMENTS, Known
from trainyard.backends.microk8s.install import START_SECONDS
from trainyard.backends.microk8s.lab import Host, Lab, each_step
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import named

# Images of addons come from far away: those of NVIDIA are large.
ENABLE_SECONDS = 600.0
GPU = "nvidia.com/gpu"
_DEPLOYED = "jsonpath={.status.availableReplicas}"
# The words of kubectl that prove each addon.
PROOFS: Mapping[str, tuple[str, ...]] = {
    "dns": ("get", "deployment/coredns", "--namespace", "kube-system", "--output", _DEPLOYED),
    "hostpath-storage": ("get", "storageclass/microk8s-hostpath", "--output", "name"),
    "registry": (
        "get",
        "deployment/registry",
        "--namespace",
        "container-registry",
        "--output",
        _DEPLOYED,
    ),
}


def steps(
    spec: ClusterSpec, lab: Lab, environ: Mapping[str, str], kubeconfig_file: Path, *, after: str
) -> list[Step]:
    """Return the steps after which pods run, find each other, and pull from the registry."""
    steps = [_lookup_step(lab, after)]
    for name in PROOFS:
        if name != "registry" or (spec.microk8s and spec.microk8s.registry):
            steps.append(_addon_step(lab, [name], partial(_deployed, lab, name), after=after))

    needed = gpus(spec)
    if needed:
        # By itself it looks for a driver on this host alone, and lets others install one that they
        # have (microk8s-core-addons, addons/nvidia/enable:181-187).
        words = ["nvidia", "--gpu-operator-driver=host"]
        steps.append(_addon_step(lab, words, partial(_offered, lab, needed), after=after))

    for known in files.registries(spec, environ):
        steps.append(_trust_step(lab, known, after))
    steps.append(_kubeconfig_step(lab, kubeconfig_file, after))
    return steps


def _lookup_step(lab: Lab, after: str) -> Step:
    """Return the step after which pods on every host look names up in the cluster's DNS.

    A host takes over the arguments of the kubelet that it joins, and `enable dns` does nothing
    where DNS is there.
    """
    written = "".join(f"{flag}={value}\n" for flag, value in KUBELET_ARGUMENTS.items())

    def lacks(_: Host, fact: Facts) -> str:
        if fact.cluster_dns:
            return ""
        return "its kubelet knows no DNS"

    def write(host: Host) -> None:
        host.root("sh", "-euc", f"cat >> {DATA}/args/kubelet", stdin=written.encode())
        host.root("snap", "restart", "microk8s.daemon-kubelite", seconds=START_SECONDS)

    return each_step(
        lab, "cluster-dns", "Pods of every host look names up", lacks, write, after=after
    )


def _addon_step(lab: Lab, words: Sequence[str], done: Callable[[], Answer], *, after: str) -> Step:
    def enable() -> None:
        # It may exit 0 and have done nothing, or 1 since it is enabled already: `done` decides.
        lab.first.microk8s("enable", *words, seconds=ENABLE_SECONDS, check=False)
        lab.changed()

    title = f"Enable {words[0]}"
    return Step(
        f"addon:{words[0]}", title, done, enable, deadline=ENABLE_SECONDS, every=1.0, after=after
    )


def _deployed(lab: Lab, name: str) -> Answer:
    ran = lab.first.microk8s("kubectl", *PROOFS[name], check=False)
    if ran.code == 0 and ran.stdout.strip() not in ("", "0"):
        return YES
    return no("it is not there yet")


def gpus(spec: ClusterSpec) -> int:
    """Return how many of NVIDIA's GPUs the nodes ask for."""
    if spec.kuberay.simulated_gpus or spec.kuberay.gpu_resource != GPU:
        return 0
    return sum(node.gpus for node in spec.nodes())


def _offered(lab: Lab, least: int) -> Answer:
    """Say whether Kubernetes offers as many GPUs as the nodes of the cluster ask for."""
    offered = {name: pods.offered(node, GPU) for name, node in lab.nodes().items()}
    if sum(offered.values()) >= least:
        return YES
    having = [f"{name}: {count}" for name, count in offered.items() if count]
    by_host = named(having) or "no host has any"
    detail = f"{sum(offered.values())} of {least} GPUs are offered ({by_host})"
    return no(detail, moved=lab.pulled(lab.hosts))


def _trust_step(lab: Lab, known: Known, after: str) -> Step:
    """Return the step after which containerd on every host knows a registry, or its mirror."""

    def lacks(_: Host, fact: Facts) -> str:
        if fact.trust.get(known.name, "") == known.hosts_toml:
            return ""
        if known.is_mirror:
            return "does not know the mirror"
        return "does not know the registry"

    def write(host: Host) -> None:
        host.root("mkdir", "-p", f"{CERTS_D}/{known.name}")
        for path, content in known.files.items():
            host.connection.put(path, content, sudo=True)

    noun = f"mirror of {known.name}" if known.is_mirror else f"registry {known.name}"
    title = f"Every host knows the {noun}"
    return each_step(lab, f"trust:{known.name}", title, lacks, write, after=after)


def _kubeconfig_step(lab: Lab, path: Path, after: str) -> Step:
    def ca() -> str:
        return lab.first.root("cat", f"{DATA}/certs/ca.crt").stdout

    # Its server is the address of its default route, which need not be the one that is reached.
    return kubeconfig.step(
        path, ca, lambda: lab.first.microk8s("config").stdout, lab.first.server, after=after
    )
