"""Certificates as MicroK8s makes them.

server.crt and front-proxy-client.crt are valid for a year, all others for ten.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from standin.places import API_PORT, API_SERVICE, CERTS, CREDENTIALS, addresses, node_name

YEAR = 365


def produce() -> None:
    """Make the CA, the key of service accounts, and the certificates of this node's programs."""
    CERTS.mkdir(parents=True, exist_ok=True)
    for name in ("ca", "front-proxy-ca"):
        _openssl(
            *(
                "req",
                "-x509",
                "-new",
                "-nodes",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *(
                "-keyout",
                str(CERTS / f"{name}.key"),
                "-out",
                str(CERTS / f"{name}.crt"),
                "-days",
                str(10 * YEAR),
            ),
            *(
                "-subj",
                "/CN=10.152.183.1",
                "-addext",
                "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
            ),
        )

    _openssl("genrsa", "-traditional", "-out", str(CERTS / "serviceaccount.key"), "2048")
    produce_for_this_node()


def produce_for_this_node() -> None:
    """Sign this node's server and client certificates with the existing CA.

    The kubeconfigs of its programs are written as well.
    """
    server()
    front_proxy()
    client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
    for name, user, group in (
        ("client", "admin", "system:masters"),
        ("controller", "system:kube-controller-manager", ""),
        ("scheduler", "system:kube-scheduler", ""),
        ("proxy", "system:kube-proxy", ""),
        ("kubelet", f"system:node:{node_name()}", "system:nodes"),
    ):
        client(name, user, group)
        kubeconfig(name)


def server(days: int = YEAR) -> None:
    """Make server.crt, which MicroK8s does not renew (canonical/microk8s#5576)."""
    names = [
        node_name(),
        socket.gethostname(),
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ]
    names += ["kubernetes.default.svc.cluster.local", "localhost"]
    found = [f"DNS:{name}" for name in dict.fromkeys(names)]
    found += [f"IP:{address}" for address in ("127.0.0.1", API_SERVICE, *addresses(), *_extra())]
    _sign("server", "/CN=127.0.0.1", "ca", ",".join(found), days)


def front_proxy(days: int = YEAR) -> None:
    _sign("front-proxy-client", "/CN=front-proxy-client", "front-proxy-ca", "", days)


def client(name: str, user: str, group: str) -> None:
    _sign(name, f"/CN={user}" + (f"/O={group}" if group else ""), "ca", "", 10 * YEAR)


def kubelet_server() -> None:
    found = ",".join([f"DNS:{node_name()}", *(f"IP:{address}" for address in addresses())])
    _sign("kubelet-server", f"/CN=system:node:{node_name()}/O=system:nodes", "ca", found, 10 * YEAR)


def kubeconfig(name: str) -> None:
    """Write credentials/NAME.config for the API at loopback, where workers have a proxy."""
    CREDENTIALS.mkdir(parents=True, exist_ok=True)
    cluster = {
        "server": f"https://127.0.0.1:{API_PORT}",
        "certificate-authority-data": _base64(CERTS / "ca.crt"),
    }
    user = {
        "client-certificate-data": _base64(CERTS / f"{name}.crt"),
        "client-key-data": _base64(CERTS / f"{name}.key"),
    }

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "microk8s-cluster", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [
            {"name": "microk8s", "context": {"cluster": "microk8s-cluster", "user": "admin"}}
        ],
        "current-context": "microk8s",
    }

    path = CREDENTIALS / f"{name}.config"
    path.touch(mode=0o660)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def check() -> str:
    """Return the fingerprint that a joining node compares: 12 digits of server.crt's hash."""
    pem = (CERTS / "server.crt").read_text()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()[:12]


def _extra() -> list[str]:
    path = CERTS / "extra-sans.txt"
    return path.read_text().split() if path.exists() else []


def _sign(name: str, subject: str, authority: str, names: str, days: int) -> None:
    extensions = "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature,keyEncipherment\n"
    extensions += "extendedKeyUsage=serverAuth,clientAuth\n" + (
        f"subjectAltName={names}\n" if names else ""
    )

    with tempfile.TemporaryDirectory() as directory:
        request, wish = Path(directory) / "request", Path(directory) / "extensions"
        wish.write_text(extensions)
        _openssl(
            *("req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(CERTS / f"{name}.key"), "-out", str(request), "-subj", subject),
        )

        signed_by = (
            "-CA",
            str(CERTS / f"{authority}.crt"),
            "-CAkey",
            str(CERTS / f"{authority}.key"),
        )

        # No file of serial numbers: after a loss of power, an empty one would remain, and openssl
        # could sign nothing more.
        _openssl(
            *(
                "x509",
                "-req",
                "-in",
                str(request),
                *signed_by,
                "-set_serial",
                f"0x{secrets.token_hex(16)}",
            ),
            *("-days", str(days)),
            *("-extfile", str(wish), "-out", str(CERTS / f"{name}.crt")),
        )


def _base64(path: Path) -> str:
    return subprocess.check_output(["base64", "-w0", str(path)], text=True)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {' '.join(arguments[:2])}: {done.stderr}")


def enddate(name: str) -> str:
    """Return the time at which a certificate expires, as openssl prints it."""
    command: Sequence[str] = [
        "openssl",
        "x509",
        "-enddate",
        "-noout",
        "-in",
        str(CERTS / f"{name}.crt"),
    ]
    return subprocess.check_output(command, text=True).strip().partition("=")[2]
