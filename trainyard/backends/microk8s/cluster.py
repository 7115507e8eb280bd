"""What the cluster of hosts has besides nodes: addons, trust in a registry, and a kubeconfig here."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import yaml

from trainyard.backends.microk8s.facts import DATA
from trainyard.backends.microk8s.join import API_PORT
from trainyard.backends.microk8s.lab import Lab, each
from trainyard.backends.record import write_private
from trainyard.errors import OutsideError
from trainyard.registry.access import ca_file, registry_of
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import named

ENABLE_SECONDS = 300.0
CERTS_D = f"{DATA}/args/certs.d"
GPU = "nvidia.com/gpu"
# ADDON: what proves that it is there, asked of Kubernetes; {} for one whose effect is asked otherwise.
_DEPLOYED = "jsonpath={.status.availableReplicas}"
PROOFS: Mapping[str, tuple[str, ...]] = {
    "dns": ("get", "deployment/coredns", "--namespace", "kube-system", "--output", _DEPLOYED),
    "hostpath-storage": ("get", "storageclass/microk8s-hostpath", "--output", "name"),
}


def steps(spec: ClusterSpec, lab: Lab, environ: Mapping[str, str], kubeconfig: Path, *, after: str) -> list[Step]:
    """Return the steps after which pods are scheduled, find each other, and pull from the cluster's registry."""
    gpus = [_gpu_step(spec, lab, after=after)] if _gpus(spec) else []
    addons = [_addon_step(lab, name, after=after) for name in PROOFS]
    trust = hosts_toml(spec, environ)
    return [
        *addons,
        *gpus,
        *([_trust_step(lab, trust, after)] if trust else []),
        _kubeconfig_step(lab, kubeconfig, after),
    ]


def hosts_toml(spec: ClusterSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what containerd is to know of the cluster's registry, by its address; {} where it knows it already.

    https://github.com/containerd/containerd/blob/main/docs/hosts.md: read at each pull, no restart.
    """
    if spec.registry is None:
        return {}
    registry = registry_of(spec)
    scheme = "http" if registry.insecure else "https"
    server = f"{scheme}://{registry.address}"
    ca = ca_file(registry, environ)
    if ca is None and not registry.insecure:
        return {}
    lines = [f'server = "{server}"', f'[host."{server}"]', '  capabilities = ["pull", "resolve"]']
    lines += [f'  ca = "{CERTS_D}/{registry.address}/ca.crt"'] if ca else []
    return {registry.address: "\n".join(lines) + "\n"}


def _addon_step(lab: Lab, name: str, *, after: str) -> Step:
    first = lab.control_planes[0]

    def done() -> Answer:
        ran = first.microk8s("kubectl", *PROOFS[name], check=False)
        return YES if ran.code == 0 and ran.stdout.strip() not in ("", "0") else no("it is not there yet")

    def enable() -> None:
        # It may exit 0 and have done nothing, or 1 since it is enabled already: the question above decides.
        first.microk8s("enable", name, seconds=ENABLE_SECONDS, check=False)

    return Step(f"Enable {name}", done, enable, deadline=ENABLE_SECONDS, every=1.0, after=after)


def _gpus(spec: ClusterSpec) -> int:
    return sum(node.gpus for node in spec.nodes())


def _gpu_step(spec: ClusterSpec, lab: Lab, *, after: str) -> Step:
    """Return the step after which Kubernetes offers as many GPUs as the nodes of the cluster want."""
    first, least = lab.control_planes[0], _gpus(spec)

    def done() -> Answer:
        offered = {name: int(node["status"].get("allocatable", {}).get(GPU, 0)) for name, node in lab.nodes().items()}
        if sum(offered.values()) >= least:
            return YES
        having = [f"{name}: {count}" for name, count in offered.items() if count]
        return no(f"{sum(offered.values())} of {least} GPUs are offered ({named(having) or 'no host has any'})")

    def enable() -> None:
        first.microk8s("enable", "nvidia", seconds=ENABLE_SECONDS, check=False)

    return Step("Enable nvidia", done, enable, deadline=2 * ENABLE_SECONDS, every=2.0, after=after)


def _trust_step(lab: Lab, trust: Mapping[str, str], after: str) -> Step:
    address, text = next(iter(trust.items()))

    def lacking() -> list[str]:
        facts = lab.facts()
        return [host.name for host in lab.hosts if facts[host.name].trust.get(address) != text]

    def done() -> Answer:
        found = lacking()
        return no(f"{named(found)}: does not know the registry {address}") if found else YES

    def write() -> None:
        wanted = lacking()
        script = f'mkdir -p "{CERTS_D}/$0"; cat > "{CERTS_D}/$0/hosts.toml"'
        hosts = [host for host in lab.hosts if host.name in wanted]
        each(hosts, lambda host: host.root("sh", "-euc", script, address, stdin=text.encode()))
        lab.changed()

    return Step(f"Every host pulls from {address}", done, write, after=after)


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
        document["clusters"][0]["cluster"]["server"] = f"https://{first.ip}:{API_PORT}"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, yaml.safe_dump(document, sort_keys=False))

    return Step("Write its kubeconfig", done, write, after=after)


def _ca(lab: Lab) -> str:
    return lab.control_planes[0].root("cat", f"{DATA}/certs/ca.crt").stdout.strip()


def _ca_of(kubeconfig: str) -> str:
    cluster = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
    return base64.b64decode(cluster["certificate-authority-data"]).decode().strip()
