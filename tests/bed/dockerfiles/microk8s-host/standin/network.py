"""What plays calico: every node's pods have addresses of their own, and every host knows the way to the others'.

Run as a service: `python3 -m standin.network`.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from standin.places import ARGS, LOCKS, PODS, is_worker, node_name
from standin.services import kubectl_command

CONFIG = Path("/etc/cni/net.d/10-standin.conflist")
ENDPOINTS = ARGS / "traefik/provider.yaml"


def main() -> None:
    nodes: dict[str, Any] = {}
    while True:
        # It follows: to ask every second took a tenth of a CPU, on every host.
        command = kubectl_command("get", "nodes", "--watch", "--output-watch-events", "--output", "json")
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
    address = next((one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"), None)
    if not pods or not address:
        return
    if node["metadata"]["name"] == node_name():
        text = json.dumps(_network(pods))
        if not CONFIG.exists() or CONFIG.read_text() != text:
            CONFIG.parent.mkdir(parents=True, exist_ok=True)
            CONFIG.write_text(text)
    else:
        subprocess.run(["ip", "route", "replace", pods, "via", address], check=False)


def _write_endpoints(nodes: list[dict[str, Any]]) -> None:
    """Tell a worker's proxy of every control plane, as its refreshing does."""
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
    """Leave nothing of the network of pods: bridge, routes, configuration."""
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
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "standin", "plugins": [bridge, ports]}


if __name__ == "__main__":
    main()
