"""What is found on a Docker host, compared with what is wanted."""

from __future__ import annotations

import pytest

from trainyard.backends.compose import found, labels
from trainyard.backends.compose.found import Difference, compare
from trainyard.errors import RequestError
from trainyard.seams.docker.containers import Container, Port

WANTED = {"head": "h1", "cpu-0": "w1", "cpu-1": "w2"}


def container_of(node: str, plan: str, *, state: str = "running", started: str = "", owner: str = "me") -> Container:
    """Return a container of a node, made with this fingerprint."""
    return Container(
        id=f"id-{node}",
        name=f"trainyard-lab-{node}",
        image="ray",
        image_id="sha256:0",
        labels={labels.NODE: node, labels.PLAN: plan, labels.OWNER: owner},
        state=state,
        health=None,
        exit_code=0,
        error="",
        restarts=0,
        ports=(Port(8265, "127.0.0.1", 33000),) if node == "head" else (),
        networks={},
        volumes=(),
        started=started,
    )


def _there(**nodes: str) -> dict[str, Container]:
    """Return containers by node: head="h1", with the state after a colon if it is not running."""
    made = {}
    for name, text in nodes.items():
        node = name.replace("_", "-")
        plan, _, state = text.partition(":")
        made[node] = container_of(node, plan, state=state or "running")
    return made


def test_nothing_is_to_be_done_if_every_node_is_as_wanted() -> None:
    assert compare(WANTED, _there(head="h1", cpu_0="w1", cpu_1="w2")) == Difference((), ())


def test_a_node_without_a_container_is_missing() -> None:
    assert compare(WANTED, _there(head="h1", cpu_0="w1")) == Difference(("cpu-1",), ())


def test_a_node_that_nobody_wants_goes() -> None:
    there = _there(head="h1", cpu_0="w1", cpu_1="w2", cpu_2="w3")
    assert compare(WANTED, there) == Difference((), ("cpu-2",))


def test_a_worker_that_is_made_otherwise_is_replaced() -> None:
    assert compare(WANTED, _there(head="h1", cpu_0="old", cpu_1="w2")) == Difference(("cpu-0",), ("cpu-0",))


def test_a_worker_that_stands_still_is_started_as_it_is() -> None:
    assert compare(WANTED, _there(head="h1", cpu_0="w1:exited", cpu_1="w2")) == Difference(("cpu-0",), ())


def test_a_node_that_docker_starts_again_is_left_alone() -> None:
    assert compare(WANTED, _there(head="h1", cpu_0="w1:restarting", cpu_1="w2")) == Difference((), ())


@pytest.mark.parametrize("head", ["old", "old:exited"])
def test_no_worker_outlives_another_head(head: str) -> None:
    there = _there(head=head, cpu_0="w1", cpu_1="w2")
    assert compare(WANTED, there) == Difference(("head", "cpu-0", "cpu-1"), ("head", "cpu-0", "cpu-1"))


def test_no_worker_outlives_a_head_that_stands_still() -> None:
    there = _there(head="h1:exited", cpu_0="w1", cpu_1="w2")
    assert compare(WANTED, there) == Difference(("head", "cpu-0", "cpu-1"), ("cpu-0", "cpu-1"))


def test_a_worker_that_lost_its_head_is_replaced() -> None:
    there = _there(head="h1", cpu_0="w1", cpu_1="w2")
    assert compare(WANTED, there, lost=frozenset({"cpu-0"})) == Difference(("cpu-0",), ("cpu-0",))


def test_workers_older_than_their_head_are_found_in_the_engine_s_own_time() -> None:
    there = {
        "head": container_of("head", "h1", started="2026-11-21T15:00:00.12Z"),
        "older": container_of("older", "w", started="2026-11-21T15:00:00.119999999Z"),
        "younger": container_of("younger", "w", started="2026-11-21T15:00:00.121Z"),
        "ended": container_of("ended", "w", state="exited", started="2026-11-21T14:00:00Z"),
    }
    assert found.older_than_head(there) == {"older"}


def test_without_a_head_nobody_is_older_than_it() -> None:
    assert found.older_than_head(_there(cpu_0="w1")) == frozenset()


def test_the_dashboard_answers_where_docker_published_it() -> None:
    assert found.dashboard_port(_there(head="h1")) == 33000
    assert found.dashboard_port({}) is None


def test_a_cluster_of_somebody_else_is_neither_changed_nor_removed() -> None:
    with pytest.raises(RequestError) as caught:
        found.refuse_foreign([container_of("head", "h1", owner="you@there:/x")], name="lab", owner="me@here:/y")
    assert caught.value.lines() == [
        "a cluster called lab is on this Docker host, and it was made by you@there:/x",
        "  at trainyard-lab-head; you are me@here:/y",
        "  -> Give yours another name (`name:` in the cluster file).",
    ]
