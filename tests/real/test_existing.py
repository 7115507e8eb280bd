"""Another user's cluster: checked, used, and never changed."""

from __future__ import annotations

from tests.real.yard import Yard
from trainyard.seams.ray_api import RayApi


def test_it_is_checked_and_shown_and_nothing_is_made_or_removed(yard: Yard, fresh: Yard) -> None:
    fresh.write_cluster(
        "name: {name}\nbackend: existing\n"
        f"existing: {{{{address: '{yard.address()}', token_file: '{yard.state / 'token'}'}}}}\n"
    )
    (step,) = fresh.json("cluster.up")["steps"]
    assert (step["changed"], step["seen"].endswith(", 3 nodes alive")) == (False, True)
    document = fresh.json("cluster.status")
    assert (document["state"], document["backend"]) == ("up", "existing")
    nodes = [(node["name"], node["group"], node["gpus"]) for node in document["nodes"]]
    assert nodes == [("head", "head", 0), ("gpu-0", "gpu", 2), ("gpu-1", "gpu", 2)]
    lines = fresh.run("cluster.logs", "--no-follow").stdout.splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == {"head", "gpu-0", "gpu-1"}
    lines = fresh.run("cluster.logs", "gpu-1", "--no-follow").stdout.splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == {"gpu-1"}

    with RayApi(yard.address(), yard.token()) as ray:
        ids = {node.name: node.node_id for node in ray.nodes()}

    lines = fresh.run("cluster.logs", ids["gpu-1"], "--no-follow").stdout.splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == {"gpu-1"}
    assert (
        "has no node 'gpu'; did you mean 'gpu-1'?"
        in fresh.run("cluster.logs", "gpu", expect=2).stderr
    )
    done = fresh.run("cluster.down")
    assert "nothing was removed" in done.stdout
    assert "Trainyard did not make this cluster" in done.stderr
    assert fresh.leftovers() == []
    assert yard.states() == {"head": "up", "gpu-0": "up", "gpu-1": "up"}


def test_an_existing_cluster_that_does_not_answer_is_down(fresh: Yard) -> None:
    fresh.write_cluster(
        "name: {name}\nbackend: existing\nauth: none\nexisting: {{address: 'http://127.0.0.1:9'}}\n"
    )
    assert fresh.json("cluster.status")["state"] == "down"
