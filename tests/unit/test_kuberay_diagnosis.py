"""The cause why a cluster on Kubernetes is not ready, with its remedy; each table of rules once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube
from tests.unit.kube_pods import (
    IMAGE,
    LATER,
    STARTED,
    Object,
    condition,
    ended,
    event,
    group,
    head,
    pod,
    ray_cluster,
    running,
    stopped,
    waiting,
)
from trainyard.backends.kuberay import diagnosis
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.diagnosis.operator import explain_admission
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis, merged
from trainyard.seams.kube.types import NODE

PLACE = "cluster lab, namespace team of context bed"
WORKER = "lab-gpu-worker-x7k2p"
AT = f"  at {PLACE}, on kube-2"
READY = {"kube-1": condition("Ready", "True"), "kube-2": condition("Ready", "True")}


def kubernetes(hosts: dict[str, Object] | None = None) -> FakeKube:
    """Return a Kubernetes with these hosts and their Ready conditions; None: they are forbidden."""
    nodes = [
        {"metadata": {"name": name}, "status": {"conditions": [ready]}}
        for name, ready in (hosts or {}).items()
    ]
    kube = FakeKube(*[(NODE, node) for node in nodes], forbidden=["nodes"] if hosts is None else [])
    kube.texts[WORKER] = "started\n\n\x1b[31mno such thing\x1b[0m\n"
    return kube


def snapshot(
    *pods: Object,
    hosts: dict[str, Object] | None = None,
    events: Sequence[Object] = (),
    **more: Any,
) -> Snapshot:
    return Snapshot(kubernetes(hosts), "team", pods, events=tuple(events), **more)  # type: ignore[arg-type]


def causes(*pods: Object, **more: Any) -> tuple[Diagnosis, ...]:
    return merged(diagnosis.of_cluster(snapshot(*pods, **more)))


def only(*pods: Object, **more: Any) -> Diagnosis:
    (found,) = causes(*pods, **more)
    return found


def error(*pods: Object, **more: Any) -> tuple[list[str], int]:
    """Return the lines and the exit code of the only cause."""
    found = diagnosis.to_error(only(*pods, **more), PLACE)
    return found.lines(), found.exit_code


def pulling(text: str, *, reason: str = "ImagePullBackOff") -> Object:
    return pod(WORKER, init=(waiting(reason, text, name="wait-gcs-ready"),))


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        (
            'Head "https://192.0.2.10:5000/v2/": http: server gave HTTP response to HTTPS client',
            "registry 192.0.2.10:5000 speaks plain HTTP, and the node expects TLS",
            "Configure the registry for containerd on every node: "
            "/etc/containerd/certs.d/192.0.2.10:5000/hosts.toml "
            "(MicroK8s: /var/snap/microk8s/current/args/certs.d/192.0.2.10:5000/hosts.toml), with "
            'server = "http://192.0.2.10:5000".',
        ),
        (
            (
                "failed to authorize: failed to fetch anonymous token: unexpected status: 401 "
                "Unauthorized"
            ),
            "registry 192.0.2.10:5000 refuses the login",
            (
                "Is the login in the cluster file right: registry.username with password_env, or "
                "kuberay.pull_secrets?"
            ),
        ),
        (
            "write /var/lib/x: no space left on device",
            "the node's disk is full",
            "Make room on it: crictl rmi --prune",
        ),
        ("something that nobody has seen", "registry 192.0.2.10:5000 or the node refuses", None),
    ],
)
def test_a_failed_pull_reports_its_cause_and_the_known_hint(
    text: str, why: str, hint: str | None
) -> None:
    found = only(pulling(text))
    assert (found.message, found.hint, found.raw) == (
        f"cannot pull the image {IMAGE}: {why}",
        hint,
        text,
    )


def test_a_first_failed_pull_and_one_without_its_secret_may_be_chance() -> None:
    first = only(pulling("x: not found", reason="ErrImagePull"))
    again, refused = only(pulling("x: not found")), only(pulling("x: 401 Unauthorized"))
    assert (first.tolerates, again.tolerates, refused.tolerates) == (SOON, 0, MINUTE)


def unplaced(text: str, name: str = WORKER) -> Object:
    refused = condition("PodScheduled", "False", reason="Unschedulable", message=text)
    return pod(name, host="", conditions=(refused,))


def test_a_pod_that_finds_no_room_says_what_each_host_lacks() -> None:
    text = (
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint "
        "{nvidia.com/gpu: present}, "
        "1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu. no new claims to "
        "deallocate, preemption: 0/4 "
        "nodes are available: 4 No preemption victims found for incoming pod."
    )

    lines, code = error(unplaced(text))
    assert lines == [
        "gpu-x7k2p found no room for 2 cpu, 4Gi memory: 0/4 nodes are available: 1 Insufficient "
        "cpu, 1 node(s) had "
        "untolerated taint {nvidia.com/gpu: present}, 1 node(s) were unschedulable, 2 "
        "Insufficient nvidia.com/gpu",
        f"  at {PLACE}",
        "  -> Does NVIDIA's device plugin run (MicroK8s: microk8s enable gpu)? Or ask for fewer "
        "GPUs. To try the layout without GPUs: `kuberay: {simulated_gpus: true}`.",
    ]

    assert code == 3


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2 Insufficient cpu. preemption: not helpful", "kuberay.wait_for_machines"),
        ("1 node(s) are on the moon.", "kubectl describe nodes"),
    ],
)
def test_the_hint_for_an_unplaced_pod_follows_the_schedulers_message(text: str, hint: str) -> None:
    assert hint in (only(unplaced(f"0/2 nodes are available: {text}")).hint or "")


def test_machines_that_come_by_themselves_are_waited_for() -> None:
    text = "0/1 nodes are available: 1 Insufficient cpu."
    assert [only(unplaced(text), wait_for_machines=wait).tolerates for wait in (0.0, 600.0)] == [
        SOON,
        600.0,
    ]
    claim = only(
        unplaced('0/1 nodes are available: persistentvolumeclaim "data" not found.'),
        wait_for_machines=600.0,
    )
    assert (claim.message, claim.tolerates) == ("cannot start: there is no claim data", SOON)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
            "restricted: true",
        ),
        (
            'error looking up service account t/a: serviceaccount "a" not found',
            "kuberay.service_account",
        ),
        ("the moon is full", ""),
    ],
)
def test_a_rejected_pod_is_reported_in_the_api_servers_words(text: str, hint: str) -> None:
    found = explain_admission(f'pods "x" is forbidden: {text}', what="a worker")
    assert (found.message, found.summary, found.error.exit_code) == (
        f"a worker was rejected: {text}",
        text,
        3,
    )
    assert hint in (found.hint or "")


@pytest.mark.parametrize(
    "status",
    [
        waiting("CreateContainerConfigError", 'secret "lab" not found'),
        waiting(
            "CrashLoopBackOff",
            restarts=1,
            last=ended("StartError", 128, message='secret "lab" not found'),
        ),
    ],
)
def test_a_container_that_cannot_start_reports_its_missing_secret(status: Object) -> None:
    lines, code = error(pod(WORKER, phase="Running", containers=(status,)))
    assert (lines[0], code) == ('gpu-x7k2p cannot start: secret "lab" not found', 3)


@pytest.mark.parametrize("reason", ["FailedMount", "FailedCreatePodSandBox"])
def test_a_pod_that_cannot_start_reports_its_kubelets_latest_event(reason: str) -> None:
    waits = pod(WORKER)
    failed = event(waits, reason, 'no runtime for "nvidia" is configured', when=STARTED)
    lines, code = error(waits, events=[failed])
    assert (lines[:2], code) == (
        ['gpu-x7k2p cannot start: no runtime for "nvidia" is configured', AT],
        3,
    )
    assert (
        causes(waits, events=[failed, event(waits, "Pulling", "Pulling image", kind="Normal")])
        == ()
    )


def test_a_single_restart_or_an_event_of_an_earlier_pod_is_no_cause() -> None:
    earlier = pod(WORKER)
    earlier["metadata"]["uid"] = "uid-of-another"
    assert causes(pod(WORKER), events=[event(earlier, "FailedMount", "no such volume")]) == ()
    once = running(restarts=1, last=ended("Error", 1))
    assert causes(pod(WORKER, phase="Running", containers=(once,))) == ()


def test_a_crash_is_shown_with_the_end_of_the_log_of_the_run_that_ended() -> None:
    status = waiting("CrashLoopBackOff", restarts=2, last=ended("Error", 1))
    assert error(pod(WORKER, phase="Running", containers=(status,))) == (
        [
            (
                "gpu-x7k2p ended while it was starting (exit code 1); the end of its log:\n    "
                "started\n    no such thing"
            ),
            AT,
            "  -> Check whether Ray works in the image: trainyard image.lint",
        ],
        6,
    )

    message = stopped(ended("Error", 1, message="Traceback\nImportError: no ray\n"))
    lines, _ = error(pod(WORKER, phase="Failed", containers=(message,)))
    assert lines[0].endswith("; the end of its log:\n    Traceback\n    ImportError: no ray")


def test_a_worker_that_ended_with_the_head_before_this_one_is_no_cause() -> None:
    crashed = waiting("CrashLoopBackOff", restarts=3, last=ended("Error", 1, started=STARTED))
    worker = pod(WORKER, phase="Running", containers=(crashed,))
    assert causes(head(containers=(running("ray-head", since=LATER, ready=True),)), worker) == ()
    assert len(causes(head(), worker)) == 1


@pytest.mark.parametrize("leaving", [False, True])
def test_a_host_that_is_not_ready_is_the_cause_for_a_terminating_pod_too(leaving: bool) -> None:
    lost = pod(WORKER, phase="Running", leaving=leaving)
    silent = {"kube-2": condition("Ready", "Unknown", message="Kubelet stopped posting.")}
    lines, code = error(lost, hosts=silent)
    assert lines == [
        "gpu-x7k2p is on the Kubernetes node kube-2, which Kubernetes calls not ready",
        f"{AT}: Kubelet stopped posting.",
        "  -> Details: kubectl describe node kube-2. Start that machine or its kubelet again. Or "
        "remove it (kubectl delete node kube-2), and its Ray nodes are replaced elsewhere.",
    ]
    assert code == 6
    assert causes(lost, hosts=READY) == ()
    assert only(lost, hosts={"kube-1": READY["kube-1"]}).raw == 'nodes "kube-2" not found'


def test_a_lost_host_shows_by_an_unready_pod_with_ready_containers() -> None:
    conditions = (condition("Ready", "False"), condition("ContainersReady", "True"))
    lost = pod(WORKER, phase="Running", conditions=conditions, containers=(running(ready=True),))
    assert only(lost).summary == "Kubernetes calls its node kube-2 not ready"
    starts = (condition("Ready", "False"), condition("ContainersReady", "False"))
    assert causes(pod(WORKER, phase="Running", conditions=starts, containers=(running(),))) == ()


def test_a_worker_that_cannot_reach_a_head_is_a_cause_if_the_head_is_ready() -> None:
    waits = pod(WORKER, init=(running("wait-gcs-ready"),))
    lines, _ = error(head(), waits)
    assert lines[0] == "gpu-x7k2p cannot reach the head, which is ready"
    assert causes(head(ready=False), waits) == ()


@pytest.mark.parametrize(
    ("cluster", "pods", "names"),
    [
        (ray_cluster(group("gpu", 1)), (), "head, gpu"),
        (ray_cluster(group("gpu", 2)), (head(),), "gpu"),
    ],
)
def test_an_operator_that_does_nothing_is_a_cause(
    cluster: Object, pods: tuple[Object, ...], names: str
) -> None:
    found = only(*pods, owner=cluster)
    message = f"the KubeRay operator makes no pods for {names}"
    assert (found.message, found.tolerates, found.error.exit_code) == (message, MINUTE, 3)


def test_an_unplaced_pod_beyond_its_groups_minimum_is_no_cause() -> None:
    cluster = ray_cluster(group("gpu", 1, 5))
    text = "0/1 nodes are available: 1 Insufficient cpu."
    assert (
        causes(head(), unplaced(text), pod("lab-gpu-worker-abc12", ready=True), owner=cluster) == ()
    )


def test_a_current_warning_about_the_cluster_says_why_there_is_no_head() -> None:
    cluster = ray_cluster(group("gpu", 1))
    text = "The RayCluster spec is invalid team/lab: worker group gpu has an invalid minReplicas"
    found = only(owner=cluster, events=[event(cluster, "InvalidRayClusterSpec", text)])
    assert found.message == f"what the cluster needs was rejected: {text}"
    cluster["metadata"]["managedFields"] = [
        {"manager": "trainyard", "time": "2026-01-02T04:00:00Z"}
    ]
    assert only(
        owner=cluster, events=[event(cluster, "InvalidRayClusterSpec", text)]
    ).summary.startswith("waits for")


def test_pods_that_fail_and_are_replaced_are_a_cause_the_second_time() -> None:
    cluster = ray_cluster()
    death = event(
        cluster,
        "DeletedHeadPod",
        "Deleted head Pod team/lab-head; Pod status: Failed; Pod restart policy: Never; Ray "
        "container terminated "
        "status: &ContainerStateTerminated{ExitCode:1,Signal:0,Reason:Error,Message:ImportError: "
        "no ray,StartedAt:1,}",
        kind="Normal",
    )

    assert causes(head(), owner=cluster, events=[death]) == ()
    lines, _ = error(head(), owner=cluster, events=[death, death])
    assert lines[0] == "the head ended 2 times, and KubeRay replaces it"
    assert "ExitCode:1" in lines[1]
    cluster["metadata"]["managedFields"] = [
        {"manager": "trainyard", "time": "2026-01-02T04:00:00Z"}
    ]
    assert causes(head(), owner=cluster, events=[death, death]) == ()


def test_the_heads_cause_comes_before_those_of_its_workers() -> None:
    broken = head(
        ready=False,
        containers=(waiting("CrashLoopBackOff", name="ray-head", last=ended("Error", 1)),),
    )
    assert [cause.nodes for cause in causes(broken, pulling("x: not found"))] == [
        ("head",),
        ("gpu-x7k2p",),
    ]


def test_a_deployment_whose_pods_may_not_be_made_says_why() -> None:
    text = (
        'pods "operator-1" is forbidden: exceeded quota: small, requested: pods=1, used: '
        "pods=2, limited: pods=2"
    )
    deployment = {"status": {"conditions": [condition("ReplicaFailure", "True", message=text)]}}
    (found,) = diagnosis.of_deployment(replace(snapshot(), owner=deployment))
    assert found.message.startswith("its pod was rejected: exceeded quota: small, ")


@pytest.mark.parametrize(("has_run", "seconds"), [(False, 60.0), (True, 300.0)])
def test_a_crashing_operator_has_one_minute_or_five_if_it_ran_before(
    has_run: bool, seconds: float
) -> None:
    crashed = head(
        ready=False,
        containers=(waiting("CrashLoopBackOff", name="operator", last=ended("Error", 1)),),
    )
    (found,) = diagnosis.of_deployment(snapshot(crashed), has_run=has_run)
    assert (found.tolerates, "Ray works in the image" in (found.hint or "")) == (seconds, False)
