"""What is found on a Docker host, compared with what is wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainyard.backends.compose import naming, snapshot
from trainyard.backends.compose.diagnosis import phrase, restarts_forever
from trainyard.backends.compose.snapshot import compare
from trainyard.backends.node_steps import Difference
from trainyard.seams.docker.containers import Container, Port

DESIRED = {"head": "h1", "cpu-0": "w1", "cpu-1": "w2"}


def container_of(node: str, plan: str, *, state: str = "running", started: str = "", owner: str = "me") -> Container:
    """Return a container of a node, made with this fingerprint."""
    return Container(
        id=f"id-{node}",
        name=f"trainyard-lab-{node}",
        image="ray",
        image_id="sha256:0",
        labels={naming.NODE: node, naming.PLAN: plan, naming.OWNER: owner},
        state=state,
        health=None,
        exit_code=0,
        restarts=0,
        ports=(Port(8265, "127.0.0.1", 33000),) if node == "head" else (),
        started=started,
    )


def _found(**nodes: str) -> dict[str, Container]:
    """Return containers by node: head="h1", with the state after a colon if it is not running."""
    made = {}
    for name, text in nodes.items():
        node = name.replace("_", "-")
        plan, _, state = text.partition(":")
        made[node] = container_of(node, plan, state=state or "running")
    return made


@pytest.mark.parametrize(
    ("found", "missing", "surplus"),
    [
        ({"head": "h1", "cpu_0": "w1", "cpu_1": "w2"}, (), ()),
        ({"head": "h1", "cpu_0": "w1"}, ("cpu-1",), ()),
        ({"head": "h1", "cpu_0": "w1", "cpu_1": "w2", "cpu_2": "w3"}, (), ("cpu-2",)),
        ({"head": "h1", "cpu_0": "old", "cpu_1": "w2"}, ("cpu-0",), ("cpu-0",)),
        # What stands still is started as it is; what Docker starts again is left alone.
        ({"head": "h1", "cpu_0": "w1:exited", "cpu_1": "w2"}, ("cpu-0",), ()),
        ({"head": "h1", "cpu_0": "w1:restarting", "cpu_1": "w2"}, (), ()),
        # No worker outlives its head.
        ({"head": "old", "cpu_0": "w1", "cpu_1": "w2"}, ("head", "cpu-0", "cpu-1"), ("head", "cpu-0", "cpu-1")),
        ({"head": "h1:exited", "cpu_0": "w1", "cpu_1": "w2"}, ("head", "cpu-0", "cpu-1"), ("cpu-0", "cpu-1")),
    ],
)
def test_nodes_are_compared_with_what_is_desired(
    found: dict[str, str], missing: tuple[str, ...], surplus: tuple[str, ...]
) -> None:
    assert compare(DESIRED, _found(**found)) == Difference(missing, surplus)


def test_a_worker_that_lost_its_head_is_replaced() -> None:
    found = _found(head="h1", cpu_0="w1", cpu_1="w2")
    assert compare(DESIRED, found, lost=frozenset({"cpu-0"})) == Difference(("cpu-0",), ("cpu-0",))


def test_workers_older_than_their_head_are_found_in_the_engine_s_own_time() -> None:
    found = {
        "head": container_of("head", "h1", started="2026-11-21T15:00:00.12Z"),
        "older": container_of("older", "w", started="2026-11-21T15:00:00.119999999Z"),
        "younger": container_of("younger", "w", started="2026-11-21T15:00:00.121Z"),
        "ended": container_of("ended", "w", state="exited", started="2026-11-21T14:00:00Z"),
    }
    assert snapshot.older_than_head(found) == {"older"}
    assert snapshot.older_than_head(_found(cpu_0="w1")) == frozenset()


def test_the_dashboard_answers_where_docker_published_it() -> None:
    assert snapshot.dashboard_port(_found(head="h1")) == 33000
    assert snapshot.dashboard_port({}) is None


def test_a_node_that_ends_again_and_again_says_how() -> None:
    looping = replace(container_of("head", "h1"), state="restarting", exit_code=127, restarts=5)
    assert restarts_forever(looping)
    assert phrase(looping, answers=False, log_tail="exec ray failed") == "restarting, exit code 127 (exec ray failed)"
    assert phrase(replace(looping, state="running"), answers=False) == "not yet in Ray; Docker started it again 5 times"
