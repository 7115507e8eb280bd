"""The files for hosts, made from the templates in microk8s/ and CAs' files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from trainyard import paths, render
from trainyard.backends.microk8s.facts import DATA, SYSCTLS
from trainyard.registry.access import read_ca
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import Registry

CERTS_D = f"{DATA}/args/certs.d"
# From MicroK8s' launch file (microk8s.default.yaml), which Trainyard's launch file replaces.
KUBELET_ARGUMENTS = {"--cluster-domain": "cluster.local", "--cluster-dns": "10.152.183.10"}
ADDONS = ("dns", "hostpath-storage")


@dataclass(frozen=True)
class Known:
    """Containerd's files for a registry or its mirror, by path.

    The file hosts.toml is last.
    """

    name: str
    files: Mapping[str, bytes]
    is_mirror: bool

    @property
    def hosts_toml(self) -> str:
        return self.files[f"{CERTS_D}/{self.name}/hosts.toml"].decode()


def launch(*, is_first: bool, mirrors: Mapping[str, str]) -> bytes:
    """Render a host's launch configuration."""
    values = {
        "kubelet_arguments": KUBELET_ARGUMENTS,
        "addons": [{"name": name} for name in ADDONS] if is_first else [],
        "mirrors": {name: _hosts_toml(url) for name, url in mirrors.items()},
    }
    return render.render(_template("launch.yaml.j2"), values).encode()


def limits(now: Mapping[str, int]) -> bytes:
    """Render the file of kernel limits; higher present limits are kept."""
    desired = {name: max(least, now[name]) for name, least in SYSCTLS.items()}
    return render.render(_template("limits.conf.j2"), {"limits": desired}).encode()


def registries(spec: ClusterSpec, environ: Mapping[str, str]) -> list[Known]:
    """Return containerd's files for the cluster's registry and each mirror.

    A registry with TLS and a public CA needs no files. Raises PrerequisiteError
    if a CA cannot be read. Format:
    https://github.com/containerd/containerd/blob/main/docs/hosts.md.
    """
    found = []
    trusted = _trusted(spec.registry, environ) if spec.registry else None
    if trusted and trusted.files:
        found.append(trusted)

    mirrors = spec.microk8s.mirror if spec.microk8s else {}
    for name, url in mirrors.items():
        content = _hosts_toml(url).encode()
        found.append(Known(name, {f"{CERTS_D}/{name}/hosts.toml": content}, is_mirror=True))
    return found


def operator_values(spec: ClusterSpec) -> dict[str, Any]:
    """Return the operator chart's values; the cluster file takes precedence."""
    values: dict[str, Any] = yaml.safe_load(_template("kuberay-operator.yaml"))
    return {**values, **spec.kuberay.operator.values}


def _trusted(registry: Registry, environ: Mapping[str, str]) -> Known:
    directory = f"{CERTS_D}/{registry.address}"
    ca = read_ca(registry, environ)
    files: dict[str, bytes] = {}
    if ca is None and not registry.insecure:
        return Known(registry.address, files, is_mirror=False)

    ca_file = None
    if ca is not None:
        # The name of the CA's file has a hash of its content, so that a host's hosts.toml shows
        # whether the host has this CA.
        ca_file = f"{directory}/ca-{hashlib.sha256(ca).hexdigest()[:8]}.crt"
        files[ca_file] = ca

    scheme = "http" if registry.insecure else "https"
    server = f"{scheme}://{registry.address}"
    files[f"{directory}/hosts.toml"] = _hosts_toml(server, server=server, ca=ca_file).encode()
    return Known(registry.address, files, is_mirror=False)


def _hosts_toml(url: str, *, server: str | None = None, ca: str | None = None) -> str:
    # Containerd appends /v2 to a path, unless `override_path` is set.
    has_own_path = urlsplit(url).path.startswith("/v2/")
    values = {"url": url, "server": server, "ca": ca, "has_own_path": has_own_path}
    return render.render(_template("hosts.toml.j2"), values)


def _template(name: str) -> str:
    return (paths.shipped("microk8s") / name).read_text(encoding="utf-8")
