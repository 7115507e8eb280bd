"""Bare machines on which `snap install microk8s` works.

dockerfiles/microk8s-host/README.md describes the stand-in for snapd and MicroK8s.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bed import hosts, images
from tests.bed.engine import BedEngine, Done
from tests.bed.hosts import Host
from tests.bed.kubernetes import wait

PROGRAM = "/snap/bin/microk8s"
# {channel: (version, revision)} in the bed (dockerfiles/microk8s-host/standin/places.py).
CHANNELS = {
    "1.33/stable": ("v1.33.5", "8512"),
    "1.34/stable": ("v1.34.2", "8596"),
    "1.35/stable": ("v1.35.0", "8702"),
}


@contextmanager
def bare_hosts(engine: BedEngine, home: Path, *, count: int) -> Iterator[list[Host]]:
    """Give hosts with only snapd, which a user with sudo reaches by SSH."""
    with hosts.bare_hosts(engine, home, count=count, image=images.MICROK8S_HOST) as made:
        yield made


def run(host: Host, *words: str, check: bool = True) -> Done:
    """Run `microk8s WORDS` on a host as root."""
    return host.run(PROGRAM, *words, check=check)


def install(host: Host, *, channel: str = "1.34/stable") -> None:
    """Install MicroK8s by hand without addons, for a host that will join another one."""
    host.shell("printf 'version: 0.1.0\\naddons: []\\n' > /etc/microk8s.yaml")
    host.run("snap", "install", "microk8s", "--classic", f"--channel={channel}")
    host.run("rm", "/etc/microk8s.yaml")


def join(host: Host, to: Host, *flags: str, check: bool = True) -> Done:
    """Join a host to another one by hand, with a new token."""
    token = json.loads(run(to, "add-node", "--format", "json").stdout)["token"]
    return run(host, "join", f"{to.ip}:25000/{token}", *flags, check=check)


def ready(host: Host) -> set[str]:
    """Return the names of the Ready nodes, as a host with a control plane reports them."""
    path = (
        "jsonpath={range .items[*]}{.metadata.name} "
        '{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
    )
    lines = run(host, "kubectl", "get", "nodes", "-o", path, check=False).stdout.splitlines()
    return {line.split()[0] for line in lines if line.endswith(" True")}


def wait_ready(host: Host, *names: str) -> None:
    wait(lambda: ready(host) == set(names), f"{names} are Ready", seconds=300)


def look_up(control: Host, node: str, name: str) -> str:
    """Resolve a name in a pod on a node, and return its address; DNS has a minute to answer."""
    asks = f"""
import socket, time
for _ in range(60):
    try:
        print(socket.gethostbyname("{name}"), flush=True)
        break
    except socket.gaierror:
        time.sleep(1)
"""

    pod = f"looks-up-{node}"
    override = json.dumps(
        {"apiVersion": "v1", "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0}}
    )
    image = (
        f"--image=docker.io/{images.RAY}",
        "--image-pull-policy=IfNotPresent",
        "--restart=Never",
    )

    run(
        control,
        "kubectl",
        "run",
        pod,
        *image,
        f"--overrides={override}",
        "--command",
        "--",
        "python3",
        "-c",
        asks,
    )

    try:
        ended = "jsonpath={.status.phase}"
        asked = ("kubectl", "get", "pod", pod, "-o", ended)
        wait(
            lambda: run(control, *asked).stdout in ("Succeeded", "Failed"),
            f"{pod} has ended",
            seconds=120,
        )
        return run(control, "kubectl", "logs", pod).stdout.strip()
    finally:
        run(control, "kubectl", "delete", "pod", pod)


def give_gpus(host: Host, count: int, *, driver: bool = True) -> None:
    """Let a host show `count` GPUs as NVIDIA's hardware does, with or without its driver.

    Mounts hide the machine's own devices in /proc and /sys.
    """
    (host.files / "gpus").write_text(f"{count if driver else 0}\n")
    host.shell(f"""
for place in /proc/driver /sys/bus/pci/devices; do
  umount $place 2> /dev/null || true
  mount -t tmpfs tmpfs $place
done
for gpu in $(seq {count}); do
  mkdir -p /sys/bus/pci/devices/0000:0$gpu:00.0
  echo 0x10de > /sys/bus/pci/devices/0000:0$gpu:00.0/vendor
  echo 0x030200 > /sys/bus/pci/devices/0000:0$gpu:00.0/class
  {"mkdir -p /proc/driver/nvidia/gpus/0000:0$gpu:00.0" if driver else ":"}
done""")


def download(
    directory: Path, channel: str = "1.34/stable", *, names: Sequence[str] = ("core22", "microk8s")
) -> list[Path]:
    """Write the files of `snap download`: each snap, and its assertions next to it."""
    channels = {
        "core22": ("20250730", "2045"),
        "snapd": ("2.72", "25577"),
        "microk8s": CHANNELS[channel],
    }
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for name in names:
        version, revision = channels[name]
        made += write_snap(
            directory / f"{name}_{revision}.snap", name=name, version=version, revision=revision
        )
    return made


def write_snap(file: Path, *, name: str, version: str, revision: str) -> list[Path]:
    """Write a snap that the bed's snapd can read, and its assertions next to it."""
    base = "base: core22\n" if name == "microk8s" else ""
    # The comment's length makes the size of each revision unique.
    content = f"hsqs\nname: {name}\nversion: '{version}'\n{base}#{'-' * int(revision)}\n".encode()
    file.write_bytes(content)
    digest = base64.urlsafe_b64encode(hashlib.sha3_384(content).digest()).decode()
    both = f"authority-id: canonical\nsnap-id: bed-{name}\n"
    declared = f"type: snap-declaration\n{both}snap-name: {name}\n"
    revised = f"type: snap-revision\n{both}snap-sha3-384: {digest}\nsnap-size: {len(content)}\n"
    blocks = (declared, f"{revised}snap-revision: {revision}\n")
    assertion = file.with_suffix(".assert")
    assertion.write_text("".join(f"{block}\nAcLBcwQAAQoAHRYh\n\n" for block in blocks))
    return [file, assertion]
