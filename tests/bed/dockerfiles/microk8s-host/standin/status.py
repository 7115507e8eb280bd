"""`microk8s status`, with the output and exit codes of scripts/wrappers/status.py."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from standin import addons, services, store
from standin.places import is_worker, need_access, stop

ROLES = {0: "voter", 1: "standby", 2: "spare"}


def status(words: Sequence[str]) -> None:
    need_access()
    # The wrapper checks this first, even on a stopped worker (wrappers/microk8s-status.wrapper).
    if is_worker():
        stop(
            "This MicroK8s deployment is acting as a node in a cluster.\nPlease use the control "
            "plane node.",
            0,
        )

    if services.is_stopped():
        stop("microk8s is not running, try microk8s start", 0)

    parser = argparse.ArgumentParser(prog="microk8s status")
    parser.add_argument("--format", choices=("pretty", "yaml", "short"), default="pretty")
    parser.add_argument("-w", "--wait-ready", action="store_true")
    parser.add_argument("-t", "--timeout", type=int, default=0)
    parser.add_argument("-a", "--addon", default="all")
    parser.add_argument("--yaml", action="store_true")
    given = parser.parse_args(words)
    ready = _wait(given.timeout) if given.wait_ready else is_ready()
    enabled = addons.enabled() if ready else []

    if given.addon != "all":
        print("enabled" if given.addon in enabled else "disabled")
    elif given.format == "yaml" or given.yaml:
        _yaml(ready, enabled)
    else:
        _pretty(ready, enabled)

    if not ready:
        sys.exit(1)


def is_ready() -> bool:
    """Say whether MicroK8s is ready by its own rule: its service exists, and some node is Ready."""
    service = services.kubectl("get", "all", "--all-namespaces", seconds=20)
    nodes = services.kubectl("get", "nodes", "--all-namespaces", seconds=20)
    return "service/kubernetes" in service.stdout and " Ready " in nodes.stdout


def _wait(timeout: int) -> bool:
    end = time.monotonic() + timeout
    while not is_ready():
        if timeout and time.monotonic() > end:
            return False
        time.sleep(2)
    return True


def _members() -> list[tuple[str, str]]:
    try:
        return [(member["Address"], ROLES[member["Role"]]) for member in store.members()]
    except store.StoreError:
        return []


def _yaml(ready: bool, enabled: list[str]) -> None:
    print(f"microk8s:\n  running: {ready}\nhigh-availability:\n  enabled: True\n  nodes:")
    for address, role in _members():
        print(f"    - address: {address}\n      role: {role}")
    if not ready:
        print("  message: microk8s is not running. Use microk8s inspect for a deeper inspection.")
        return
    print("addons:")
    for name, (description, version) in addons.KNOWN.items():
        state = "enabled" if name in enabled else "disabled"
        print(f"  - name: {name}\n    repository: core\n    description: {description}")
        print(f"    version: {version}\n    status: {state}")


def _pretty(ready: bool, enabled: list[str]) -> None:
    if not ready:
        print("microk8s is not running. Use microk8s inspect for a deeper inspection.")
        return

    members = _members()
    voters = [address for address, role in members if role == "voter"]
    standby = [address for address, role in members if role == "standby"]
    print("microk8s is running")
    print(f"high-availability: {'yes' if len(voters) > 2 else 'no'}")
    print(f"  datastore master nodes: {' '.join(voters) or 'none'}")
    print(f"  datastore standby nodes: {' '.join(standby) or 'none'}")
    print("addons:")

    for title, wanted in (("enabled", True), ("disabled", False)):
        print(f"  {title}:")
        for name, (description, _) in addons.KNOWN.items():
            if (name in enabled) is wanted:
                print(f"    {name:<20} # (core) {description}")
