"""Hosts without snapd's store and with one registry: snaps and images are files or in a mirror.

Each test needs the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bed import hosts, images, microk8s, programs, publishing
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.microk8s import run
from tests.bed.places import free_port, need
from tests.real import lab as labs
from tests.real.interruptions import DATA, is_installed
from tests.real.kube import RAY_IMAGE
from tests.real.yard import Yard

pytestmark = [pytest.mark.microk8s, pytest.mark.timeout(900)]
PAUSE = next(iter(images.ON_A_HOST))
# An image that neither a host nor a registry has.
ALONE = "alone.invalid/pause:1"
MIRRORED = f"registry.example/{PAUSE}"
# Plays the image of a network, without which no node is Ready.
NETWORK = f"registry.example/{RAY_IMAGE}"
SNAPS = ("snapd_25577.snap", "core22_2045.snap", "microk8s_8596.snap")
STEPS = [
    "Every host has 1 image file",
    "Install MicroK8s from microk8s_8596.snap on 2 hosts",
    "Load 1 image file on every host",
    "Every host knows the mirror of registry.example",
]


@dataclass(frozen=True)
class Lab:
    """Two hosts, the files that they need, and a cluster file that names these files.

    The second host has its distribution's snapd and no snap: MicroK8s also needs the store's snap
    of snapd.
    """

    hosts: list[Host]
    yard: Yard
    document: dict[str, Any]
    files: Path
    mirror: str

    def write(self, *snaps: str) -> None:
        """Write the cluster file with these snaps."""
        self.document["microk8s"] |= {
            "snap": [str(self.files / name) for name in snaps],
            "images": str(self.files / "images"),
            "mirror": {"registry.example": f"http://{self.mirror}"},
        }
        (self.yard.home / "clusters" / "lab.yaml").write_text(json.dumps(self.document))


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need(programs.missing())
    home, files = tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("files")
    mirror = f"{engine.bridge_ip}:{free_port()}"

    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=2) as made:
        publishing.publish(engine, mirror, PAUSE, RAY_IMAGE, owner=hosts.this_process())
        for host in made:
            (host.files / "offline").touch()
            (host.files / "network-image").write_text(f"{NETWORK}\n")

        (made[1].files / "snapd").write_text("2.72\n")
        microk8s.download(files, names=("snapd", "core22", "microk8s"))
        (files / "images").mkdir()
        engine.docker("tag", PAUSE, ALONE)
        engine.docker("save", "--output", str(files / "images" / "alone.tar"), ALONE)
        engine.docker("rmi", ALONE)
        document = labs.cluster_file(engine, home, made, workers=1, spread="required")
        lab = Lab(made, labs.place_to_work(home, made, document), document, files, mirror)
        lab.write(*SNAPS)
        yield lab


def test_a_snap_that_microk8s_needs_and_no_file_brings_is_named(lab: Lab) -> None:
    second = lab.hosts[1]
    lab.write(*SNAPS[1:])
    refused = lab.yard.run("cluster.up", expect=6).stderr
    lab.write(*SNAPS)
    assert f"error: {second.ip}: snap install" in refused
    assert 'cannot install system snap "snapd"' in refused
    assert [is_installed(host) for host in lab.hosts] == [True, False]


def test_a_file_that_was_changed_after_its_download_is_refused_by_snapd(lab: Lab) -> None:
    file = lab.files / "microk8s_8596.snap"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"v1.34.2", b"v1.34.3"))
    refused = lab.yard.run("cluster.up", expect=6).stderr
    file.write_bytes(whole)
    # snapd wraps its message: the last line alone is the name of a file.
    assert "cannot find signatures with metadata for snap/component" in " ".join(refused.split())
    assert not is_installed(lab.hosts[1])


def test_a_cluster_comes_up_from_files_and_a_mirror(lab: Lab) -> None:
    yard = lab.yard
    planned = [step["title"] for step in yard.json("cluster.plan")["steps"]]
    assert [title for title in planned if title in STEPS] == STEPS
    print(yard.run("cluster.up", seconds=600).stderr)
    assert set(yard.states().values()) == {"up"}

    for host in lab.hosts:
        row = host.run("snap", "list", "microk8s").stdout.splitlines()[1].split()
        assert row[2:] == ["8596", "-", "canonical**", "classic,held"]
        assert " -  " in host.run("snap", "list", "core22").stdout
        assert host.run("readlink", "/snap/microk8s/current").stdout == "8596\n"
        assert ALONE in run(host, "ctr", "images", "ls", "--quiet").stdout.split()
        toml = host.run("cat", f"{DATA}/args/certs.d/registry.example/hosts.toml").stdout
        assert f"http://{lab.mirror}" in toml
        # The network's image came from the mirror; so does every image pulled from now on.
        run(host, "ctr", "images", "pull", "--hosts-dir", f"{DATA}/args/certs.d", MIRRORED)


def test_a_second_up_from_files_and_a_mirror_changes_nothing(lab: Lab) -> None:
    assert not any(step["changed"] for step in lab.yard.json("cluster.up")["steps"])


def test_a_snap_file_of_another_version_is_refused_with_both_named(lab: Lab) -> None:
    microk8s.download(lab.files, "1.35/stable")
    lab.write(*SNAPS[:-1], "microk8s_8702.snap")
    refused = lab.yard.run("cluster.plan", expect=2).stderr
    lab.write(*SNAPS)
    assert "runs another MicroK8s (v1.34.2) than microk8s_8702.snap\n" in refused
    assert not any(step["state"] == "would" for step in lab.yard.json("cluster.plan")["steps"])
