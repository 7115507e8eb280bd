"""Hosts that come, go, die and are made anew, and two operators at once. Each test needs the one before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.bed import microk8s, programs
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.places import need
from tests.real import lab as labs
from tests.real.yard import Yard, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.kubernetes, pytest.mark.microk8s, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Lab:
    """Three hosts, of which the file names as many as a test says; `other` is a second operator's place."""

    hosts: list[Host]
    yard: Yard
    other: Yard
    document: dict[str, Any]

    def name_hosts(self, *numbers: int) -> None:
        self.document["microk8s"] = {"hosts": [{"address": self.hosts[number - 1].ssh} for number in numbers]}
        for yard in (self.yard, self.other):
            yard.write_cluster("{{}}").write_text(json.dumps(self.document))

    def nodes(self) -> set[str]:
        listed = microk8s.run(self.hosts[0], "kubectl", "get", "nodes", "-o", "name").stdout
        return {line.partition("/")[2] for line in listed.split()}


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need(programs.missing())
    ann, bob = (tmp_path_factory.mktemp(name) for name in ("ann", "bob"))
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=3) as made:
        document = labs.cluster_file(engine, ann, made, workers=0)
        ours, theirs = (labs.place_to_work(home, made, document) for home in (ann, bob))
        yield Lab(made, ours, theirs, document)


def test_a_host_that_is_added_joins_and_a_second_operator_is_told_who_is_at_it(lab: Lab) -> None:
    lab.name_hosts(1, 2)
    lab.yard.run("cluster.up", seconds=600)
    lab.name_hosts(1, 2, 3)
    assert "Join 2 workers" in _planned(lab.yard)
    # Who has the lock writes it there; to try the lock would be to hold it.
    before = lab.hosts[0].run("cat", "/run/trainyard.lock").stdout
    first = lab.yard.start("cluster.up")
    wait_until(lambda: lab.hosts[0].run("cat", "/run/trainyard.lock").stdout != before, seconds=60, what="locked")
    refused = lab.other.run("cluster.up", expect=4).stderr
    assert "error: another command is changing these hosts\n" in refused
    assert re.search(rf"  at {lab.hosts[0].ip}: \S+@\S+ since .* \(process \d+\)\n", refused)
    assert first.wait(300) == 0, first.stdout and first.stdout.read()
    assert lab.nodes() == {"host-1", "host-2", "host-3"}
    assert _planned(lab.yard) == []


def test_a_host_that_left_the_file_is_said_and_leaves_as_it_was_found_when_asked_to(lab: Lab) -> None:
    lab.name_hosts(1, 2)
    left = (
        f"host-3 ({lab.hosts[2].ssh}): still in the cluster, and no longer in the file: trainyard cluster.up --remove"
    )
    assert f"warning: {left}" in lab.yard.run("cluster.up").stderr
    assert lab.nodes() == {"host-1", "host-2", "host-3"}
    step = f"Remove host-3 ({lab.hosts[2].ssh})"
    assert _planned(lab.yard, "--remove") == [step]
    done = lab.yard.json("cluster.up", "--remove")["steps"]
    assert [each["title"] for each in done if each["changed"]] == [step]
    assert lab.nodes() == {"host-1", "host-2"}
    host = lab.hosts[2]
    assert "no matching snaps" in host.shell("snap list microk8s 2>&1 || true").stdout
    written = host.shell("cat /etc/hosts; ls /etc/sysctl.d /run /var/snap/microk8s 2>&1 || true").stdout
    assert "trainyard" not in written


def test_what_is_left_of_a_host_that_was_made_anew_goes_before_it_joins(lab: Lab) -> None:
    lab.hosts[1].run("snap", "remove", "microk8s", "--purge")
    planned = {step["title"]: step["state"] for step in lab.yard.json("cluster.plan")["steps"]}
    changed = {step["title"] for step in lab.yard.json("cluster.up")["steps"] if step["changed"]}
    assert f"Remove what is left of {lab.hosts[1].ip}" in changed
    # A stage that cannot be looked into yet has steps that no plan can name.
    assert {title for title, state in planned.items() if state == "would"} <= changed
    assert not [title for title in changed if planned.get(title) == "already"]
    assert microk8s.ready(lab.hosts[0]) == {"host-1", "host-2"}


def test_a_dead_host_is_named_and_goes_by_force_alone(lab: Lab) -> None:
    dead = lab.hosts[1]
    dead.power_off()
    assert f"error: {dead.ip} cannot be reached by SSH on port 22\n" in lab.yard.run("cluster.up", expect=3).stderr
    lab.name_hosts(1)
    refused = lab.yard.run("cluster.up", "--remove", expect=3).stderr
    assert f"error: host-2 is no longer in the file, and cannot be told to leave: {dead.ip} cannot be" in refused
    lab.yard.run("cluster.up", "--remove", "--force")
    assert lab.nodes() == {"host-1"}
    assert _planned(lab.yard) == []


def _planned(yard: Yard, *flags: str) -> list[str]:
    return [step["title"] for step in yard.json("cluster.plan", *flags)["steps"] if step["state"] == "would"]
