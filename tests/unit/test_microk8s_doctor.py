"""How hosts are, and what will break there, from facts alone: each rule once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_microk8s_preflight import GOOD, INSTALLED
from trainyard.backends.contract import ClusterState, ClusterStatus, Finding, HostStatus, NodeStatus
from trainyard.backends.kuberay import doctor as kuberay_doctor
from trainyard.backends.microk8s import doctor, leaving, snapshot
from trainyard.backends.microk8s.facts import Facts
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.backends.microk8s.snapshot import Snapshot
from trainyard.backends.shared import findings
from trainyard.errors import OutsideError, PrerequisiteError, Problem
from trainyard.operations.usage import Usage
from trainyard.seams.ssh.connection import connect
from trainyard.steps import YES, Answer, Stage, Step, no, nothing, warning
from trainyard.tasks import cluster_status

RUNS = replace(GOOD, snap=INSTALLED, listening=frozenset({10250}))


KNOWN = HostStatus(
    *(
        "10.0.0.1",
        "10.0.0.1",
        "control plane",
        "ready",
        "v1.34.2",
        True,
        "server.crt",
        3,
        ("head", "w-1"),
        2,
    ),
    host="host-1",
)
DEAD = HostStatus(
    "10.0.0.2",
    "10.0.0.2",
    "worker",
    "unreachable",
    None,
    None,
    None,
    None,
    (),
    None,
    "10.0.0.2 is off",
)


def node(ip: str, *, ready: bool = True) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    addresses = [{"type": "InternalIP", "address": ip}]
    status = {
        "conditions": conditions,
        "addresses": addresses,
        "nodeInfo": {"kubeletVersion": "v1.34.2"},
    }
    return {
        "metadata": {"name": f"node-{ip}", "annotations": {leaving.ADDRESS: f"ops@{ip}"}},
        "status": status,
    }


def host(number: int, *, control_plane: bool = True) -> Host:
    return Host(
        f"h{number}",
        f"10.0.0.{number}",
        f"ops@h{number}",
        connect(f"ops@h{number}", {}),
        control_plane,
    )


def lab(count: int = 1) -> Lab:
    return Lab([host(number) for number in range(1, count + 1)], "1.34/stable")


def at(**changed: Any) -> Snapshot:
    """Return one host, a control plane that runs alone, but for what is changed."""
    empty = Snapshot({"h1": RUNS}, {}, {"10.0.0.1": node("10.0.0.1")}, {"10.0.0.1": True})
    return replace(empty, **changed)


def ending(days: float, name: str = "server.crt") -> Mapping[str, Facts]:
    return {
        "h1": replace(
            RUNS, certificates={name: time.time() + days * 86400, "ca.crt": time.time() + 1e8}
        )
    }


@pytest.mark.parametrize(
    ("now", "hosts", "found"),
    [
        (at(), 1, None),
        (at(facts=ending(31)), 1, None),
        (
            at(facts=ending(3.2)),
            1,
            ("h1", "server.crt ends in 3 days: nothing renews it, and then no user gets in", True),
        ),
        (
            at(facts=ending(1.2, "kubelet.crt")),
            1,
            ("h1", "kubelet.crt ends in 1 day: nothing renews it, and then no user gets in", False),
        ),
        (at(facts={}, errors={"h1": OutsideError("h1 is off")}), 1, ("h1", "h1 is off", False)),
        (at(votes={"10.0.0.1": True, "10.0.0.2": True, "10.0.0.3": True}), 3, None),
        (
            at(votes={"10.0.0.1": True, "10.0.0.2": False}),
            3,
            (
                "dqlite",
                "1 voter instead of 3: dqlite takes no writes once most voters are lost",
                False,
            ),
        ),
        (
            at(votes={"10.0.0.1": True, "10.0.0.9": False}),
            1,
            (
                "10.0.0.9",
                "a dead member of dqlite that is no host of the file: no control plane may join",
                True,
            ),
        ),
        # A host that the file no longer names is a node still, and `up` knows what to do.
        (
            at(votes={"10.0.0.1": True, "10.0.0.9": True}, nodes={"10.0.0.9": node("10.0.0.9")}),
            1,
            None,
        ),
    ],
)
def test_an_expiring_certificate_a_dead_host_and_lost_voters_are_found(
    now: Snapshot, hosts: int, found: tuple[str, str, bool] | None
) -> None:
    seen = [
        (each.subject, each.message, each.step is not None)
        for each in doctor.findings(lab(hosts), now)
    ]
    assert seen == ([found] if found else [])


@pytest.mark.parametrize(
    ("now", "state", "detail"),
    [
        (at(), "ready", ""),
        (
            at(nodes={"10.0.0.1": node("10.0.0.1", ready=False)}),
            "not ready",
            "its kubelet does not report to Kubernetes",
        ),
        (
            at(nodes={"10.0.0.2": node("10.0.0.2")}),
            "not joined",
            "it is no node of this Kubernetes",
        ),
        (at(nodes={}), "not ready", "no control plane answers"),
        (at(facts={"h1": GOOD}, nodes={}), "not joined", "MicroK8s is not installed"),
        (at(facts={"h1": replace(RUNS, snap=None, snapd="unavailable")}), "ready", ""),
        (
            at(facts={"h1": replace(RUNS, locks=frozenset({"stopped.lock"}))}),
            "not ready",
            "MicroK8s is stopped",
        ),
        (
            at(facts={"h1": replace(RUNS, listening=frozenset({22}))}),
            "not ready",
            "its kubelet does not run",
        ),
        (
            at(facts={}, errors={"h1": OutsideError("it is off", where="ssh h1")}),
            "unreachable",
            "it is off: ssh h1",
        ),
    ],
)
def test_how_a_host_is(now: Snapshot, state: str, detail: str) -> None:
    found = snapshot.status(host(1), now, [NodeStatus("head", "head", "node-10.0.0.1", "up", 1, 0)])
    assert (found.state, found.detail) == (state, detail)
    assert (found.host, found.nodes) == (
        ("node-10.0.0.1", ("head",)) if "10.0.0.1" in now.nodes else (None, ())
    )


def test_a_host_that_left_the_file_is_a_row_as_long_as_kubernetes_has_it() -> None:
    now = at(nodes={ip: node(ip, ready=False) for ip in ("10.0.0.1", "10.0.0.9")})
    _, left = snapshot.of([host(1)], now, [NodeStatus("w-1", "w", "node-10.0.0.9", "up", 1, 0)])
    assert left == HostStatus(
        *(
            "node-10.0.0.9",
            "10.0.0.9",
            "worker",
            "not ready",
            "v1.34.2",
            None,
            None,
            None,
            ("w-1",),
            None,
        ),
        detail="not in the file any more: trainyard cluster.up --remove",
        host="node-10.0.0.9",
    )


def test_the_table_of_hosts_has_question_marks_for_unknown_facts() -> None:
    table = cluster_status.hosts_table([KNOWN, DEAD])
    assert [list(map(str, row)) for row in table.rows] == [
        [
            "host-1 (10.0.0.1)",
            "control plane",
            "ready",
            "v1.34.2",
            "yes",
            "3 days",
            "head, w-1",
            "2",
        ],
        ["10.0.0.2", "worker", "unreachable", "?", "", "?", "", "?"],
    ]

    # Where nothing is known of any host, there is no column.
    assert [*cluster_status.hosts_table([DEAD]).columns][-1] == "certs end"


@pytest.mark.parametrize(
    ("state", "hosts", "following"),
    [
        ("up", [KNOWN], "smoke.run"),
        ("up", [KNOWN, DEAD], "cluster.doctor"),
        ("absent", [DEAD], "cluster.up"),
    ],
)
def test_the_next_command_fits_the_state_of_the_cluster_and_its_hosts(
    state: ClusterState, hosts: list[HostStatus], following: str
) -> None:
    report = cluster_status.status_report(
        ClusterStatus("lab", "microk8s", state, ()), Usage(), hosts
    )
    assert report.next == f"trainyard {following}"
    # Ray has no nodes: no table is empty. A name is not repeated.
    details = [part for part in report.body if isinstance(part, str)][1:]
    assert details == ["10.0.0.2: is off"] * (DEAD in hosts)


def step(title: str, answer: Answer, **more: Any) -> Step:
    return Step(title, title, lambda: answer, nothing, **more)


def test_unmet_steps_are_found_and_disruptive_ones_left_to_cluster_up() -> None:
    steps: list[Step | Stage] = [
        step("Install", no("a: not held")),
        Stage(
            "look",
            "Look",
            lambda: [
                step("Upgrade a", no("old"), disruptive=True),
                step("Check b", warning("left")),
            ],
        ),
        step("Trust", no("b"), after="Install"),
        step("Enable dns", YES),
    ]

    found = findings.unmet(lambda: steps)
    assert [step.title for step in found[0].then] == ["Trust"]
    assert [(each.subject, each.message, each.remedy, each.step) for each in found] == [
        ("Install", "a: not held", findings.FIX, steps[0]),
        ("Upgrade a", "old", findings.UP, None),
        ("Check b", "left", findings.UP, None),
    ]


def test_problems_that_stop_cluster_up_at_its_start_are_found() -> None:
    def refuse() -> list[Step]:
        raise PrerequisiteError(
            "some hosts", problems=(Problem("a", "no disk"), Problem("b", "no snapd")), hint="Mend."
        )

    assert [*findings.unmet(refuse)] == [
        Finding("a", "no disk", "Mend."),
        Finding("b", "no snapd", "Mend."),
    ]


def test_a_disk_on_which_ray_keeps_nothing_is_found() -> None:
    assert [*findings.full_disk(Path("/tmp"), lambda path: (100, 94, 6))] == []
    (found,) = findings.full_disk(Path("/tmp"), lambda path: (100, 97, 3))
    assert (
        found.message == "the disk of /tmp is 97 % full: from 95 % on Ray spills no objects to it"
    )


def test_findings_are_an_error_of_their_own_after_the_table() -> None:
    found = [
        Finding("a", "no disk", "Mend."),
        Finding("b", "old", findings.FIX, step("Renew", YES)),
    ]
    shown = cluster_status.findings_report("lab", found)

    assert shown.document == {
        "name": "lab",
        "ok": False,
        "findings": [
            {"subject": "a", "message": "no disk", "remedy": "Mend.", "fixable": False},
            {"subject": "b", "message": "old", "remedy": findings.FIX, "fixable": True},
        ],
    }

    assert shown.error
    assert shown.error.exit_code == 5
    assert cluster_status.findings_report("lab", []).document == {
        "name": "lab",
        "ok": True,
        "findings": [],
    }


def test_a_kubernetes_node_under_pressure_is_found() -> None:
    conditions = [
        {"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"},
        {"type": "PIDPressure", "status": "False"},
        {"type": "Ready", "status": "False", "message": "container runtime is down"},
    ]
    trouble = {"metadata": {"name": "n"}, "status": {"conditions": conditions}}
    remedy = "kubectl describe node n"
    assert [*kuberay_doctor.of_host(trouble, "kubectl")] == [
        Finding(
            "n", "DiskPressure: Kubernetes ends pods there (kubelet has disk pressure)", remedy
        ),
        Finding("n", "it is not ready: its pods count as lost (container runtime is down)", remedy),
    ]
