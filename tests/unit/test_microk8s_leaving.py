"""How a host is let out of a cluster: what it is told, and what becomes of one that does not
leave.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.unit.test_microk8s_states import FIRST, SITE, TOGETHER, WORKER, node
from trainyard.backends.microk8s import addresses, leaving
from trainyard.backends.microk8s.facts import Facts, Member
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.errors import OutsideError
from trainyard.seams.programs import Ran

ANSWER = """\
clock 0
hostname b
architecture x86_64
kernel 6.8
machine_id m
memory 1
disk 1
"""
LEAVES = "touch /var/snap/microk8s/current/var/lock/no-cert-reissue; /snap/bin/microk8s leave"
DEAF = Ran(1, "This MicroK8s deployment is not acting as a node in a cluster.\n", "")
THREE = tuple(Member(f"10.0.0.{number}:19001", is_voter=True) for number in (1, 2, 3))


@dataclass
class Told:
    """A host that notes what it is told; `facts` are what it prints of itself, and `leave` is what
    came of that.
    """

    facts: str = ""
    leave: Ran = DEAF
    commands: list[str] = field(default_factory=list)
    written: str = ""

    def sudo(self, command: Sequence[str], **_: Any) -> Ran:
        if "machine_id" in command[-1]:
            return Ran(0, f"{ANSWER}{self.facts}", "")
        self.commands.append(" ".join(command))
        return self.leave if "microk8s leave" in command[-1] else Ran(0, "", "")

    def run(self, command: Sequence[str], **_: Any) -> Ran:
        return Ran(0, "", "")

    def put(self, path: str, content: bytes | Path) -> None:
        self.commands.append(f"write {path}")
        self.written += content.read_text() if isinstance(content, Path) else content.decode()


def made(
    fact: Facts,
    told: Told,
    *,
    members: Sequence[Member] = TOGETHER[:1],
    nodes: Mapping[str, Any] | None = None,
) -> tuple[Lab, Told]:
    """Return a lab whose second host is a node of nothing unless `nodes` has it, and what the first
    one is told.
    """
    first = Told()
    hosts = [
        Host("a", "10.0.0.1", "ops@a", cast(Any, first), True),
        Host("b", "10.0.0.2", "ops@b", cast(Any, told), len(members) > 1),
    ]
    known = {"a": replace(FIRST, members=tuple(members)), "b": fact}
    return Lab(hosts, "1.34/stable", known, {"a": node("10.0.0.1"), **(nodes or {})}), first


def clear(lab: Lab) -> None:
    (step,) = leaving.steps(lab, SITE)
    assert step.title == "Remove what is left of b"
    step.do()


def members(*found: Member) -> str:
    """Return what a host prints of its database's members."""
    text = "".join(
        f"- Address: {each.address}\n  Role: {0 if each.is_voter else 2}\n" for each in found
    )
    return f"members {base64.b64encode(text.encode()).decode()}\n"


def test_a_host_leaves_as_if_its_join_had_ended_and_its_lock_goes() -> None:
    told = Told(leave=Ran(0, "", ""))
    clear(made(WORKER, told)[0])
    assert told.commands == [
        (
            f"flock --close /var/snap/microk8s sh -euc {LEAVES}; rm -f "
            "/var/snap/microk8s/current/var/lock/join-in-progress"
        )
    ]


def test_a_host_that_was_refused_has_nothing_to_leave() -> None:
    told = Told()
    clear(made(replace(WORKER, locks=frozenset({"join-in-progress"})), told)[0])
    assert [command.partition("-euc ")[2] for command in told.commands] == [
        "rm -f /var/snap/microk8s/current/var/lock/join-in-progress"
    ]


def test_a_host_that_is_stopped_is_started_since_it_would_refuse() -> None:
    told = Told(leave=Ran(0, "", ""))
    clear(made(replace(WORKER, locks=WORKER.locks | {"stopped.lock"}), told)[0])
    assert told.commands[:3] == [
        "snap enable microk8s",
        "/snap/bin/microk8s start",
        "snap start --enable microk8s",
    ]
    assert LEAVES in told.commands[3]


def test_a_member_that_cannot_leave_is_removed_and_microk8s_reinstalled() -> None:
    told = Told(facts=members(*THREE))
    lab, first = made(
        replace(FIRST, hostname="b", members=THREE, is_ours=True), told, members=THREE
    )
    clear(lab)

    assert told.commands[1:] == [
        "snap remove microk8s --purge",
        "mkdir -p /var/snap/microk8s/common",
        "write /var/snap/microk8s/common/.microk8s.yaml",
        "snap install microk8s --classic --channel=1.34/stable",
        "snap refresh --hold microk8s",
    ]

    # Its kubelet gets as much from MicroK8s' own launch file.
    assert yaml.safe_load(told.written) == {
        "version": "0.1.0",
        "extraKubeletArgs": {"--cluster-domain": "cluster.local", "--cluster-dns": "10.152.183.10"},
        "addons": [],
        "containerdRegistryConfigs": {},
    }

    assert "/snap/bin/microk8s remove-node 10.0.0.2 --force" in first.commands


@pytest.mark.parametrize(
    ("is_ours", "code", "known"),
    [
        (False, 1, THREE),
        # The only copy of the database.
        (True, 3, THREE),
        # Without it no majority is left to say who goes.
        (True, 1, THREE[:2]),
        (True, 1, (THREE[1], replace(THREE[0], is_voter=False))),
    ],
)
def test_foreign_microk8s_and_members_the_database_needs_stay_installed(
    is_ours: bool, code: int, known: tuple[Member, ...]
) -> None:
    told = Told(facts=members(*known), leave=replace(DEAF, code=code))
    clear(
        made(replace(FIRST, hostname="b", members=known, is_ours=is_ours), told, members=known)[0]
    )
    assert not any("snap" in command.split()[:1] for command in told.commands)


@pytest.mark.parametrize(
    ("is_ours", "helps"), [(False, "sudo snap remove microk8s --purge"), (True, "")]
)
def test_a_host_that_refuses_to_leave_is_purged_only_if_it_is_an_own_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_ours: bool, helps: str
) -> None:
    told = Told(facts="lock.clustered.lock yes\n" + "ours yes\n" * is_ours)
    monkeypatch.setattr(leaving, "connect", lambda *_: told)
    site = replace(SITE, state=tmp_path / "lab").wishing(remove=True)
    addresses.write(site, ["ops@c"])
    left = node("10.0.0.3", ssh="ops@c")
    left["status"]["nodeInfo"] = {"machineID": "m"}
    lab, first = made(WORKER, Told(), nodes={"b": node("10.0.0.2"), "c": left})
    (step,) = leaving.steps(lab, site)

    if helps:
        with pytest.raises(OutsideError, match="c does not leave") as refused:
            step.do()
        assert helps in str(refused.value.hint)
        assert refused.value.where == DEAF.stdout.strip()
        return

    step.do()
    assert "snap remove microk8s --purge" in told.commands
    assert "/snap/bin/microk8s remove-node c --force" in first.commands
