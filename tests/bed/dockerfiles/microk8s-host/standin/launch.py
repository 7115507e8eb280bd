"""The launch configuration, which is read once, at the installation.

An invalid one makes the installation fail (pkg/k8sinit/schema.go).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from standin import addons, clustering, services
from standin.places import ARGS, CERTS, COMMON, PERSISTENT_TOKENS

# Only the first existing file is read.
FILES = (
    Path("/etc/microk8s.yaml"),
    Path("/root/snap/microk8s/common/.microk8s.yaml"),
    COMMON / ".microk8s.yaml",
)
# microk8s-resources/microk8s.default.yaml.
DEFAULT = {
    "version": "0.1.0",
    "extraKubeletArgs": addons.DNS_ARGUMENTS,
    "addons": [{"name": "dns"}],
}
VERSIONS = ("0.1.0", "0.2.0")
# A copy of the configuration, kept until it is applied: after a boot, the cluster agent resumes it
# (cmd/cluster-agent.go).
TODO = COMMON / "etc/launcher/install.yaml"
OF_SERVICE = {
    "extraKubeletArgs": "kubelet",
    "extraKubeAPIServerArgs": "kube-apiserver",
    "extraKubeProxyArgs": "kube-proxy",
    "extraContainerdEnv": "containerd-env",
}
KEYS = {
    *(
        "version",
        "join",
        "persistentClusterToken",
        "addons",
        "containerdRegistryConfigs",
        "extraSANs",
        "extraCNIEnv",
    ),
    *("extraConfigFiles", "addonRepositories", *OF_SERVICE),
}


def read() -> dict[str, Any]:
    """Return the configuration. Raises ValueError for one that MicroK8s rejects."""
    path = next((path for path in FILES if path.is_file()), None)
    document = yaml.safe_load(path.read_text()) if path else DEFAULT
    if not isinstance(document, dict) or document.get("version") not in VERSIONS:
        raise ValueError(f"invalid configuration version in {path}")
    unknown = sorted(set(document) - KEYS)
    if unknown:
        raise ValueError(
            f"failed to parse {path}: field {unknown[0]} not found in type k8sinit.Configuration"
        )
    return document


def begin() -> None:
    """Start a process that applies the rest of the configuration, unless it was applied before."""
    if TODO.exists():
        with Path("/var/log/microk8s.launch.log").open("a") as log:
            command = ["env", "PYTHONPATH=/opt/bed", "python3", "-m", "standin.launch"]
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def asks_nothing(document: dict[str, Any]) -> bool:
    """Say whether the configuration requests nothing that needs running services."""
    return not document.get("join") and not document.get("addons")


def before_start(document: dict[str, Any]) -> None:
    """Apply the parts that precede the services' start, and save the configuration for the rest."""
    TODO.parent.mkdir(parents=True, exist_ok=True)
    TODO.write_text(yaml.safe_dump(document))

    for key, service in OF_SERVICE.items():
        for flag, value in (document.get(key) or {}).items():
            services.set_argument(service, flag, value)

    for host, text in (document.get("containerdRegistryConfigs") or {}).items():
        directory = ARGS / "certs.d" / host
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "hosts.toml").write_text(text)

    if document.get("extraSANs"):
        CERTS.mkdir(parents=True, exist_ok=True)
        (CERTS / "extra-sans.txt").write_text("\n".join(document["extraSANs"]))

    if document.get("persistentClusterToken"):
        PERSISTENT_TOKENS.parent.mkdir(parents=True, exist_ok=True)
        PERSISTENT_TOKENS.write_text(document["persistentClusterToken"] + "\n")


def after_start(document: dict[str, Any]) -> None:
    """Join a cluster or enable addons, once the services run."""
    if document.get("join"):
        wish = document["join"]
        clustering.join([wish["url"], *(["--worker"] if wish.get("worker") else [])])
        return
    if asks_nothing(document):
        return
    services.wait_for_api()
    for addon in document["addons"]:
        (addons.disable if addon.get("disable") else addons.enable)([addon["name"]])


if __name__ == "__main__":
    after_start(yaml.safe_load(TODO.read_text()))
    TODO.rename(TODO.with_suffix(".yaml.applied"))
