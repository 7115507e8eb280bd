"""The control plane of a bed's cluster, on its first host.

It consists of etcd, the API server, the controller manager and the scheduler.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from tests.bed.certificates import Authority, new_authority, private
from tests.bed.hosts import Host

PORT = 6443
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
DOMAIN = "cluster.local"
# The path at which a host mounts its directory of files.
BED = "/etc/bed"
API_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    f"kubernetes.default.svc.{DOMAIN}",
)


@dataclass(frozen=True)
class ControlPlane:
    """The host of the API server, and the CA of its cluster."""

    host: Host
    authority: Authority

    @property
    def url(self) -> str:
        return f"https://{self.host.ip}:{PORT}"

    def kubeconfig(self, user: str, *, group: str | None = None) -> str:
        """Return a kubeconfig with a certificate for a user of this name and group."""
        certificate, key = self.authority.sign(user, group=group)
        return kubeconfig(
            self.url,
            self.authority.certificate,
            {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)},
        )

    def write_files(self) -> None:
        """Write the keys, certificates and kubeconfig that the control plane's programs read."""
        files, authority = self.host.files, self.authority
        authority.write(files)
        names = [*API_NAMES, API_SERVICE, "127.0.0.1", self.host.ip]
        authority.write_pair(files, "api", "kube-apiserver", names=names)
        authority.write_pair(files, "kubelet-client", "kube-apiserver", group="system:masters")
        secret(
            files / "service-accounts.key",
            private(ec.generate_private_key(ec.SECP256R1())).decode(),
        )
        secret(files / "admin.kubeconfig", self.kubeconfig("admin", group="system:masters"))

    def start(self) -> None:
        """Start the control plane's programs, and wait until the API server is ready."""
        self.host.start("etcd", *_etcd())
        self.host.start("kube-apiserver", *_api_server(self.host.ip))
        self.wait(up=True)
        config = f"--kubeconfig={BED}/admin.kubeconfig"
        # Each runs once, so no election is needed; a leader that cannot renew its lease would exit.
        self.host.start("kube-controller-manager", "kube-controller-manager", config, *CONTROLLERS)
        self.host.start("kube-scheduler", "kube-scheduler", config, "--leader-elect=false")

    def wait(self, *, up: bool, seconds: float = 60.0) -> None:
        """Wait until the API server says that it is ready (or no longer says so: not `up`)."""
        give_up = time.monotonic() + seconds
        while self._ready() is not up:
            if time.monotonic() > give_up:
                raise RuntimeError(
                    f"the API server is {'not ' if up else ''}up\n{self.host.log('kube-apiserver')}"
                )
            time.sleep(0.1)

    def _ready(self) -> bool:
        trusted = ssl.create_default_context(cadata=self.authority.certificate.decode())
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2, context=trusted) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def new_control_plane(host: Host) -> ControlPlane:
    return ControlPlane(host, new_authority())


def kubeconfig(
    url: str, certificate: bytes, user: dict[str, str], *, namespace: str = "default"
) -> str:
    """Return a kubeconfig with one context, as JSON, which is valid YAML."""
    cluster = {"server": url, "certificate-authority-data": _base64(certificate)}
    context = {"cluster": "bed", "user": "bed", "namespace": namespace}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bed", "cluster": cluster}],
            "users": [{"name": "bed", "user": user}],
            "contexts": [{"name": "bed", "context": context}],
            "current-context": "bed",
        },
        indent=1,
    )


CONTROLLERS = (
    "--leader-elect=false",
    "--use-service-account-credentials",
    f"--service-account-private-key-file={BED}/service-accounts.key",
    f"--root-ca-file={BED}/ca.crt",
    f"--cluster-signing-cert-file={BED}/ca.crt",
    f"--cluster-signing-key-file={BED}/ca.key",
)


def _etcd() -> list[str]:
    here = "http://127.0.0.1:2379"
    return [
        *(
            "etcd",
            "--data-dir",
            "/var/lib/etcd/data",
            "--listen-client-urls",
            here,
            "--advertise-client-urls",
            here,
        ),
        # The data need not survive a crash of the machine.
        *("--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"),
    ]


def _api_server(ip: str) -> list[str]:
    return [
        "kube-apiserver",
        f"--advertise-address={ip}",
        f"--secure-port={PORT}",
        "--etcd-servers=http://127.0.0.1:2379",
        "--authorization-mode=Node,RBAC",
        # In addition to the plugins that are on by default: ResourceQuota, LimitRanger,
        # PodSecurity, DefaultStorageClass and more.
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICES}",
        f"--client-ca-file={BED}/ca.crt",
        f"--tls-cert-file={BED}/api.crt",
        f"--tls-private-key-file={BED}/api.key",
        f"--kubelet-certificate-authority={BED}/ca.crt",
        f"--kubelet-client-certificate={BED}/kubelet-client.crt",
        f"--kubelet-client-key={BED}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={BED}/service-accounts.key",
        f"--service-account-signing-key-file={BED}/service-accounts.key",
    ]


def secret(path: Path, text: str) -> Path:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
