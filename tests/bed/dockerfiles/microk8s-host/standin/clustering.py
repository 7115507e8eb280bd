"""`microk8s add-node`, `join`, `leave` and `remove-node`.

Messages and exit codes are those of scripts/wrappers/*.py.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import ipaddress
import json
import secrets
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from standin import certs, containers, network, services, store, tokens
from standin.places import (
    AGENT_PORT,
    ARGS,
    BACKEND,
    BED,
    CERTS,
    STORE_PORT,
    addresses,
    default_address,
    installed,
    is_worker,
    lock,
    locked,
    need_access,
    need_root,
    stop,
    unlock,
    wait_until,
)

LEAST = 32


def add_node(words: Sequence[str]) -> None:
    if is_worker():
        print("This MicroK8s deployment is acting as a node in a cluster.")
        stop("Please use the microk8s add-node on the master.", 1)

    need_root()
    parser = argparse.ArgumentParser(prog="microk8s add-node")
    parser.add_argument("--token-ttl", "-l", type=int, default=-1)
    parser.add_argument("--token", "-t")
    formats = ("pretty", "short", "token", "token-check", "json", "yaml")
    parser.add_argument("--format", choices=formats, default="pretty")
    given = parser.parse_args(words)
    token = given.token or secrets.token_hex(16)
    if len(token) < LEAST:
        stop("Invalid token size.  It must be 32 characters long.", 1)

    tokens.add(token, given.token_ttl)
    both = f"{token}/{certs.check()}"
    urls = [f"{address}:{AGENT_PORT}/{both}" for address in addresses()]
    document = {"token": both, "urls": urls}
    first = f"microk8s join {default_address()}:{AGENT_PORT}/{both}"

    printed = {
        "json": json.dumps(document, indent=2),
        "yaml": yaml.safe_dump(document),
        "token": token,
        "token-check": both,
        "short": "\n".join([first, *(f"microk8s join {url}" for url in urls)]),
        "pretty": f"From the node you wish to join to this cluster, run the following:\n{first}\n\n"
        "Use the '--worker' flag to join a node as a worker not running the control plane, "
        f"eg:\n{first} --worker\n",
    }

    print(printed[given.format])


def join(words: Sequence[str]) -> None:
    need_root()
    parser = argparse.ArgumentParser(prog="microk8s join")
    parser.add_argument("connection")
    # Both flags set the same parameter (scripts/wrappers/join.py:948-955).
    parser.add_argument(
        "--worker", dest="role", action="store_const", const="as-worker", default=""
    )
    parser.add_argument("--controlplane", dest="role", action="store_const", const="as-master")

    for flag in ("--skip-verify", "--disable-low-memory-guard"):
        parser.add_argument(flag, action="store_true")

    given = parser.parse_args(words)
    address, token, check = _connection(given.connection)
    lock("join-in-progress")
    print(f"Contacting cluster at {address}", flush=True)
    answer = _ask(
        address, token, check if not given.skip_verify else "", worker=given.role == "as-worker"
    )

    # MicroK8s tests `if worker:`, and "as-master" is true. The agent, however, took the node for a
    # control plane and sent the CA's key, which no worker gets (scripts/wrappers/join.py:689 and
    # 760; [A] pkg/api/v2/join.go:22).
    if given.role == "as-master":
        stop(
            "Joining process failed. Make sure the cluster you connect to supports joining "
            "worker nodes.",
            1,
        )

    unlock(services.WAITS)
    if given.role == "as-worker":
        _become_worker(answer, address)
    else:
        _become_control_plane(answer, address)

    lock("no-cert-reissue")
    unlock("join-in-progress")
    print("Successfully joined the cluster.")


def _connection(text: str) -> tuple[str, str, str]:
    """Return (address, token, fingerprint) of `IP:25000/TOKEN[/CHECK]`."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or ":" not in parts[0]:
        stop(
            "Invalid connection: Expected format: <master_IP>:<master_PORT>/<token>[/<fingerprint>]",
            1,
        )

    address, _, port = parts[0].rpartition(":")
    if not _is_address(address):
        stop("Invalid connection: Invalid master IP", 1)

    if not port.isdigit():
        stop("Invalid connection: Master PORT not a number", 1)

    if not 0 < int(port) < 65536:
        stop("Invalid connection: Master PORT not in range 1:65535", 1)

    if len(parts[1]) < LEAST:
        stop("Invalid connection: Cluster token size should be at least 32 bytes", 1)

    if len(parts) == 3 and len(parts[2]) < 12:
        stop("Invalid connection: Fingerprint should be at least 12 bytes", 1)

    return address, parts[1], parts[2] if len(parts) == 3 else ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _ask(address: str, token: str, check: str, *, worker: bool) -> dict[str, Any]:
    body = {
        "token": token,
        "hostname": socket.gethostname().lower(),
        "port": str(AGENT_PORT),
        "worker": worker,
    }
    return _post(address, "/cluster/api/v2.0/join", body, check)


