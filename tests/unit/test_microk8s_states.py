"""Which nodes are what is left of a host, which hosts the file no longer names, and which host the
others join.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.step_lists import refuse_lost_ids
from tests.unit.test_microk8s_preflight import GOOD, A
from trainyard.backends.contract import Site
from trainyard.backends.microk8s import addresses, facts, install, leaving, remove
from trainyard.backends.microk8s.facts import SYSCTLS, Facts, Member
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.programs import Ran
from trainyard.seams.ssh import facts as host_facts
from trainyard.seams.ssh.config import Address
from trainyard.seams.ssh.connection import connect
from trainyard.seams.ssh.facts import fields_of, parse
from trainyard.seams.ssh.login import HostError
from trainyard.seams.ssh.snaps import Snap

SITE = Site(Path(), {}, "microk8s")
ALONE = (Member("127.0.0.1:19001", True),)
TOGETHER = (Member("10.0.0.1:19001", True), Member("10.0.0.2:19001", False))
FIRST = replace(GOOD, hostname="a", members=TOGETHER[:1])
FRESH = replace(GOOD, hostname="b", members=ALONE)
WORKER = replace(GOOD, hostname="b", locks=frozenset({"clustered.lock"}))
HALF = frozenset({"join-in-progress"})


def _block(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def node(ip: str, *, ssh: str = "", ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {leaving.ADDRESS: ssh} if ssh else {}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": ip}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def lab(
    b: Facts, nodes: Mapping[str, Any], *, first: Facts = FIRST, control_plane: bool = False
) -> Lab:
    hosts = [
        Host("a", "10.0.0.1", "ops@a", connect("ops@a", {}), True),
        Host("b", "10.0.0.2", "ops@b", connect("ops@b", {}), control_plane),
    ]
    return Lab(hosts, "1.34/stable", {"a": first, "b": b}, {"a": node("10.0.0.1"), **nodes})


@pytest.mark.parametrize(
    ("made", "is_left"),
    [
        (lab(FRESH, {}), False),
        (lab(WORKER, {"b": node("10.0.0.2")}), False),
        # Not Ready is waited for: to leave and join again would end what runs there.
        (lab(WORKER, {"b": node("10.0.0.2", ready=False)}), False),
        # Installed again, under the same name or another.
        (lab(FRESH, {"b": node("10.0.0.9")}), True),
        (lab(FRESH, {"former": node("10.0.0.2")}), True),
        # Joined, and the cluster knows nothing of it.
        (lab(WORKER, {}), True),
        # Cut off in mid-join: it can be a node all the same, once its services were started.
        (lab(replace(WORKER, locks=WORKER.locks | HALF), {"b": node("10.0.0.2")}), True),
        (
            lab(
                replace(FRESH, members=TOGETHER, locks=HALF),
                {"b": node("10.0.0.2")},
                control_plane=True,
            ),
            True,
        ),
        # Refused: MicroK8s does no more than usual while the lock is there.
        (lab(replace(FRESH, locks=HALF), {}), True),
        # In another role than the file gives it.
        (lab(WORKER, {"b": node("10.0.0.2")}, control_plane=True), True),
        (lab(replace(FRESH, members=TOGETHER), {"b": node("10.0.0.2")}), True),
        (lab(replace(FRESH, members=TOGETHER), {"b": node("10.0.0.2")}, control_plane=True), False),
        # A member of the database, and nothing else: its join failed late.
        (lab(FRESH, {}, first=replace(FIRST, members=TOGETHER), control_plane=True), True),
    ],
)
def test_leftovers_of_a_host_are_removed_if_host_and_cluster_disagree(
    made: Lab, is_left: bool
) -> None:
    titles = [step.title for step in leaving.steps(made, SITE)]
    assert titles == ["Remove what is left of b"] * is_left


def test_hosts_of_trainyard_that_left_the_file_are_removed_dead_ones_first(
    tmp_path: Path,
) -> None:
    nodes = {
        "b": node("10.0.0.2", ssh="ops@b"),
        "c": node("10.0.0.3", ssh="ops@c:8022"),
        "d": node("10.0.0.4", ssh="ops@d", ready=False),
        # Joined by an administrator.
        "e": node("10.0.0.5"),
    }

    (said,) = leaving.steps(lab(WORKER, nodes), SITE)
    assert said.title == "Check which hosts the file no longer names"
    assert said.done().holds
    assert said.done().detail.startswith(
        "d (ops@d), c (ops@c:8022): still in the cluster, and no longer in the file"
    )

    with pytest.raises(RequestError, match=r"not in the file: d \(ops@d\), c \(ops@c:8022\)"):
        leaving.refuse_left(lab(WORKER, nodes))

    leaving.refuse_left(lab(WORKER, {"b": nodes["b"], "e": nodes["e"]}))
    site = replace(SITE, state=tmp_path / "lab").wishing(remove=True)
    addresses.write(site, ["ops@c:8022"])
    addresses.write(site, ["ops@d"])
    steps = leaving.steps(lab(WORKER, nodes), site)
    assert [step.title for step in steps] == ["Remove d (ops@d)", "Remove c (ops@c:8022)"]


def test_a_node_does_not_choose_where_this_machine_logs_in(tmp_path: Path) -> None:
    nodes = {"b": node("10.0.0.2", ssh="ops@b"), "c": node("10.0.0.3", ssh="ops@elsewhere")}
    site = replace(SITE, state=tmp_path / "lab").wishing(remove=True)
    addresses.write(site, ["ops@b", "ops@c"])
    with pytest.raises(RequestError) as refused:
        leaving.steps(lab(WORKER, nodes), site)
    assert refused.value.what == (
        "no cluster file on this machine named the addresses that these nodes give: c "
        "(ops@elsewhere)"
    )


@dataclass(frozen=True)
class Printing:
    """A host's connection: whatever is run there prints this."""

    printed: str
    address: Address = A.connection.address

    def sudo(self, command: Sequence[str]) -> Ran:
        return Ran(0, self.printed, "")


