"""Steps after all joins: addons, trust in registries, and the kubeconfig."""

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

# Addons pull their images, and NVIDIA's are large.
ENABLE_SECONDS = 600.0
GPU = "nvidia.com/gpu"
_DEPLOYED = "jsonpath={.status.availableReplicas}"
# For each addon, the arguments of kubectl whose output proves that it works.
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
    """Return the steps for DNS, addons, registries and the kubeconfig."""
    steps = [_lookup_step(lab, after)]
    for name in PROOFS:
        if name != "registry" or (spec.microk8s and spec.microk8s.registry):
            steps.append(_addon_step(lab, [name], partial(_deployed, lab, name), after=after))

    needed = gpus(spec)
    if needed:
        # Without the option, the addon looks for a driver only on the host where it is enabled, and
        # may install a second driver on the others (microk8s-core-addons,
        # addons/nvidia/enable:181-187).
        words = ["nvidia", "--gpu-operator-driver=host"]
        steps.append(_addon_step(lab, words, partial(_offered, lab, needed), after=after))

    for known in files.registries(spec, environ):
        steps.append(_trust_step(lab, known, after))
    steps.append(kubeconfig.step(lab, kubeconfig_file, after=after))
    return steps


def _lookup_step(lab: Lab, after: str) -> Step:
    """Return the step that tells each kubelet the address of the DNS.

    A kubelet may lack the address: a joining host copies the control plane's
    kubelet arguments, and `enable dns` changes nothing if DNS already runs.
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
        # The exit code may be 0 without an effect, and 1 if the addon is enabled already, so only
        # `done` counts.
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
    return no("it is not deployed yet")


def gpus(spec: ClusterSpec) -> int:
    """Count the nodes' NVIDIA GPUs; 0 for simulated or other GPUs."""
    if spec.kuberay.simulated_gpus or spec.kuberay.gpu_resource != GPU:
        return 0
    return sum(node.gpus for node in spec.nodes())


def _offered(lab: Lab, least: int) -> Answer:
    offered = {name: pods.offered(node, GPU) for name, node in lab.nodes().items()}
    if sum(offered.values()) >= least:
        return YES
    having = [f"{name}: {count}" for name, count in offered.items() if count]
    by_host = named(having) or "no host has any"
    detail = f"{sum(offered.values())} of {least} GPUs are offered ({by_host})"
    return no(detail, moved=lab.pulled(lab.hosts))


def _trust_step(lab: Lab, known: Known, after: str) -> Step:
    def lacks(_: Host, fact: Facts) -> str:
        if fact.trust.get(known.name, "") == known.hosts_toml:
            return ""
        if known.is_mirror:
            return "does not know the mirror"
        return "does not know the registry"

    def write(host: Host) -> None:
        host.root("mkdir", "-p", f"{CERTS_D}/{known.name}")
        for path, content in known.files.items():
            host.connection.put(path, content)

    noun = f"mirror of {known.name}" if known.is_mirror else f"registry {known.name}"
    title = f"Every host knows the {noun}"
    return each_step(lab, f"trust:{known.name}", title, lacks, write, after=after)
