"""Volumes of the class microk8s-hostpath: `python3 -m standin.hostpath` as a service.

It runs the bed's provisioner with this node's credentials.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from standin.places import API_PORT, CERTS, node_name

CONFIG = Path("/run/hostpath.json")


def main() -> None:
    pair = {"cert": str(CERTS / "kubelet.crt"), "key": str(CERTS / "kubelet.key")}
    CONFIG.write_text(
        json.dumps({"api": f"https://127.0.0.1:{API_PORT}", "ca": str(CERTS / "ca.crt"), **pair})
    )
    os.execv("/opt/bed/provisioner", ["provisioner", node_name(), str(CONFIG)])


if __name__ == "__main__":
    main()
