"""The rules for hosts, from facts alone: each once, and those about several hosts together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainyard.backends.microk8s.facts import Facts, Member
from trainyard.backends.microk8s.lab import Host
from trainyard.backends.microk8s.preflight import Desired, problems, refuse, remarks
from trainyard.errors import PrerequisiteError
from trainyard.seams.ssh.connection import connect
from trainyard.seams.ssh.facts import fields_of, parse
from trainyard.seams.ssh.snaps import Snap

GIB = 2**30
GOOD = Facts(
    hostname="a",
    architecture="x86_64",
    kernel="6.1.0-18-amd64",
    machine_id="1",
    memory=8 * GIB,
    disk=100 * GIB,
    skew=0.0,
    addresses={"127.0.0.1": "lo", "10.0.0.1": "eth0"},
    routes="default via 10.0.0.254 dev eth0 \n10.0.0.0/24 dev eth0 proto kernel \n",
    listening=frozenset({22}),
    sysctls={},
    forward="ACCEPT",
    gpus=0,
    displays=0,
    snapd="2.72",
    has_docker=False,
    hosts_file="",
    snap=None,
    snap_bytes=0,
    images={},
    pulled=0,
    locks=frozenset(),
    members=(),
    trust={},
    certificates={},
    endpoints="",
    cluster_dns="",
    foreign_launch="",
    is_ours=False,
    has_our_limits=False,
)
OTHER = replace(GOOD, hostname="b", machine_id="2", addresses={"10.0.0.2": "eth0"})
A, B, C = [
    Host(name, f"10.0.0.{number}", name, connect(name, {}), name == "a")
    for number, name in enumerate("abc", start=1)
]
INSTALLED = Snap("v1.34.2", "1.34/stable", is_held=True, is_disabled=False)


def said(**facts: Facts) -> list[str]:
    return [str(problem) for problem in problems([A, B], facts, Desired())]


def test_good_hosts_have_nothing_wrong() -> None:
    assert said(a=GOOD, b=OTHER) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"snapd": ""}, "has no snapd: sudo apt-get install -y snapd"),
        (
            {"snapd": "2.57.6-1+b5"},
            (
                "its snapd is 2.57.6-1+b5, and only 2.58 or newer can hold a refresh: sudo snap "
                "install snapd"
            ),
        ),
        # Without snapd it is unknown whether MicroK8s is installed: the ports may be its own.
        (
            {"snapd": "unavailable", "listening": frozenset({22, 10250, 16443})},
            "its snapd does not run: sudo systemctl start snapd.socket",
        ),
        ({"architecture": "riscv64"}, "is riscv64, and Ray is made for x86_64 and aarch64"),
        ({"kernel": "4.4.0-1"}, "its kernel is 4.4.0-1, and Kubernetes needs 4.15 or newer"),
        ({"memory": GIB}, "has 1.0 GiB of memory, and a control plane needs 2 GiB"),
        ({"disk": GIB}, "has 1.0 GiB of disk free in /var/snap, and needs 2.0"),
        ({"routes": "10.0.0.0/24 dev eth0"}, "has no default route"),
        (
            {"addresses": {"127.0.0.1": "lo", "10.9.0.1": "eth0"}},
            (
                "10.0.0.1 is no address of its interfaces (10.9.0.1): set `ip:` to the address by "
                "which other hosts reach it"
            ),
        ),
        (
            {"routes": f"{GOOD.routes}10.1.4.0/22 dev eth1"},
            "its network 10.1.4.0/22 overlaps with MicroK8s' 10.1.0.0/16",
        ),
        (
            {"listening": frozenset({22, 10250, 16443})},
            "something else listens on 16443 (the API server), 10250 (the kubelet)",
        ),
        (
            {"foreign_launch": "/etc/microk8s.yaml"},
            (
                "has a launch configuration that Trainyard did not write: sudo mv "
                "/etc/microk8s.yaml elsewhere"
            ),
        ),
        *(
            (
                {"hostname": name},
                f"its host name {name} is no valid node name: sudo hostnamectl set-hostname NAME",
            )
            for name in ("gpu_1", "localhost", "10.0.0.1", "a..b", "-a", "7", "")
        ),
        (
            {"hostname": "registry.corp"},
            (
                "its host name registry.corp may be another machine's in DNS: use this "
                "name for the host in the file, or rename the host"
            ),
        ),
        (
            {"snap": INSTALLED, "has_docker": True},
            (
                "Docker was installed after MicroK8s, which would mistake Docker's address for the host's: "
                "start Docker before this host joins"
            ),
        ),
        (
            {"snap": INSTALLED, "members": (Member("10.7.0.1:19001", is_voter=True),)},
            "is a node of another cluster, of 10.7.0.1: if the host may leave it, microk8s leave",
        ),
    ],
)
def test_each_problem_of_one_host_is_reported_once(
    changed: dict[str, object], message: str
) -> None:
    assert said(a=replace(GOOD, **changed), b=OTHER) == [f"a: {message}"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "gpus", "image", "messages"),
    [
        (
            {"displays": 2},
            2,
            0,
            ["a: has 2 NVIDIA GPUs and no driver: sudo ubuntu-drivers install --gpgpu"],
        ),
        ({"displays": 2}, 0, 0, []),
        (
            {"gpus": 1},
            2,
            0,
            ["all hosts: have 1 GPU together, and the nodes of the cluster ask for 2"],
        ),
        ({"gpus": 2, "displays": 2}, 2, 0, []),
        ({}, 0, 40 * GIB, ["a: has 100.0 GiB of disk free in /var/snap, and needs 120.0"]),
        # It may hold the image already.
        ({"snap": INSTALLED}, 0, 40 * GIB, []),
        (
            {"snap": INSTALLED, "listening": frozenset({32000})},
            0,
            0,
            [
                (
                    "a: something else listens on 32000, the port of MicroK8s' registry: set "
                    "`microk8s.registry: false`"
                )
            ],
        ),
    ],
)
def test_gpus_need_a_driver_the_image_room_and_the_registry_its_port(
    changed: dict[str, object], gpus: int, image: int, messages: list[str]
) -> None:
    found = problems([A], {"a": replace(GOOD, **changed)}, Desired(gpus, image, has_registry=True))  # type: ignore[arg-type]
    assert [str(problem) for problem in found] == messages


@pytest.mark.parametrize("snapd", ["2.58", "2.63+24.04", "2.72", "3.0", "1337.2.71"])
def test_a_snapd_that_holds_refreshes_is_good(snapd: str) -> None:
    assert said(a=replace(GOOD, snapd=snapd), b=OTHER) == []


def test_a_firewall_that_drops_forwarded_packets_is_a_remark_on_bare_hosts() -> None:
    dropping = replace(GOOD, forward="DROP")
    assert said(a=dropping, b=OTHER) == []
    assert remarks([A, B], {"a": dropping, "b": OTHER}) == (
        "a: the firewall drops forwarded packets; if pods do not reach each other: sudo iptables "
        "-P FORWARD ACCEPT"
    )
    # Docker, or MicroK8s, lets its own through.
    for fact in (replace(dropping, has_docker=True), replace(dropping, snap=INSTALLED)):
        assert remarks([A], {"a": fact}) == ""


def test_capitals_are_no_mistake_and_what_runs_already_is_no_stranger() -> None:
    running = replace(GOOD, hostname="GPU-1", snap=INSTALLED, listening=frozenset({10250}))
    assert said(a=running, b=OTHER) == []


def test_hosts_that_are_alike_or_tell_another_time_are_named() -> None:
    third = replace(
        OTHER, hostname="c", machine_id="3", addresses={"10.0.0.3": "eth0"}, skew=3600.0
    )
    alike = replace(OTHER, hostname="A", machine_id="1")
    found = [
        str(problem)
        for problem in problems([A, B, C], {"a": GOOD, "b": alike, "c": third}, Desired())
    ]

    assert found == [
        "b: has the host name of a, a: sudo hostnamectl set-hostname NAME",
        (
            "b: has the machine id of a, 1: sudo rm /etc/machine-id && sudo "
            "systemd-machine-id-setup, then reboot"
        ),
        "c: its clock is 60 min ahead of the others': sudo timedatectl set-ntp true",
    ]


def test_the_local_clock_decides_which_of_two_host_clocks_is_wrong() -> None:
    (found,) = said(a=GOOD, b=replace(OTHER, skew=-3600.0))
    assert found == "b: its clock is 60 min behind the others': sudo timedatectl set-ntp true"


@pytest.mark.parametrize(("clock", "skew"), [(1020, 0.0), (1100, 75.0), (900, -100.0)])
def test_a_host_that_answers_late_is_not_ahead_for_that(clock: int, skew: float) -> None:
    printed = (
        f"clock {clock}\nhostname a\narchitecture x86_64\nkernel 6.1\nmachine_id 1\nmemory 1\n"
    )
    assert parse(fields_of(printed), now=1000.0, seconds=25.0).skew == skew


def test_a_host_whose_name_does_not_resolve_here_needs_its_ip_key() -> None:
    message = (
        "a: its name does not resolve here (10.0.0.1): set `ip:` to the address by which other hosts "
        "reach it"
    )
    assert [str(problem) for problem in problems([replace(A, ip="")], {"a": GOOD}, Desired())] == [
        message
    ]


def test_everything_is_refused_at_once() -> None:
    with pytest.raises(
        PrerequisiteError, match="some hosts cannot become a Kubernetes yet"
    ) as refused:
        facts = {"a": replace(GOOD, snapd=""), "b": replace(OTHER, snapd="", memory=0)}
        refuse([A, B], facts, Desired())
    assert [problem.where for problem in refused.value.problems] == ["a", "b", "b"]
