"""What the cluster of hosts has besides nodes: addons, trust in a registry, and a kubeconfig here."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

import yaml

from trainyard.backends.microk8s.facts import DATA
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.backends.record import write_private
from trainyard.errors import OutsideError
from trainyard.registry.access import read_ca
from trainyard.seams.ssh.hosts import each
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import named

ENABLE_SECONDS = 300.0
CERTS_D = f"{DATA}/args/certs.d"
GPU = "nvidia.com/gpu"
_DEPLOYED = "jsonpath={.status.availableReplicas}"
# ADDON: what proves that it is there, asked of Kubernetes.
PROOFS: Mapping[str, tuple[str, ...]] = {
    "dns": ("get", "deployment/coredns", "--namespace", "kube-system", "--output", _DEPLOYED),
    "hostpath-storage": ("get", "storageclass/microk8s-hostpath", "--output", "name"),
}


def steps(spec: ClusterSpec, lab: Lab, environ: Mapping[str, str], kubeconfig: Path, *, after: str) -> list[Step]:
    """Return the steps after which pods are scheduled, find each other, and pull from the cluster's registry."""
    nvidia = [_gpu_step(spec, lab, after=after)] if gpus(spec) else []
    addons = [_addon_step(lab, name, after=after) for name in PROOFS]
    return [*addons, *nvidia, *_trust_steps(spec, lab, environ, after), _kubeconfig_step(lab, kubeconfig, after)]


def _addon_step(lab: Lab, name: str, *, after: str) -> Step:
    first = lab.control_planes[0]

    def done() -> Answer:
        ran = first.microk8s("kubectl", *PROOFS[name], check=False)
        return YES if ran.code == 0 and ran.stdout.strip() not in ("", "0") else no("it is not there yet")

    def enable() -> None:
        # It may exit 0 and have done nothing, or 1 since it is enabled already: the question above decides.
        first.microk8s("enable", name, seconds=ENABLE_SECONDS, check=False)

    return Step(f"Enable {name}", done, enable, deadline=ENABLE_SECONDS, every=1.0, after=after)


def gpus(spec: ClusterSpec) -> int:
    """Return how many of NVIDIA's GPUs the nodes ask for."""
    if spec.kuberay.simulated_gpus or spec.kuberay.gpu_resource != GPU:
        return 0
    return sum(node.gpus for node in spec.nodes())


def _gpu_step(spec: ClusterSpec, lab: Lab, *, after: str) -> Step:
    """Return the step after which Kubernetes offers as many GPUs as the nodes of the cluster want."""
    first, least = lab.control_planes[0], gpus(spec)

    def done() -> Answer:
        offered = {name: int(node["status"].get("allocatable", {}).get(GPU, 0)) for name, node in lab.nodes().items()}
        if sum(offered.values()) >= least:
            return YES
        having = [f"{name}: {count}" for name, count in offered.items() if count]
        return no(f"{sum(offered.values())} of {least} GPUs are offered ({named(having) or 'no host has any'})")

    def enable() -> None:
        first.microk8s("enable", "nvidia", seconds=ENABLE_SECONDS, check=False)

    return Step("Enable nvidia", done, enable, deadline=2 * ENABLE_SECONDS, every=2.0, after=after)


def _trust_steps(spec: ClusterSpec, lab: Lab, environ: Mapping[str, str], after: str) -> list[Step]:
    """Return the step after which containerd knows the cluster's registry on every host; none for a public one.

    https://github.com/containerd/containerd/blob/main/docs/hosts.md: read at each pull, no restart.
    """
    registry = spec.registry
    ca = read_ca(registry, environ) if registry else None
    if registry is None or not (ca or registry.insecure):
        return []
    directory = f"{CERTS_D}/{registry.address}"
    # Named by its content: hosts.toml tells whether a host has this CA, or a former one.
    kept = f"{directory}/ca-{hashlib.sha256(ca).hexdigest()[:8]}.crt" if ca else ""
    server = f"{'http' if registry.insecure else 'https'}://{registry.address}"
    lines = [f'server = "{server}"', f'[host."{server}"]', '  capabilities = ["pull", "resolve"]']
    text = "\n".join([*lines, *([f'  ca = "{kept}"'] if ca else [])]) + "\n"

    def lacking() -> list[Host]:
        facts = lab.facts()
        return [host for host in lab.hosts if facts[host.name].trust.get(registry.address) != text]

    def done() -> Answer:
        found = lacking()
        return no(f"{named([host.name for host in found])}: does not know the registry") if found else YES

    def write(host: Host) -> None:
        host.root("mkdir", "-p", directory)
        if ca:
            host.connection.put(kept, ca, sudo=True)
        host.connection.put(f"{directory}/hosts.toml", text.encode(), sudo=True)

    def write_all() -> None:
        each(lacking(), write)
        lab.changed()

    return [Step(f"Every host pulls from {registry.address}", done, write_all, after=after)]


def _kubeconfig_step(lab: Lab, path: Path, after: str) -> Step:
    """Return the step after which a kubeconfig is here whose server is the address that we reach."""

    def done() -> Answer:
        if not path.exists():
            return no("it is not there")
        return YES if _ca_of(path.read_text()) == _ca(lab) else no("it is of another cluster of these hosts")

    def write() -> None:
        first = lab.control_planes[0]
        text = first.microk8s("config").stdout
        if "clusters:" not in text:
            raise OutsideError(f"{first.name} gives no kubeconfig", where=text.strip().partition("\n")[0])
        document = yaml.safe_load(text)
        # What MicroK8s writes is the address of its default route, which need not be the one that is reached.
        document["clusters"][0]["cluster"]["server"] = first.server
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, yaml.safe_dump(document, sort_keys=False))

    return Step("Write its kubeconfig", done, write, after=after)


def _ca(lab: Lab) -> str:
    return lab.control_planes[0].root("cat", f"{DATA}/certs/ca.crt").stdout.strip()


def _ca_of(kubeconfig: str) -> str:
    cluster = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
    return base64.b64decode(cluster["certificate-authority-data"]).decode().strip()
