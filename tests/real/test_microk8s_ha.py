"""Three control planes that join one by one, survive a loss, leave and are upgraded.

With one lost the cluster works; with two lost it only answers reads. Each test needs the one
before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.bed import microk8s, programs
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.microk8s import PROGRAM, install, join, run
from tests.bed.places import need
from tests.real import lab as labs
from tests.real.interruptions import DATA, is_installed
from tests.real.jobs import write_job
from tests.real.yard import Yard, wait_until

pytestmark = [pytest.mark.microk8s, pytest.mark.timeout(900)]
NAMES = {"host-1", "host-2", "host-3"}
# A script in place of MicroK8s' program: it passes on every command but `leave`.
ONLY_COPY = """#!/bin/sh
[ $1 != leave ] || { echo This node currently holds the only copy; exit 3; }
exec $0.kept "$@"
"""
REFUSES = ONLY_COPY.replace(
    "This node currently holds the only copy; exit 3", "It cannot leave now; exit 1"
)
PLACES = "jsonpath={.items[*].spec.nodeName}"
FROZEN = "Error from server: etcdserver: request timed out\n"
JOB = """
    command: [sleep, "{seconds}"]
    matrix: {seconds: [SECONDS]}
    resources: {cpus: 1}
"""


# KubeRay's operator ends where it cannot renew its lease in time ("leader election lost"), as when
# control planes leave. Kubernetes starts it again: `up` waits for that, and changes nothing.
WAITS = "Check the KubeRay operator"


@dataclass(frozen=True)
class Lab:
    """Three hosts, each a control plane; Ray's only node is on the third."""

    hosts: list[Host]
    yard: Yard
    document: dict[str, Any]

    def name_hosts(self, *hosts: Host) -> None:
        named = [{"address": host.ssh, "role": "control-plane"} for host in hosts]
        self.document["microk8s"] = {"channel": "1.33/stable", "hosts": named}
        (self.yard.home / "clusters" / "lab.yaml").write_text(json.dumps(self.document))

    def vote(self) -> bool:
        """Say whether all three are voters, by what each of them knows."""
        known = [run(host, "status", "--format", "yaml", check=False).stdout for host in self.hosts]
        return all(status.count("role: voter") == 3 for status in known)

    def works(self) -> bool:
        """Say whether all three are voters and accept writes.

        A host accepts writes later than it votes: kine reconnects to a returned database only after
        a while.
        """
        return self.vote() and all(map(writes, self.hosts))

    def changes(self, *words: str) -> list[str]:
        """Run `cluster.up`; return the steps that changed something, not those that only waited."""
        done = self.yard.run("cluster.up", *words, "--json", seconds=600)
        changed = [step["title"] for step in json.loads(done.stdout)["steps"] if step["changed"]]
        return [title for title in changed if title != WAITS]


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need(programs.missing())
    home = tmp_path_factory.mktemp("lab")
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=3) as made:
        document = labs.cluster_file(
            engine, home, made, workers=0, node_selector={"kubernetes.io/hostname": "host-3"}
        )
        yard = labs.place_to_work(home, made, document)
        for seconds in (0, 15):
            write_job(yard, f"sleep-{seconds}", JOB.replace("SECONDS", str(seconds)))
        lab = Lab(made, yard, document)
        lab.name_hosts(*made)
        yield lab


def test_control_planes_join_one_by_one_until_all_vote(lab: Lab) -> None:
    _, second, third = lab.hosts
    joined = [title for title in lab.changes() if title.startswith("Join ")]
    assert joined == [f"Join {host.ip} as a control plane" for host in (second, third)]
    wait_until(lab.works, seconds=120, what="all vote")
    assert microk8s.ready(third) == NAMES


def test_the_cluster_works_without_its_first_control_plane(lab: Lab) -> None:
    first, _, third = lab.hosts
    yard = lab.yard
    yard.run("train.dispatch", "sleep-15", "--skip-smoke", "--no-wait")
    first.power_off()
    assert yard.states() == {"head": "up"}
    wait_until(
        lambda: yard.json("train.status")["state"] == "succeeded", seconds=120, what="the run ends"
    )
    yard.run("train.dispatch", "sleep-0", "--skip-smoke")
    first.power_on()
    microk8s.wait_ready(third, *NAMES)
    wait_until(lab.works, seconds=180, what="all vote")
    # Processes on the first host may still be starting.
    wait_until(lambda: lab.changes() == [], seconds=200, what="up changes nothing")


def test_reads_work_and_writes_time_out_with_two_databases_lost(lab: Lab) -> None:
    first, second, third = lab.hosts
    for host in (first, second):
        host.kill("microk8s.dqlite")
    assert run(third, "kubectl", "get", "nodes").stdout.count("host-") == 3
    written = run(third, "kubectl", "create", "namespace", "frozen", check=False)
    assert (written.returncode, written.stderr) == (1, FROZEN)
    for host in (first, second):
        host.run("snap", "start", "microk8s")
    wait_until(lab.works, seconds=180, what="writes go on")


def test_no_control_plane_joins_a_dead_database_before_its_ghost_goes(
    lab: Lab,
) -> None:
    first, second, third = lab.hosts
    run(first, "kubectl", "delete", "node", "host-2")
    second.run("snap", "remove", "microk8s", "--purge")
    install(second, channel="1.33/stable")
    known = join(second, first, check=False)
    assert (known.returncode, known.stdout.splitlines()[-1]) == (
        6,
        f"Connection failed. The joining node ({second.ip}) is already known to dqlite (504).",
    )
    third.run("snap", "stop", "microk8s.daemon-k8s-dqlite")
    refused = lab.yard.run("cluster.up", expect=6, seconds=600)
    assert (
        f"error: no control plane may join or leave while the database on {third.ip} is dead"
        in refused.stderr
    )
    third.run("snap", "start", "microk8s.daemon-k8s-dqlite")
    wait_until(lambda: writes(first), seconds=180, what="a quorum")
    assert f"Join {second.ip} as a control plane" in lab.changes()
    wait_until(lab.works, seconds=120, what="all vote")
    assert lab.changes() == []