def _post(address: str, path: str, body: dict[str, Any], check: str = "") -> dict[str, Any]:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, AGENT_PORT, context=context, timeout=300)
    # Where the connection is refused, MicroK8s prints an uncaught traceback, too.
    connection.connect()
    certificate = connection.sock.getpeercert(binary_form=True) or b""
    if check and not hashlib.sha256(certificate).hexdigest().startswith(check):
        stop("Joining cluster failed. Could not verify the identity of the master node.", 4)

    connection.request("POST", path, json.dumps(body))
    answer = connection.getresponse()
    found: dict[str, Any] = json.load(answer)

    if answer.status != 200:
        stop(f"Connection failed. {found['error']} ({answer.status}).", 6)

    return found


def configure(address: str, arguments: Mapping[str, str]) -> None:
    """Let another node's agent set arguments of its kubelet and restart it."""
    _post(
        address,
        "/standin/kubelet",
        {"key": (CERTS / "ca.key").read_text(), "arguments": dict(arguments)},
    )


def _take(answer: dict[str, Any]) -> None:
    """Install the cluster's CA, and sign this node's certificates with it."""
    for name, text in {**answer["files"], **answer["signing"]}.items():
        (CERTS / name).write_text(text)
    certs.produce_for_this_node()
    services.set_argument("kubelet", "--cluster-dns", answer["kubelet_dns"] or None)
    services.set_argument(
        "kubelet", "--cluster-domain", "cluster.local" if answer["kubelet_dns"] else None
    )


def _become_worker(answer: dict[str, Any], address: str) -> None:
    services.stop()
    services.set_argument(
        "kubelet",
        "--node-labels",
        "microk8s.io/cluster=true,node.kubernetes.io/microk8s-worker=microk8s-worker",
    )

    _take(answer)
    network.write_endpoints([*answer["control_plane_nodes"], address])

    for name in ("clustered.lock", "no-k8s-dqlite"):
        lock(name)

    _forget_kubelet()
    services.start()
    lock("no-cert-reissue")
    print("\nThe node has joined the cluster and will appear in the nodes list in a few seconds.\n")
    print("This worker node gets automatically configured with the API server endpoints.")
    print("    /var/snap/microk8s/current/args/traefik/provider.yaml\n", flush=True)


def _become_control_plane(answer: dict[str, Any], address: str) -> None:
    # A rejection here is like that of a join: nothing has changed yet.
    initial = _post(address, "/standin/member", {"key": answer["files"]["ca.key"]})["initial"]
    services.stop()
    _take(answer)
    _forget_kubelet()
    store.new(f"{default_address()}:{STORE_PORT}")
    (BACKEND / "joins").write_text(initial)
    found = installed()
    is_other = (
        found is None or answer["version"].rpartition(".")[0] != found.version.rpartition(".")[0]
    )
    if is_other:
        store.refuse_to_start()

    services.start("dqlite")
    # If the reader of the output is gone, the join ends at this print: this node is a member, with
    # kubelite stopped and without no-cert-reissue.
    print("Waiting for this node to finish joining the cluster.", end=" ", flush=True)
    give_up = time.monotonic() + (3 if is_other else 120)
    while not _is_member() and time.monotonic() < give_up:
        print(".", end=" ", flush=True)
        time.sleep(1)

    print(" ", flush=True)
    # Also after a failure: MicroK8s starts the services, reports success, and exits 0.
    services.start()
    if not is_other:
        services.wait_for_api()


def _is_member() -> bool:
    try:
        store.write_files()
        return any(member["Address"] == store.own_address() for member in store.members())
    except store.StoreError:
        return False


