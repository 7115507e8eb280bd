"""Room on Kubernetes, and the reason when there is none."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.backends.kuberay.capacity import amounts, demands, hosts, packing, quota, room
from trainyard.backends.kuberay.capacity.demands import Demand
from trainyard.backends.kuberay.capacity.hosts import Host

GPU = "nvidia.com/gpu"
GIBIBYTE = 1024**3


def node(name: str, *, cpu: str = "4", memory: str = "8Gi", gpus: int = 0, **more: Any) -> dict[str, Any]:
    has = {"cpu": cpu, "memory": memory, "pods": "110", **({GPU: str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **more.get("labels", {})}},
        "spec": {"taints": more.get("taints"), "unschedulable": more.get("cordoned", False)},
        "status": {
            "allocatable": has,
            "conditions": [{"type": "Ready", "status": "False" if more.get("dead") else "True"}],
        },
    }


def pod(name: str, where: str, *, namespace: str = "team", phase: str = "Running", **wants: str) -> dict[str, Any]:
    resources = {key.replace("gpu", GPU): value for key, value in wants.items()}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"nodeName": where, "containers": [{"name": "main", "resources": {"requests": resources}}]},
        "status": {"phase": phase},
    }


def demand(group: str, *, cpu: float = 1, memory: int = 2, gpus: int = 0, alone: bool = False, **more: Any) -> Demand:
    wants = {"cpu": round(cpu * 1000), "memory": memory * GIBIBYTE * 1000, "pods": 1000}
    wants |= {GPU: gpus * 1000} if gpus else {}
    return Demand(
        group=group,
        requests=wants,
        limits=wants,
        containers=((wants, wants),),
        selector=more.get("selector", {}),
        tolerations=tuple(more.get("tolerations", ())),
        alone=alone,
        priority_class=more.get("priority_class"),
    )


def there(
    *nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = (), ours: tuple[str, ...] = ()
) -> tuple[Host, ...]:
    return hosts.hosts(nodes, pods, ours=ours)


def shortages(wanted: list[Demand], nodes: tuple[Host, ...]) -> list[str]:
    return list(room.shortage(wanted, nodes).said)


def test_a_cluster_that_fits_lacks_nothing() -> None:
    wanted = [demand("head", cpu=2), demand("cpu", cpu=2), demand("cpu", cpu=4)]

    assert shortages(wanted, there(node("n1"), node("n2"))) == []


def test_what_is_missing_is_said_with_how_much_and_where() -> None:
    taken = (pod("a", "n1", cpu="3"), pod("b", "n2", cpu="2500m"), pod("c", "n3", gpu="1", cpu="1"))
    nodes = there(node("n1"), node("n2"), node("n3", cpu="1", gpus=1), pods=taken)

    assert shortages([demand("gpu", cpu=4, gpus=1)], nodes) == [
        "gpu: no Kubernetes node has room for it: cpu: 4 wanted, at most 1.5 free (n2); nvidia.com/gpu: 1 wanted, "
        "0 free on n1, n2, n3 (n3 has 1, used by team/c)"
    ]


def test_a_group_that_fits_in_part_says_for_how_many_nodes_there_is_none() -> None:
    wanted = [demand("gpu", cpu=3) for _ in range(3)]

    assert shortages(wanted, there(node("n1"), node("n2"))) == [
        "gpu: no Kubernetes node has room for 1 of 3 nodes: cpu: 3 wanted, at most 1 free (n1, n2)"
    ]


def test_a_resource_that_nobody_has_is_named_as_such() -> None:
    assert shortages([demand("gpu", gpus=2)], there(node("n1"))) == [
        "gpu: no Kubernetes node has room for it: nvidia.com/gpu: 2 wanted, no Kubernetes node has any"
    ]


def test_hosts_that_take_no_such_pod_are_named_with_why() -> None:
    nodes = there(
        node("n1", cordoned=True),
        node("n2", dead=True),
        node("n3", taints=[{"key": "team", "value": "other", "effect": "NoSchedule"}], labels={"pool": "a"}),
        node("n4"),
    )

    assert shortages([demand("cpu", selector={"pool": "a"})], nodes) == [
        "cpu: no Kubernetes node has room for it: n1: cordoned; n2: not ready; n3: taint "
        "team=other:NoSchedule is not tolerated; n4: without label pool=a"
    ]


def test_a_toleration_opens_a_tainted_host() -> None:
    nodes = there(node("n1", taints=[{"key": GPU, "value": "present", "effect": "NoSchedule"}]))

    assert shortages([demand("gpu", tolerations=[{"key": GPU, "operator": "Exists"}])], nodes) == []


def test_a_toleration_of_another_value_does_not() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}

    assert not hosts.tolerates({"key": "team", "operator": "Equal", "value": "b"}, taint)
    assert not hosts.tolerates({"key": "team", "operator": "Exists", "effect": "NoExecute"}, taint)
    assert hosts.tolerates({"operator": "Exists"}, taint)
    assert hosts.tolerates({"key": "team", "value": "a"}, taint)


def test_no_host_with_enough_of_everything_says_what_each_lacks() -> None:
    nodes = there(node("n1", cpu="1", memory="16Gi"), node("n2", cpu="8", memory="1Gi"))

    assert shortages([demand("cpu", cpu=4, memory=8)], nodes) == [
        "cpu: no Kubernetes node has room for it: no one of them has enough of everything: n1 lacks cpu (1 of 4), "
        "n2 lacks memory (1GiB of 8GiB)"
    ]


def test_nodes_that_must_be_alone_do_not_share_a_host() -> None:
    wanted = [demand("cpu", alone=True) for _ in range(3)]

    assert shortages(wanted, there(node("n1"), node("n2"))) == [
        "cpu: no Kubernetes node has room for 1 of 3 nodes: n1, n2: a node of the cluster is there "
        "already (spread: required)"
    ]


def test_a_way_that_the_quick_one_misses_is_found() -> None:
    # The largest first onto the fullest host leaves 1 and 1 for the last 2; 3 + 2 and 4 + 2 fit.
    wanted = [demand("a", cpu=4), demand("b", cpu=3), demand("c", cpu=2), demand("c", cpu=2)]

    assert shortages(wanted, there(node("n1", cpu="5"), node("n2", cpu="6"))) == []


def test_a_search_that_was_cut_short_claims_nothing_for_certain() -> None:
    wanted = [demand("a", cpu=1 + index / 100) for index in range(12)]
    found = packing.pack(wanted, there(*[node(f"n{index}", cpu=f"{1800 + index}m") for index in range(11)]), tries=50)

    assert not found.proven
    assert len(found.missing) == 1


def test_of_very_many_different_nodes_a_shortage_is_a_supposition() -> None:
    wanted = [demand("a", cpu=1 + index / 1000) for index in range(300)]
    found = room.shortage(wanted, there(node("n1", cpu="399", memory="900Gi")))

    assert not found.proven
    assert found.said[0].startswith("a: probably no Kubernetes node has room for 190 of 300 nodes: pods: 1 wanted")


@pytest.mark.parametrize("count", [8, 50, 200])
def test_equal_nodes_that_are_too_many_are_proven_to_be_so_at_once(count: int) -> None:
    # No two hosts are alike: each has its own name as a label, and something else on it.
    nodes = there(*[node(f"n{index}", gpus=1, memory=f"{8 + index}Gi") for index in range(count)])
    wanted = [demand("head"), *[demand("gpu", gpus=1) for _ in range(count + 1)]]
    found = packing.pack(wanted, nodes, tries=0)

    assert found.proven
    assert [one.group for one in found.missing] == ["gpu"]


def test_hosts_that_differ_only_in_what_nobody_asks_for_are_tried_once() -> None:
    # Two kinds, each of which alone would find room.
    nodes = there(*[node(f"n{index}", gpus=1) for index in range(12)])
    wanted = [*[demand("a", gpus=1) for _ in range(7)], *[demand("b", cpu=2, gpus=1) for _ in range(6)]]

    assert packing.pack(wanted, nodes, tries=1000).proven


def test_hosts_that_somebody_selects_by_name_are_not_alike() -> None:
    wanted = [demand("a", cpu=4), demand("b", cpu=3, selector={"kubernetes.io/hostname": "n1"})]

    assert shortages(wanted, there(node("n1"), node("n2"))) == []


def test_pods_that_have_ended_take_no_room() -> None:
    taken = (pod("a", "n1", cpu="4", phase="Succeeded"),)

    assert shortages([demand("cpu", cpu=4)], there(node("n1"), pods=taken)) == []


def test_our_own_pods_that_stay_are_counted_once() -> None:
    own = pod("worker", "n1", cpu="3")
    nodes = there(node("n1"), pods=(own,), ours=("uid-worker",))

    assert nodes[0].ours == (False,)
    assert nodes[0].free["cpu"] == 1000


def test_a_pod_asks_for_its_containers_or_for_its_largest_init_container() -> None:
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "500m"}}},
        ],
        "initContainers": [
            {"resources": {"requests": {"cpu": "2"}}},
            {"resources": {"requests": {"cpu": "100m"}}, "restartPolicy": "Always"},
        ],
    }

    assert amounts.of_pod(spec) == {"cpu": 2000, "memory": GIBIBYTE * 1000, "pods": 1000}


def test_a_head_with_an_autoscaler_asks_for_it_too_and_a_runtime_class_adds_its_share() -> None:
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "runtimeClassName": "kata"}}
    ray_cluster = {"spec": {"enableInTreeAutoscaling": True, "headGroupSpec": {"template": template}}}

    found = demands.demands(ray_cluster, {"head": 1}, {"kata": {"cpu": 250}})

    assert [one.requests["cpu"] for one in found] == [1750]


def test_a_worker_asks_for_no_less_than_what_waits_for_the_head() -> None:
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "100m"}}}]}}
    spec = {"headGroupSpec": {"template": template}, "workerGroupSpecs": [{"groupName": "cpu", "template": template}]}

    assert [one.requests["cpu"] for one in demands.demands({"spec": spec}, {"cpu": 1}, {})] == [200]


def test_a_quota_that_would_be_exceeded_says_in_what_and_by_how_much() -> None:
    found = {
        "metadata": {"name": "team"},
        "spec": {},
        "status": {
            "hard": {"requests.cpu": "4", "limits.memory": "16Gi", "pods": "10", "requests.nvidia.com/gpu": "0"},
            "used": {"requests.cpu": "2500m", "pods": "2"},
        },
    }

    assert quota.over_quota([found], [demand("gpu", cpu=2, gpus=1)]) == [
        "quota team: requests.cpu: 2 wanted, 1.5 of 4 free",
        "quota team: requests.nvidia.com/gpu: 1 wanted, 0 of 0 free",
    ]


def test_pods_of_ours_that_go_leave_their_share_of_a_quota() -> None:
    found = {"metadata": {"name": "team"}, "status": {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "4"}}}

    assert quota.over_quota([found], [demand("cpu", cpu=2)], gone=[pod("old", "n1", cpu="2")]) == []


def test_a_quota_for_other_priorities_is_not_about_us() -> None:
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    found = {
        "metadata": {"name": "high"},
        "spec": {"scopeSelector": {"matchExpressions": [scope]}},
        "status": {"hard": {"pods": "0"}},
    }

    assert quota.over_quota([found], [demand("cpu")]) == []
    assert quota.over_quota([found], [demand("cpu", priority_class="high")]) == [
        "quota high: pods: 1 wanted, 0 of 0 free"
    ]


def test_a_limit_range_forbids_a_container_that_is_too_large() -> None:
    found = {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}}

    assert quota.out_of_range([found], [demand("cpu"), demand("cpu")]) == [
        "limit range small: cpu: memory: 2GiB wanted, at most 1GiB allowed for a container"
    ]


def test_a_quota_that_is_overdrawn_in_what_we_do_not_want_is_not_about_us() -> None:
    hard = {"persistentvolumeclaims": "1", "requests.nvidia.com/gpu": "1"}
    found = {"metadata": {"name": "team"}, "status": {"hard": hard, "used": dict.fromkeys(hard, "3")}}

    assert quota.over_quota([found], [demand("cpu", cpu=2)]) == []