def placed(host: Host) -> set[str]:
    """Return the names of the hosts of the system's pods."""
    words = ("kubectl", "get", "pods", "-n", "kube-system", "-o", PLACES)
    return set(run(host, *words).stdout.split())


def test_control_planes_leave_on_request_and_a_refusal_cordons_none(lab: Lab) -> None:
    first, second, third = lab.hosts
    lab.name_hosts(third)
    # Refuses to leave, as MicroK8s does on the only voter.
    first.shell(
        f"mv {PROGRAM} {PROGRAM}.kept; printf '{ONLY_COPY}' > {PROGRAM}; chmod +x {PROGRAM}"
    )
    refused = lab.yard.run("cluster.up", "--remove", expect=6, seconds=600).stderr
    first.shell(f"mv {PROGRAM}.kept {PROGRAM}")
    assert "error: host-1 does not leave\n  at This node currently holds the only copy\n" in refused
    assert "SchedulingDisabled" not in run(third, "kubectl", "get", "nodes").stdout

    # As after a join that was cut off once its node existed: MicroK8s alone would not let the host
    # leave.
    for host in (first, second):
        host.run("rm", f"{DATA}/var/lock/no-cert-reissue")

    left = [title for title in lab.changes("--remove") if title.startswith("Remove ")]
    assert left == [
        f"Remove host-{number} ({host.ssh})" for number, host in enumerate((first, second), start=1)
    ]
    assert microk8s.ready(third) == {"host-3"}
    # Only the first is checked: on the second the snap was installed by hand, above.
    assert "no matching snaps" in first.shell("snap list microk8s 2>&1 || true").stdout
    # Pods of hosts that left count as available until Kubernetes collects them; DNS may be one.
    wait_until(lambda: placed(third) == {"host-3"}, seconds=180, what="their pods are collected")
    lab.yard.run("cluster.up")
    assert lab.changes() == []


def test_a_control_plane_cut_off_in_mid_join_joins_again_and_leaves(
    lab: Lab,
) -> None:
    first, second, third = lab.hosts
    token = json.loads(run(third, "add-node", "--format", "json").stdout)["token"]
    # `head` ends before the second line, "Waiting for this node", which breaks the join off there.
    second.shell(f"{PROGRAM} join {third.ip}:25000/{token} | head -n 1")
    locks = second.run("ls", f"{DATA}/var/lock").stdout.split()
    assert "join-in-progress" in locks and "no-cert-reissue" not in locks
    members = f"{DATA}/var/kubernetes/backend/cluster.yaml"
    # The file follows the store.
    wait_until(
        lambda: second.ip in third.run("cat", members).stdout,
        seconds=60,
        what="it is a member",
    )
    # As a boot would do: the host's node exists, and looks whole.
    second.run("snap", "start", "microk8s")
    microk8s.wait_ready(third, "host-2", "host-3")
    lab.name_hosts(third, second, first)
    assert [title for title in lab.changes() if title.startswith(("Remove", "Join"))] == [
        f"Remove what is left of {second.ip}",
        f"Join {second.ip} as a control plane",
        f"Join {first.ip} as a control plane",
    ]

    wait_until(lab.works, seconds=120, what="all vote")
    lab.name_hosts(third)
    # The first was joined by Trainyard, and refuses to leave: its snap is removed first.
    first.shell(f"mv {PROGRAM} {PROGRAM}.kept; printf '{REFUSES}' > {PROGRAM}; chmod +x {PROGRAM}")
    left = [title for title in lab.changes("--remove") if title.startswith("Remove ")]
    assert left == [
        f"Remove host-{number} ({host.ssh})" for number, host in enumerate((first, second), start=1)
    ]
    assert microk8s.ready(third) == {"host-3"}
    assert not is_installed(first)
    first.run("rm", "-f", f"{PROGRAM}.kept")


def test_a_host_is_upgraded_minor_by_minor_when_asked_never_downgraded(lab: Lab) -> None:
    yard, third = lab.yard, lab.hosts[2]
    older, newer = (("--set", f"microk8s.channel={channel}/stable") for channel in ("1.32", "1.35"))
    assert (
        "the file says 1.32/stable: a downgrade is impossible"
        in yard.run("cluster.up", *older, expect=2).stderr
    )
    assert "--set microk8s.upgrade=true\n" in yard.run("cluster.up", *newer, expect=2).stderr
    changed = lab.changes(*newer, "--set", "microk8s.upgrade=true")
    minors = [title for title in changed if title.startswith("Upgrade ")]
    assert minors == [f"Upgrade {third.ip} to 1.{minor}/stable" for minor in (34, 35)]
    status = yard.json("cluster.status", *newer)
    assert ([host["version"] for host in status["hosts"]], status["state"]) == (["v1.35.0"], "up")


def writes(host: Host) -> bool:
    """Say whether a write by way of this host is kept; each host writes another value."""
    words = ("annotate", "--overwrite", "node", "host-3", f"written-by={host.name}")
    return run(host, "kubectl", *words, "--request-timeout=20s", check=False).returncode == 0