def leave(words: Sequence[str]) -> None:
    """Remove this node from its cluster; afterwards it is a cluster of one node."""
    need_root()
    if services.is_stopped():
        print("microk8s is not running, try microk8s start", file=sys.stderr)
        sys.exit(1)

    # A join writes this lock last: an interrupted join lacks it (wrappers/microk8s-leave.wrapper).
    if not locked("no-cert-reissue"):
        stop("This MicroK8s deployment is not acting as a node in a cluster.", 1)

    if locked("clustered.lock"):
        print("Configuring services.", flush=True)
        services.stop()
        unlock("clustered.lock")
        unlock("no-k8s-dqlite")
    else:
        found = store.members()
        voters = [member for member in found if member["Role"] == 0]
        own = store.of_this_host()
        if len(found) > 1 and len(voters) == 1 and voters[0]["Address"] in own:
            stop(
                "This node currently holds the only copy of the Kubernetes database so it cannot "
                "leave the cluster.\n"
                "To remove this node you can either first remove all other nodes with 'microk8s "
                "remove-node' or\n"
                "form a highly available cluster by adding at least three nodes.",
                3,
            )

        if len(found) > 1:
            # Another member removes this one while this one still votes: a member that removes
            # itself ends before it answers.
            store.remove(own[0], elsewhere=True)
            # dqlite hands over its leadership; with etcd, the other members elect a leader.
            wait_until(store.rest_takes_writes, 60)

        services.stop()

    _take_time()
    print("Generating new cluster certificates.", flush=True)
    lock(services.WAITS)
    start_afresh()
    unlock("no-cert-reissue")
    print("Waiting for node to start. ", flush=True)


def _take_time() -> None:
    """Wait for as many seconds as a test has set, by default none.

    MicroK8s sleeps, and starts and stops all services, for up to two minutes.
    """
    said = BED / "leave-seconds"
    time.sleep(float(said.read_text()) if said.exists() else 0)


def start_afresh() -> None:
    """Begin a cluster of this node alone, with new certificates."""
    shutil.rmtree(CERTS, ignore_errors=True)
    shutil.rmtree(ARGS / "traefik", ignore_errors=True)
    kept = ARGS / "certs.d"
    configs = (
        {path.parent.name: path.read_text() for path in kept.glob("*/hosts.toml")}
        if kept.exists()
        else {}
    )

    services.write_default_arguments()
    for host, text in configs.items():
        (kept / host).mkdir(parents=True, exist_ok=True)
        (kept / host / "hosts.toml").write_text(text)

    certs.produce()
    store.new()
    _forget_kubelet()
    services.start()


def _forget_kubelet() -> None:
    """Remove the containers and the pod network of the former cluster."""
    services.start("containerd")
    containers.wait()
    containers.remove_all()
    network.forget()


def remove_node(words: Sequence[str]) -> None:
    need_access()
    if is_worker():
        stop(
            "This MicroK8s deployment is acting as a node in a cluster. Please use microk8s leave.",
            1,
        )

    parser = argparse.ArgumentParser(prog="microk8s remove-node")
    parser.add_argument("node")
    parser.add_argument("--force", action="store_true")
    given = parser.parse_args(words)
    listed = services.kubectl("get", "nodes", "-o", "json")
    nodes = {
        item["metadata"]["name"]: item
        for item in json.loads(listed.stdout or '{"items": []}')["items"]
    }
    by_address = {_internal(item): name for name, item in nodes.items()}
    name = by_address.get(given.node, given.node)
    if name not in nodes:
        print(f"Node {given.node} does not exist in Kubernetes.")
        if given.force:
            print(f"Attempting to remove {given.node} from dqlite.")
            for member in store.others():
                if member.startswith(f"{given.node}:"):
                    print("Removing node entry found in dqlite.")
                    store.remove(member)
                    store.write_files()
        sys.exit(1)

    registered = [
        member for member in store.others() if member.startswith(f"{_internal(nodes[name])}:")
    ]
    if registered and not given.force:
        stop(
            f"Removal failed. Node {name} is registered with dqlite. "
            "Please, run first 'microk8s leave' on the departing node. \n"
            "If the node is not available anymore and will never attempt to join the cluster in "
            "the future use the "
            "'--force' flag \nto unregister the node while removing it.",
            1,
        )

    for member in registered:
        store.remove(member)
        store.write_files()

    services.kubectl("delete", "node", name)


def _internal(node: dict[str, Any]) -> str:
    return next(
        str(one["address"]) for one in node["status"]["addresses"] if one["type"] == "InternalIP"
    )
