"""Paths and ports of the snap, the installed revision, and helpers of the commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

SNAPD = Path("/var/lib/snapd/standin.json")
ROOT = Path("/var/snap/microk8s")
COMMON = ROOT / "common"
DATA = ROOT / "current"
ARGS = DATA / "args"
CERTS = DATA / "certs"
CREDENTIALS = DATA / "credentials"
LOCKS = DATA / "var/lock"
BACKEND = DATA / "var/kubernetes/backend"
TOKENS = CREDENTIALS / "cluster-tokens.txt"
PERSISTENT_TOKENS = CREDENTIALS / "persistent-cluster-tokens.txt"
# Image archives to be loaded into containerd.
SIDELOAD = COMMON / "etc/sideload"
CONTAINERD = COMMON / "run/containerd.sock"
PROGRAM = Path("/snap/bin/microk8s")
# The directory in which a test describes this machine to the stand-ins.
BED = Path("/etc/bed")

API_PORT = 16443
AGENT_PORT = 25000
STORE_PORT = 19001
STORE_CLIENTS = 12379
SERVICES = "10.152.183.0/24"
API_SERVICE = "10.152.183.1"
DNS_SERVICE = "10.152.183.10"
PODS = "10.1.0.0/16"

# {channel: (version, revision)}.
CHANNELS = {
    "1.32/stable": ("v1.32.9", 8511),
    "1.33/stable": ("v1.33.5", 8512),
    "1.34/stable": ("v1.34.2", 8596),
    "1.35/stable": ("v1.35.0", 8702),
}


@dataclass(frozen=True)
class Installed:
    """The snap, as snapd records it; `disabled` are the daemons that no boot starts.

    `channel` is the tracked one, "-" for a snap that was installed from a file.
    """

    version: str
    revision: str
    channel: str = "-"
    held: bool = False
    enabled: bool = True
    disabled: tuple[str, ...] = ()

    def write(self) -> None:
        SNAPD.parent.mkdir(parents=True, exist_ok=True)
        SNAPD.write_text(json.dumps(asdict(self)))


def installed() -> Installed | None:
    return Installed(**json.loads(SNAPD.read_text())) if SNAPD.exists() else None


def locked(name: str) -> bool:
    return (LOCKS / name).exists()


def lock(name: str) -> None:
    LOCKS.mkdir(parents=True, exist_ok=True)
    (LOCKS / name).touch()


def unlock(name: str) -> None:
    (LOCKS / name).unlink(missing_ok=True)


def is_worker() -> bool:
    return locked("clustered.lock")


def node_name() -> str:
    """Return the name under which the kubelet registers: Kubernetes rejects capitals."""
    return socket.gethostname().lower()


def addresses() -> list[str]:
    """Return this machine's addresses as `add-node` lists them: Docker's bridge, if any, first."""
    links = json.loads(subprocess.check_output(["ip", "-json", "-4", "address"]))
    found = [
        (link["ifname"], address["local"])
        for link in links
        for address in link["addr_info"]
        if link["ifname"] not in ("lo", "cni0") and not address["local"].startswith("169.254.")
    ]
    return [address for name, address in sorted(found, key=lambda pair: pair[0] != "docker0")]


def default_address() -> str:
    """Return the address of the interface with the default route."""
    routes = json.loads(subprocess.check_output(["ip", "-json", "-4", "route", "get", "192.0.2.1"]))
    return str(routes[0]["prefsrc"])


def stop(message: str, code: int) -> NoReturn:
    """Print to stdout, as MicroK8s does with most of its errors, and exit."""
    print(message, flush=True)
    sys.exit(code)


def need_root() -> None:
    if os.geteuid() != 0:
        stop(
            "Elevated permissions is needed for this operation. Please run this command with sudo.",
            50,
        )


def need_access() -> None:
    if os.access(CREDENTIALS / "client.config", os.R_OK):
        return
    user = os.environ.get("USER", "ops")
    stop(
        "Insufficient permissions to access MicroK8s.\n"
        f"You can either try again with sudo or add the user {user} to the 'microk8s' group:\n\n"
        f"    sudo usermod -a -G microk8s {user}\n    sudo chown -R $USER ~/.kube\n\n"
        "After this, reload the user groups either via a reboot or by running 'newgrp microk8s'.",
        1,
    )


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.3)
    return True
