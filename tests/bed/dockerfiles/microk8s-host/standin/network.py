"""The stand-in for calico: each node's pods have a network, and every host has routes to all.

Run as a service: `python3 -m standin.network`.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from standin.places import ARGS, BED, CONTAINERD, LOCKS, PODS, is_worker, node_name, wait_until
from standin.services import kubectl, kubectl_command

CONFIG = Path("/etc/cni/net.d/10-standin.conflist")
ENDPOINTS = ARGS / "traefik/provider.yaml"
# A test names here an image that every node pulls before its pods have a network, as with
# calico/cni. Without this file, nothing is pulled.
IMAGE = BED / "network-image"
DAEMON_SET = Path("/opt/bed/manifests/calico.yaml")
WAIT_SECONDS = 3600


def main() -> None:
    nodes: dict[str, Any] = {}
    if IMAGE.exists() and not is_worker():
        text = DAEMON_SET.read_text().replace("${IMAGE}", IMAGE.read_text().strip())
        asked = ("apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-")
        wait_until(lambda: kubectl(*asked, given=text).returncode == 0, WAIT_SECONDS)

    while True:
        # A watch, since asking every second took a tenth of a CPU on every host.
        command = kubectl_command(
            "get", "nodes", "--watch", "--output-watch-events", "--output", "json"
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
            for line in watch.stdout or ():
                event = json.loads(line)
                node = event["object"]
                if node["kind"] != "Node":
                    watch.terminate()
                    break

                nodes[node["metadata"]["name"]] = node
                if event["type"] == "DELETED":
                    del nodes[node["metadata"]["name"]]
                else:
                    _learn(node)

                _write_endpoints(list(nodes.values()))

        nodes.clear()
        time.sleep(1)


def _learn(node: dict[str, Any]) -> None:
    pods = node["spec"].get("podCIDR")
    address = next(
        (one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"), None
    )
    if not pods or not address:
        return
    if node["metadata"]["name"] == node_name():
        # In a thread, so that routes are learned while it waits for the image.
        threading.Thread(target=_configure, args=(pods,), daemon=True).start()
    else:
        subprocess.run(["ip", "route", "replace", pods, "via", address], check=False)


def _configure(pods: str) -> None:
    """Configure the network of this node's pods, once the network's image is pulled."""
    text = json.dumps(_network(pods))
    if CONFIG.exists() and CONFIG.read_text() == text:
        return
    if wait_until(_is_pulled, WAIT_SECONDS):
        CONFIG.parent.mkdir(parents=True, exist_ok=True)
        CONFIG.write_text(text)


def _is_pulled() -> bool:
    if not IMAGE.exists():
        return True

    command = [
        "ctr",
        "--address",
        str(CONTAINERD),
        "--namespace",
        "k8s.io",
        "images",
        "ls",
        "--quiet",
    ]

    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return IMAGE.read_text().strip() in listed


def _write_endpoints(nodes: list[dict[str, Any]]) -> None:
    """Write a worker's list of control planes for its proxy, as MicroK8s refreshes that list."""
    if not is_worker() or not LOCKS.exists():
        return
    found = [
        one["address"]
        for node in nodes
        if "node.kubernetes.io/microk8s-controlplane" in node["metadata"]["labels"]
        for one in node["status"]["addresses"]
        if one["type"] == "InternalIP"
    ]
    if found:
        write_endpoints(found)


def write_endpoints(addresses: list[str]) -> None:
    ENDPOINTS.parent.mkdir(parents=True, exist_ok=True)
    ENDPOINTS.write_text(json.dumps({"servers": sorted(addresses)}))


def forget() -> None:
    """Remove the pod network: its bridge, routes and configuration."""
    CONFIG.unlink(missing_ok=True)
    subprocess.run(["ip", "link", "delete", "cni0"], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["ip", "route", "flush", "root", PODS], check=False)


def _network(pods: str) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }

    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "standin", "plugins": [bridge, ports]}


if __name__ == "__main__":
    main()
