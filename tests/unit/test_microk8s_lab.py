"""When hosts of a lab are asked what they are, and when what they answered still counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from tests.unit.test_microk8s_preflight import GOOD
from tests.unit.test_microk8s_states import SITE, TOGETHER
from trainyard.backends.microk8s import leaving
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.errors import OutsideError
from trainyard.seams.programs import Ran

ANSWER = "clock 0\nhostname a\narchitecture x86_64\nkernel 6.8\nmachine_id 1\nmemory 1\n"


@dataclass
class Asked:
    """A host that counts how often it is asked; its Kubernetes knows `nodes`."""

    times: int = 0
    nodes: str = ""

    def sudo(self, command: Any, **_: Any) -> Ran:
        self.times += 1
        if "kubectl" in command:
            return Ran(0 if self.nodes else 1, self.nodes, "")
        return Ran(0, ANSWER, "")

    def close(self) -> None:
        """Nothing is open."""


def test_hosts_are_asked_once_and_after_a_change_once_for_each_question() -> None:
    connections = {name: Asked() for name in ("a", "b")}
    hosts = [
        Host(name, "192.0.2.1", name, cast(Any, connections[name]), False) for name in connections
    ]
    lab = Lab(hosts, "1.34/stable")

    def times() -> list[int]:
        return [connection.times for connection in connections.values()]

    lab.facts([hosts[0]])
    lab.facts()
    lab.look_again()
    lab.ask(hosts)
    assert times() == [1, 1]
    lab.changed()
    lab.facts([hosts[0]])
    lab.facts()
    assert times() == [2, 2]
    lab.look_again()
    lab.facts([hosts[1]])
    assert times() == [2, 3]


def test_a_standalone_host_is_not_asked_for_the_nodes_of_the_cluster() -> None:
    """Its only node is itself: all others would be taken for hosts that joined another cluster, and
    told to leave.
    """
    answers = (Asked(), Asked(nodes='{"items": [{"metadata": {"name": "b"}}]}'))
    silent, alone = (
        Host(name, "", name, cast(Any, asked), True)
        for name, asked in zip("ab", answers, strict=True)
    )
    assert Lab([silent, alone], "").nodes() == {}
    assert [*Lab([alone, silent], "").nodes()] == ["b"]
    joined = replace(GOOD, members=TOGETHER)
    assert [*Lab([silent, alone], "", {"b": joined}).nodes()] == ["b"]
    with pytest.raises(OutsideError, match="no control plane answers"):
        leaving.steps(Lab([silent, alone], ""), SITE)
