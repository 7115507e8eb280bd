"""The program `microk8s` and its commands: `python3 -m standin.microk8s COMMAND...`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from standin import addons, certs, clustering, containers, services, status, store
from standin.places import (
    BACKEND,
    CERTS,
    CONTAINERD,
    CREDENTIALS,
    DATA,
    default_address,
    installed,
    is_worker,
    lock,
    need_access,
    need_root,
    stop,
    unlock,
)

# Commands that need a working control plane.
USES = ("add-node", "dbctl", "enable", "reset", "status")
BACKUP = DATA / "certs-backup"
CERTIFICATES = {
    "ca.crt": "CA",
    "server.crt": "server",
    "front-proxy-client.crt": "front proxy client",
}


def config(words: Sequence[str]) -> None:
    if is_worker():
        message = "This MicroK8s deployment is acting as a node in a cluster. "
        stop(message + "Please use the microk8s config on the master.", 0)
    need_access()
    text = (CREDENTIALS / "client.config").read_text()
    loopback = "-l" in words or "--use-loopback" in words
    print(text if loopback else text.replace("127.0.0.1", default_address()))


def kubectl(words: Sequence[str]) -> None:
    if is_worker():
        message = "This MicroK8s deployment is acting as a node in a cluster. "
        stop(message + "Please use the microk8s kubectl on the master.", 0)
    if services.is_stopped():
        print("microk8s is not running, try microk8s start", file=sys.stderr)
        sys.exit(1)
    need_access()
    os.execv("/opt/bed/kubectl", ["kubectl", f"--kubeconfig={CREDENTIALS}/client.config", *words])


def ctr(words: Sequence[str]) -> None:
    need_root()
    os.execvp("ctr", ["ctr", "--address", str(CONTAINERD), "--namespace", "k8s.io", *words])


def stop_all(words: Sequence[str]) -> None:
    if is_worker():
        print("This MicroK8s deployment is acting as a node in a cluster.")
        stop("Use 'snap stop microk8s' to stop services on this node.", 0)
    need_root()
    services.stop(*services.KUBELITE)
    containers.remove_all()
    services.stop()
    services.disable()
    lock("stopped.lock")


def start_all(words: Sequence[str]) -> None:
    if is_worker():
        print("This MicroK8s deployment is acting as a node in a cluster.")
        stop("Use 'snap start microk8s' to start services on this node.", 0)
    need_root()
    unlock("stopped.lock")
    services.enable()
    services.start()


def reset(words: Sequence[str]) -> None:
    """Reset a single node; with several nodes, do nothing and exit 0."""
    if is_worker():
        stop(
            "This MicroK8s deployment is acting as a node in a cluster.\nPlease use the master "
            "node.",
            1,
        )

    need_root()
    listed = services.kubectl("get", "nodes", "-o", "name").stdout.split()
    if not listed:
        stop("Failed to query the cluster nodes.", 1)

    if len(listed) > 1:
        print(
            "This is a multi-node MicroK8s deployment. Reset is applicable for single node "
            "clusters."
        )
        stop("Please remove all joined nodes before calling reset.", 0)

    services.stop()
    clustering.start_afresh()


def refresh_certs(words: Sequence[str]) -> None:
    need_root()
    if "-c" in words or "--check" in words:
        for name, title in CERTIFICATES.items():
            ends = certs.enddate(name.removesuffix(".crt"))
            days = (time.mktime(time.strptime(ends, "%b %d %H:%M:%S %Y %Z")) - time.time()) // 86400
            print(f"The {title} certificate will expire in {int(days)} days.")
        return

    wish = next(
        (words[index + 1] for index, word in enumerate(words[:-1]) if word in ("-e", "--cert")), ""
    )
    if wish not in CERTIFICATES:
        stop(
            "Please use one of the following options: ca.crt, server.crt, front-proxy-client.crt", 1
        )

    print(f"Taking a backup of the current certificates under {BACKUP}/")
    subprocess.run(["cp", "-r", str(CERTS), str(BACKUP)], check=True)
    print("Creating new certificates")

    if wish == "server.crt":
        certs.server()
    elif wish == "front-proxy-client.crt":
        certs.front_proxy()
    else:
        certs.produce()

    print("Restarting service kubelite.")
    services.restart(*services.KUBELITE)
    print("Restarting service cluster-agent.")
    services.restart("cluster-agent")


def dbctl(words: Sequence[str]) -> None:
    """Back up the database; while it does not answer, hang as MicroK8s does."""
    need_access()
    parser = argparse.ArgumentParser(prog="microk8s dbctl")
    parser.add_argument("--debug", action="store_true")
    backup = parser.add_subparsers(required=True).add_parser("backup")
    backup.add_argument("-o", default=time.strftime("backup-%Y-%m-%d-%H-%M-%S"))
    name = parser.parse_args(words).o.removesuffix(".tar.gz")

    while True:
        try:
            store.ask("kv/put", {"key": "YmFja3Vw", "value": ""})
            break
        except store.StoreError:
            time.sleep(1)

    # tar exits 1 when a file changed while it was read, as the files of a running database do.
    if (
        subprocess.run(
            ["tar", "-czf", f"{name}.tar.gz", "-C", str(BACKEND), "."], check=False
        ).returncode
        > 1
    ):
        stop("The backup failed.", 1)

    print(f"The backup is: {name}.tar.gz")


def inspect(words: Sequence[str]) -> None:
    """Check the forwarding policy only; a WARNING does not change the exit code."""
    need_root()
    print("Inspecting system")
    if subprocess.check_output(["iptables", "-S", "FORWARD"], text=True).startswith(
        "-P FORWARD DROP"
    ):
        print(
            "WARNING:  IPtables FORWARD policy is DROP. Consider enabling traffic forwarding with: ",
            end="",
        )
        print("sudo iptables -P FORWARD ACCEPT")

    print(
        "Building the report tarball\n  Report tarball is at "
        "/var/snap/microk8s/current/inspection-report.tar.gz"
    )


def images(words: Sequence[str]) -> None:
    """Import images; exit 0 even if the import fails."""
    done = subprocess.run(
        ["ctr", "--address", str(CONTAINERD), "-n", "k8s.io", "images", *words], text=True
    )
    if done.returncode != 0:
        print("Failed to import images")


def version(words: Sequence[str]) -> None:
    found = installed()
    if found:
        print(f"MicroK8s {found.version} revision {found.revision}")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "add-node": clustering.add_node,
    "config": config,
    "ctr": ctr,
    "dbctl": dbctl,
    "disable": addons.disable,
    "enable": addons.enable,
    "images": images,
    "inspect": inspect,
    "join": clustering.join,
    "kubectl": kubectl,
    "leave": clustering.leave,
    "refresh-certs": refresh_certs,
    "remove-node": clustering.remove_node,
    "reset": reset,
    "start": start_all,
    "status": status.status,
    "stop": stop_all,
    "version": version,
}


def main(words: Sequence[str]) -> None:
    if not words or words[0] not in COMMANDS:
        stop(
            f"{words[0] if words else ''} not a valid command.\nAvailable subcommands are: "
            f"{' '.join(COMMANDS)}",
            1,
        )
    if words[0] in USES:
        services.need_control()
    COMMANDS[words[0]](words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