PRINTED = {
    "clock": "1",
    "hostname": "a",
    "architecture": "x86_64",
    "kernel": "6.1",
    "machine_id": "1",
    "memory": "1",
    "disk": "1",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("clock", ""),
        ("clock", "1795.N"),
        ("memory", "inf"),
        ("memory", ""),
        ("disk", "-"),
        ("gpus", "ls: no"),
        ("sysctl.fs.aio-max-nr", ""),
        ("addresses", "x"),
        ("routes", _block("1.2.3.4/99 dev eth0")),
        ("listening", _block(f"0 0 0.0.0.0:{'9' * 5000} 0.0.0.0:*")),
        ("snap", _block("Name Version\nmicrok8s v1.34")),
        ("members", _block("- Address: [")),
        ("members", _block("- ID: 1")),
        ("members", _block("- word")),
        ("members", _block("7")),
        ("certificate.server.crt", "Foo 32 25:00:00 2026 GMT"),
    ],
)
def test_an_odd_answer_of_a_host_names_the_host_and_the_field(name: str, text: str) -> None:
    fields = {**PRINTED, name: text}
    host = Printing("".join(f"{key} {value}\n" for key, value in fields.items()))
    with pytest.raises(HostError) as odd:
        facts.read(cast(Any, host), now=0.0)
    start = f"{host.address.host} sent an unexpected answer: its {name} cannot be read: "
    assert odd.value.what.startswith(start)
    assert len(odd.value.what) < len(start) + 80


def test_hosts_join_a_control_plane_with_a_cluster_in_any_file_order() -> None:
    made = lab(
        replace(FRESH, members=TOGETHER), {}, first=replace(GOOD, members=ALONE), control_plane=True
    )
    made.put_members_first()
    assert made.first.name == "b"
    # One that was cut off in mid-join is to join it.
    half = lab(FRESH, {}, first=replace(FIRST, locks=HALF), control_plane=True)
    second = lab(
        replace(FRESH, members=TOGETHER), {}, first=replace(FIRST, locks=HALF), control_plane=True
    )
    for both in (half, second):
        both.put_members_first()
    assert (half.first.name, second.first.name) == ("a", "b")


def test_a_role_that_changed_ends_what_runs_on_a_live_node() -> None:
    live, dead = (
        lab(WORKER, {"b": node("10.0.0.2", ready=ready)}, control_plane=True)
        for ready in (True, False)
    )
    assert [step.disruptive for made in (live, dead) for step in leaving.steps(made, SITE)] == [
        True,
        False,
    ]


