"""When hosts of a lab are asked what they are, and when what they answered still counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.seams.programs import Ran

ANSWER = "clock 0\nhostname a\narchitecture x86_64\nkernel 6.8\nmachine_id 1\nmemory 1\n"


@dataclass
class Asked:
    """A host that counts how often it is asked."""

    times: int = 0

    def sudo(self, command: Any, **_: Any) -> Ran:
        self.times += 1
        return Ran(0, ANSWER, "")

    def close(self) -> None:
        """Nothing is open."""


def test_hosts_are_asked_once_and_after_a_change_once_for_each_question() -> None:
    connections = {name: Asked() for name in ("a", "b")}
    hosts = [Host(name, "192.0.2.1", name, cast(Any, connections[name]), False) for name in connections]
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
