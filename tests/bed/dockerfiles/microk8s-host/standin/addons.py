"""`microk8s enable` and `disable`: CoreDNS, hostpath-storage, a registry, GPUs.

Other known addons do nothing but print that they are enabled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from standin import clustering, services
from standin.places import BED, COMMON, DNS_SERVICE, addresses, is_worker, need_access, stop

KNOWN = {
    "dns": ("CoreDNS", "1.13.1"),
    "ha-cluster": ("Configure high availability on the current node", ""),
    "helm3": ("Helm 3 - Kubernetes package manager", "3.19.0"),
    "hostpath-storage": ("Storage class; allocates storage from host directory", "1.5.0"),
    "nvidia": ("NVIDIA hardware (GPU and network) support", "25.10.0"),
    "registry": ("Private image registry exposed on localhost:32000", "2.8.3"),
}
DNS_ARGUMENTS = {"--cluster-domain": "cluster.local", "--cluster-dns": DNS_SERVICE}
DEPRECATED = {"storage": "hostpath-storage", "gpu": "nvidia"}
NOTED = COMMON / "addons-enabled"
MANIFESTS = Path("/opt/bed/manifests")
GPU_NAMESPACE = "gpu-operator-resources"


def enabled() -> list[str]:
    """Return the addons that are enabled; an addon with an effect is recognized by its effect."""
    found = ["ha-cluster", "helm3"]
    for name, question in (
        ("dns", ("get", "deployment/coredns", "-n", "kube-system")),
        ("hostpath-storage", ("get", "storageclass/microk8s-hostpath")),
        ("nvidia", ("get", f"namespace/{GPU_NAMESPACE}")),
        ("registry", ("get", "namespace/container-registry")),
    ):
        if services.kubectl(*question).returncode == 0:
            found.append(name)
    return found


def enable(words: Sequence[str]) -> None:
    for name in _names(words):
        print(f"Infer repository core for addon {name}", file=sys.stderr, flush=True)
        if name in enabled():
            if name == "nvidia":
                print("Error: INSTALLATION FAILED: cannot re-use a name that is still in use")
            else:
                print(f"Addon core/{name} is already enabled")
            continue
        _apply(name)
        if name == "nvidia":
            driver = _choose_driver(words)
            print(f"Using {driver} GPU driver")
            services.kubectl("label", "--overwrite", "namespace", GPU_NAMESPACE, f"driver={driver}")


def disable(words: Sequence[str]) -> None:
    for name in _names(words):
        services.kubectl("delete", "-f", "-", "--ignore-not-found", given=_manifest(name))
        print(f"{name} is disabled")


def _names(words: Sequence[str]) -> list[str]:
    if is_worker():
        stop(
            "This MicroK8s deployment is acting as a node in a cluster.\nPlease use the master "
            "node.",
            1,
        )

    need_access()
    if services.is_stopped():
        print("microk8s is not running, try microk8s start", file=sys.stderr)
        sys.exit(1)

    found = []
    for word in words:
        if word.startswith("-"):
            continue

        name = word.partition(":")[0].removeprefix("core/")
        if name in DEPRECATED:
            print(f"DEPRECATION WARNING: '{name}' is deprecated and will soon be removed.")

        name = DEPRECATED.get(name, name)
        if name not in KNOWN:
            print(f"Addon {name} was not found in any repository", file=sys.stderr)
            sys.exit(1)

        found.append(name)

    return found


def _apply(name: str) -> None:
    if name == "registry" and "hostpath-storage" not in enabled():
        _apply("hostpath-storage")

    done = services.kubectl(
        "apply", "--server-side", "--validate=false", "-f", "-", given=_manifest(name)
    )
    if done.returncode != 0:
        stop(done.stderr, 1)

    if name == "dns":
        if not services.argument_of("kubelet", "--cluster-dns"):
            print("Restarting kubelet", flush=True)
            _tell_all_kubelets()
        print("CoreDNS is enabled", flush=True)
    else:
        print(f"{name} is enabled", flush=True)


def _tell_all_kubelets() -> None:
    """Set the kubelet's DNS arguments on all nodes, and restart kubelite.

    The restart includes the API server (actions/common/utils.sh:399-423).
    """
    listed = services.kubectl("get", "nodes", "-o", "json").stdout
    found = [each for item in json.loads(listed)["items"] for each in item["status"]["addresses"]]
    for address in {each["address"] for each in found if each["type"] == "InternalIP"} - set(
        addresses()
    ):
        clustering.configure(address, DNS_ARGUMENTS)
    services.configure_kubelet(DNS_ARGUMENTS)
    services.wait_for_api()


def _choose_driver(words: Sequence[str]) -> str:
    """Return the source of the GPUs' driver on all hosts: "host" or "operator".

    Unless a flag decides, only this host's GPUs count (addons/nvidia/enable).
    """
    given = next(
        (word.partition("=")[2] for word in words if word.startswith("--gpu-operator-driver=")),
        "auto",
    )
    if given != "auto":
        return given
    gpus = BED / "gpus"
    return "host" if gpus.exists() and gpus.read_text().strip() not in ("", "0") else "operator"


def _manifest(name: str) -> str:
    path = MANIFESTS / f"{name}.yaml"
    return path.read_text() if path.exists() else ""