def test_upgrades_go_minor_by_minor_over_all_hosts() -> None:
    old = Snap("v1.32.1", "1.32/stable", is_held=True, is_disabled=False)
    made = lab(
        replace(FRESH, snap=replace(old, channel="1.33/stable")), {}, first=replace(FIRST, snap=old)
    )

    with pytest.raises(
        RequestError, match=r"a runs MicroK8s 1.32/stable, and the file says 1.34/stable"
    ):
        install.steps(made, upgrade=False)

    steps = install.steps(made, upgrade=True)
    refuse_lost_ids(steps)
    titles = [step.title for step in steps if step.title.startswith("Upgrade")]
    assert titles == [
        "Upgrade a to 1.33/stable",
        "Upgrade a to 1.34/stable",
        "Upgrade b to 1.34/stable",
    ]

    strict = lab(FRESH, {}, first=replace(FIRST, snap=replace(old, channel="1.32-strict/stable")))
    strict.channel = "1.34-strict/stable"
    titles = [
        step.title
        for step in install.steps(strict, upgrade=True)
        if step.title.startswith("Upgrade")
    ]

    assert titles == ["Upgrade a to 1.33-strict/stable", "Upgrade a to 1.34-strict/stable"]
    strange = lab(replace(FRESH, snap=replace(old, channel="latest/stable")), {}, first=FIRST)
    with pytest.raises(RequestError, match="MicroK8s of latest/stable has no known version"):
        install.steps(strange, upgrade=True)


def test_each_install_step_reports_the_first_lack_of_each_host() -> None:
    held = Snap("v1.34.2", "1.34/stable", is_held=True, is_disabled=False)
    names = "# trainyard: begin\n10.0.0.1 a\n10.0.0.2 b\n{}# trainyard: end\n"
    first = replace(FIRST, snap=held, sysctls=SYSCTLS, hosts_file=names.format("10.0.0.3 c\n"))
    second = replace(FRESH, snap=replace(held, is_held=False), sysctls=SYSCTLS)
    prepare, installed, *_ = install.steps(lab(second, {}, first=first), upgrade=False)
    assert (
        prepare.done().detail
        == "a: has the names of hosts that are not in the file; b: lacks the names of other hosts"
    )
    assert installed.done().detail == "b: not held: snapd refreshes it at any hour"
    bare = replace(FRESH, sysctls=dict.fromkeys(SYSCTLS, 0))
    prepare, installed, *_ = install.steps(
        lab(bare, {}, first=replace(first, hosts_file="")), upgrade=False
    )
    details = [step.done().detail for step in (prepare, installed)]
    assert details == [
        "a: lacks the names of other hosts; b: its kernel limits are too low for MicroK8s",
        "b: not installed",
    ]


def test_purge_of_a_cluster_with_a_foreign_microk8s_is_refused() -> None:
    snap = Snap("v1.34.2", "1.34/stable", is_held=True, is_disabled=False)
    ours, theirs = replace(FIRST, snap=snap, is_ours=True), replace(FRESH, snap=snap)
    with pytest.raises(RequestError, match="Trainyard did not install MicroK8s on b, but on other"):
        remove.steps(lab(theirs, {}, first=ours), [Path("kubeconfig")])


def test_purge_is_refused_while_snapd_of_a_host_does_not_run() -> None:
    silent = lab(
        replace(FRESH, snapd="unavailable", is_ours=True), {}, first=replace(FIRST, is_ours=True)
    )
    with pytest.raises(PrerequisiteError, match="snapd does not run on b") as refused:
        remove.steps(silent, [])
    assert refused.value.hint == "There: sudo systemctl start snapd.socket"


def test_hosts_answer_in_the_words_that_are_read() -> None:
    assert host_facts.SCRIPT.split()[:2] == ["export", "LC_ALL=C"]


def test_an_interface_may_have_two_addresses() -> None:
    shown = (
        "2: eth0    inet 10.0.0.1/24 brd 10.0.0.255\n2: eth0    inet 10.0.0.50/32 scope "
        "global secondary\n"
    )
    printed = "clock 0\nhostname a\narchitecture x86_64\nkernel 6.1\nmachine_id 1\nmemory 1\n"
    fields = fields_of(f"{printed}addresses {_block(shown)}\n")
    assert parse(fields, now=0.0).addresses == {"10.0.0.1": "eth0", "10.0.0.50": "eth0"}
