"""Why a cluster on Kubernetes is not ready: one message, the real cause, with what to do; each table of rules once."""

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
    """Return a Kubernetes with these hosts, each with its condition Ready; None: they may not be seen."""
    nodes = [{"metadata": {"name": name}, "status": {"conditions": [ready]}} for name, ready in (hosts or {}).items()]
    kube = FakeKube(*[(NODE, node) for node in nodes], forbidden=["nodes"] if hosts is None else [])
    kube.texts[WORKER] = "started\n\n\x1b[31mno such thing\x1b[0m\n"
    return kube


def snapshot(
    *pods: Object, hosts: dict[str, Object] | None = None, events: Sequence[Object] = (), **more: Any
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


def test_an_image_that_does_not_exist_is_one_message_for_all_nodes() -> None:
    text = f'Back-off pulling image "{IMAGE}": ErrImagePull: rpc error: failed to resolve reference "x": x: not found'
    status = waiting("ImagePullBackOff", text, name="wait-gcs-ready")
    lines, code = error(pod(WORKER, init=(status,)), pod("lab-gpu-worker-abc12", host="kube-3", init=(status,)))
    assert lines == [
        f"gpu-x7k2p, gpu-abc12 cannot have the image {IMAGE}: registry 192.0.2.10:5000 does not hold that image",
        f'  at {PLACE}, on kube-2, kube-3: ErrImagePull: rpc error: failed to resolve reference "x": x: not found',
        "  -> Is its name right? An image of ours gets there by: invoke image.push",
    ]
    assert code == 6


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        (
            'Head "https://192.0.2.10:5000/v2/": http: server gave HTTP response to HTTPS client',
            "registry 192.0.2.10:5000 speaks plain HTTP, and the node expects TLS",
            "Tell containerd on every node how to speak to it: /etc/containerd/certs.d/192.0.2.10:5000/hosts.toml "
            "(MicroK8s: /var/snap/microk8s/current/args/certs.d/192.0.2.10:5000/hosts.toml), with "
            'server = "http://192.0.2.10:5000".',
        ),
        (
            "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
            "registry 192.0.2.10:5000 refuses the login",
            "Name the login in the cluster file: registry.username with password_env, or kuberay.pull_secrets.",
        ),
        ("write /var/lib/x: no space left on device", "the node's disk is full", "Make room on it: crictl rmi --prune"),
        ("something that nobody has seen", "registry 192.0.2.10:5000 or the node refuses", None),
    ],
)
def test_what_a_registry_says_gets_the_hint_for_a_host(text: str, why: str, hint: str | None) -> None:
    found = only(pulling(text))
    assert (found.message, found.hint, found.raw) == (f"cannot have the image {IMAGE}: {why}", hint, text)


def test_a_kubelet_that_only_says_back_off_has_said_more_in_its_events() -> None:
    waits = pulling(f'Back-off pulling image "{IMAGE}"')
    failed = event(waits, "Failed", f'Failed to pull image "{IMAGE}": rpc error: connection refused')
    found = only(waits, events=[failed, event(waits, "Failed", "Error: ErrImagePull")])
    assert found.summary == "cannot pull its image: registry 192.0.2.10:5000 does not answer"


def test_a_first_failed_pull_and_one_without_its_secret_may_be_chance() -> None:
    first = only(pulling("x: not found", reason="ErrImagePull"))
    again = pulling("x: 401 Unauthorized")
    without = event(again, "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets")
    assert (first.tolerates, only(again).tolerates, only(again, events=[without]).tolerates) == (SOON, 0, MINUTE)


def unplaced(text: str, name: str = WORKER) -> Object:
    refused = condition("PodScheduled", "False", reason="Unschedulable", message=text)
    return pod(name, host="", conditions=(refused,))


def test_a_pod_that_finds_no_room_says_what_each_host_lacks() -> None:
    text = (
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {nvidia.com/gpu: present}, "
        "1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/4 "
        "nodes are available: 4 No preemption victims found for incoming pod."
    )
    lines, code = error(unplaced(text))
    assert lines == [
        "gpu-x7k2p found no room for 2 CPUs and 4GiB of memory; of 4 nodes 1 is short of CPUs, "
        "1 is tainted nvidia.com/gpu: present, 1 is cordoned, 2 are short of nvidia.com/gpu",
        f"  at {PLACE}: 0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint "
        "{nvidia.com/gpu: present}, 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu",
        "  -> Ask for less in the cluster file, or add a machine (kuberay.wait_for_machines, if one comes by itself).",
    ]
    assert code == 3


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (
            "1 node(s) didn't match Pod's node affinity/selector.",
            "1 is without the labels that `node_selector` asks for",
        ),
        (
            "2 node(s) didn't match pod anti-affinity rules. preemption: not helpful",
            "2 are taken by another node of this cluster (`spread: required`)",
        ),
        (
            "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, 1 Too many pods.",
            "1 is not ready, 1 is full: no room for another pod",
        ),
        ("2 node(s) had untolerated taint {team: red}.", "2 are tainted team: red"),
        ("1 node(s) are on the moon.", "1: node(s) are on the moon"),
    ],
)
def test_the_schedulers_words_become_ours(text: str, hosts: str) -> None:
    found = only(unplaced(f"0/2 nodes are available: {text}"))
    assert found.message == f"found no room for 2 CPUs and 4GiB of memory; of 2 nodes {hosts}"


def test_a_claim_without_a_volume_is_no_lack_of_room() -> None:
    found = only(unplaced("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."))
    assert found.message == "cannot start: no volume was found for its claim yet"


def test_machines_that_come_by_themselves_are_waited_for() -> None:
    text = "0/1 nodes are available: 1 Insufficient cpu."
    assert [only(unplaced(text), wait_for_machines=wait).tolerates for wait in (0.0, 600.0)] == [SOON, 600.0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            'pods "x" is forbidden: exceeded quota: small, requested: limits.cpu=2,requests.memory=4Gi, used: '
            "limits.cpu=3,requests.memory=2Gi, limited: limits.cpu=4,requests.memory=5Gi",
            "may not be made: the namespace's quota small has no room for it: limits.cpu: 2 wanted, 3 of 4 used; "
            "requests.memory: 4Gi wanted, 2Gi of 5Gi used",
        ),
        (
            'pods "x" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, '
            "maximum memory usage per Container is 1Gi, but limit is 4Gi]",
            "may not be made: a LimitRange of the namespace stands against it: maximum cpu usage per "
            "Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 4Gi",
        ),
        (
            'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
            "may not be made: the namespace's Pod Security Standard restricted stands against it: "
            "allowPrivilegeEscalation != false",
        ),
        (
            'pods "x" is forbidden: error looking up service account team/trainer: serviceaccount "trainer" not found',
            "may not be made: there is no service account trainer",
        ),
        (
            'admission webhook "policy.team" denied the request: images must be signed',
            "may not be made: the rule policy.team of this Kubernetes says: images must be signed",
        ),
        ("the moon is full", "could not be made: the moon is full"),
    ],
)
def test_what_the_api_server_refuses_is_said_as_it_wrote_it(text: str, why: str) -> None:
    assert explain_admission(text, what="a worker").message == f"a worker {why}"


def test_what_kuberay_could_not_make_stands_in_its_condition() -> None:
    text = 'FailedCreateWorkerPod\npods "x" is forbidden: no PriorityClass with name high was found'
    refused = condition("ReplicaFailure", "True", reason="FailedCreateWorkerPod", message=text)
    found = only(head(), owner=ray_cluster(group("gpu", 1), conditions=(refused,)))
    assert found.message == "a worker may not be made: there is no priority class high"


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (waiting("CreateContainerConfigError", 'secret "lab" not found'), "there is no Secret lab", 3),
        (waiting("CreateContainerConfigError", "it is late"), "it is late", 3),
        (
            waiting(
                "CrashLoopBackOff",
                restarts=1,
                last=ended("StartError", 128, message='exec: "/bin/bash": stat /bin/bash: no such file or directory'),
            ),
            f"there is no /bin/bash in the image {IMAGE}",
            6,
        ),
        (waiting("RunContainerError", "no runc"), f"the runtime cannot run the image {IMAGE}", 6),
    ],
)
def test_a_container_that_cannot_start_says_what_it_lacks(status: Object, message: str, code: int) -> None:
    lines, exit_code = error(pod(WORKER, phase="Running", containers=(status,)))
    assert (lines[0], exit_code) == (f"gpu-x7k2p cannot start: {message}", code)


@pytest.mark.parametrize(
    ("reason", "text", "message", "code"),
    [
        ("FailedMount", 'MountVolume failed: configmap "a" not found', "there is no ConfigMap a to be mounted", 3),
        (
            "FailedMount",
            "hostPath type check failed: /data is not a directory",
            "/data of the Kubernetes node is not a directory",
            3,
        ),
        ("FailedAttachVolume", "no disk", "a volume cannot be mounted", 6),
        (
            "FailedCreatePodSandBox",
            'no runtime for "nvidia" is configured',
            "containerd of the Kubernetes node kube-2 has no runtime nvidia",
            3,
        ),
        ("FailedCreatePodSandBox", "cni says no", "the Kubernetes node kube-2 cannot prepare its network", 6),
    ],
)
def test_what_a_kubelet_lacks_stands_in_its_events(reason: str, text: str, message: str, code: int) -> None:
    waits = pod(WORKER)
    failed = event(waits, reason, text, when=STARTED)
    lines, exit_code = error(waits, events=[failed])
    assert (lines[:2], exit_code) == ([f"gpu-x7k2p cannot start: {message}", f"{AT}: {text}"], code)
    assert causes(waits, events=[failed, event(waits, "Pulling", "Pulling image", kind="Normal")]) == ()


def test_what_passes_or_is_about_an_earlier_pod_is_no_cause() -> None:
    text = "failed to sync secret cache: timed out waiting for the condition"
    waits = pod(WORKER, containers=(waiting("CreateContainerConfigError", text),))
    assert causes(waits, events=[event(waits, "FailedMount", text)]) == ()
    earlier = pod(WORKER)
    earlier["metadata"]["uid"] = "uid-of-another"
    assert causes(pod(WORKER), events=[event(earlier, "FailedMount", "no such volume")]) == ()
    once = running(restarts=1, last=ended("Error", 1))
    assert causes(pod(WORKER, phase="Running", containers=(once,))) == ()


def test_a_container_that_was_killed_for_its_memory_says_how_much_it_had() -> None:
    status = waiting("CrashLoopBackOff", restarts=1, last=ended("OOMKilled", 137))
    lines, _ = error(pod(WORKER, phase="Running", containers=(status,)))
    assert lines[0] == "gpu-x7k2p was killed: it used more than its memory of 4GiB"


def test_a_crash_is_shown_with_the_end_of_the_log_of_the_run_that_ended() -> None:
    status = waiting("CrashLoopBackOff", restarts=2, last=ended("Error", 1))
    assert error(pod(WORKER, phase="Running", containers=(status,))) == (
        [
            "gpu-x7k2p ended while it was starting (exit code 1); the end of its log:\n    started\n    no such thing",
            AT,
            "  -> Is Ray in the image, and does it work there? `invoke image.lint` says.",
        ],
        6,
    )
    message = stopped(ended("Error", 1, message="Traceback\nImportError: no ray\n"))
    lines, _ = error(pod(WORKER, phase="Failed", containers=(message,)))
    assert lines[0].endswith("; the end of its log:\n    Traceback\n    ImportError: no ray")


def test_a_container_that_does_not_answer_was_ended_by_kubernetes() -> None:
    crashes = pod(WORKER, phase="Running", containers=(running(restarts=2, last=ended("Error", 137)),))
    killed = event(crashes, "Killing", "Container ray-worker failed liveness probe, will be restarted")
    found = only(crashes, events=[killed])
    assert found.message.startswith("was ended by Kubernetes, because it did not answer (liveness probe); ")


def test_a_worker_that_ended_with_the_head_before_this_one_is_no_cause() -> None:
    crashed = waiting("CrashLoopBackOff", restarts=3, last=ended("Error", 1, started=STARTED))
    worker = pod(WORKER, phase="Running", containers=(crashed,))
    assert causes(head(containers=(running("ray-head", since=LATER, ready=True),)), worker) == ()
    assert len(causes(head(), worker)) == 1


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Evicted", "was evicted from the Kubernetes node kube-2, which ran out of something"),
        ("OutOfcpu", "was given to the Kubernetes node kube-2, which does not take it (OutOfcpu)"),
        ("Terminated", "was ended by the Kubernetes node kube-2 (Terminated)"),
    ],
)
def test_a_pod_that_its_host_ended_is_said_with_why(reason: str, message: str) -> None:
    lines, _ = error(pod(WORKER, phase="Failed", reason=reason, message="The node was low on resource: memory."))
    assert lines[:2] == [f"gpu-x7k2p {message}", f"{AT}: The node was low on resource: memory."]


@pytest.mark.parametrize("leaving", [False, True])
def test_a_host_that_is_not_ready_is_the_cause_also_for_a_pod_that_is_being_removed(leaving: bool) -> None:
    lost = pod(WORKER, phase="Running", leaving=leaving)
    silent = {"kube-2": condition("Ready", "Unknown", message="Kubelet stopped posting.")}
    lines, code = error(lost, hosts=silent)
    assert lines == [
        "gpu-x7k2p is on the Kubernetes node kube-2, which Kubernetes calls not ready",
        f"{AT}: Kubelet stopped posting.",
        "  -> More about it: kubectl describe node kube-2. Start that machine or its kubelet again; or give it up "
        "(kubectl delete node kube-2), and its Ray nodes are made anew elsewhere.",
    ]
    assert code == 6
    assert causes(lost, hosts=READY) == ()
    assert only(lost, hosts={"kube-1": READY["kube-1"]}).message.endswith("kube-2, which is gone")


def test_nothing_is_held_against_others_while_a_host_may_come_back() -> None:
    silent = {"kube-2": condition("Ready", "Unknown")}
    text = "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."
    found = causes(pod(WORKER, phase="Running"), unplaced(text, "lab-gpu-worker-q1"), hosts=silent)
    assert [cause.tolerates for cause in found] == [MINUTE, MINUTE]


def test_who_may_not_see_hosts_knows_it_by_a_pod_that_is_not_ready_with_containers_that_are() -> None:
    conditions = (condition("Ready", "False"), condition("ContainersReady", "True"))
    lost = pod(WORKER, phase="Running", conditions=conditions, containers=(running(ready=True),))
    assert only(lost).summary == "Kubernetes calls its node kube-2 not ready"
    starts = (condition("Ready", "False"), condition("ContainersReady", "False"))
    assert causes(pod(WORKER, phase="Running", conditions=starts, containers=(running(),))) == ()


def test_a_worker_that_cannot_reach_a_ready_head_says_what_it_gets() -> None:
    waits = pod(WORKER, init=(running("wait-gcs-ready"),))
    lines, _ = error(head(), waits)
    assert lines[0] == "gpu-x7k2p cannot reach the head, which is ready; when asked from there:\n    (it is empty)"
    assert causes(head(ready=False), waits) == ()


@pytest.mark.parametrize(
    ("cluster", "pods", "message"),
    [
        (
            ray_cluster(group("gpu", 1), observed=None),
            (),
            "no KubeRay operator watches the namespace team, so that nothing makes the cluster",
        ),
        (
            ray_cluster(group("gpu", 1), generation=2, observed=1),
            (),
            "the KubeRay operator does not answer: it has not looked at a change",
        ),
        (ray_cluster(group("gpu", 2)), (head(),), "the KubeRay operator makes no pod for 2 nodes of gpu"),
    ],
)
def test_an_operator_that_does_nothing_is_a_cause(cluster: Object, pods: tuple[Object, ...], message: str) -> None:
    found = only(*pods, owner=cluster)
    assert (found.message, found.tolerates, found.error.exit_code) == (message, MINUTE, 3)


def test_a_change_that_kuberay_does_not_write_down_was_seen_if_its_counts_are_right() -> None:
    counts = {"desiredWorkerReplicas": 2, "minWorkerReplicas": 1, "maxWorkerReplicas": 5}
    cluster = ray_cluster(group("gpu", 1, 5, replicas=2), generation=3, observed=2, counts=counts)
    workers = [pod(WORKER, ready=True), pod("lab-gpu-worker-abc12", ready=True)]
    assert causes(head(), *workers, owner=cluster) == ()


def test_what_kuberay_does_not_take_is_said_in_its_words_if_it_is_about_this_change() -> None:
    cluster = ray_cluster(group("gpu", 1), generation=2, observed=1)
    text = "The RayCluster spec is invalid team/lab: worker group gpu has an invalid minReplicas"
    found, _ = causes(owner=cluster, events=[event(cluster, "InvalidRayClusterSpec", text)])
    assert found.message == "KubeRay does not take the cluster: worker group gpu has an invalid minReplicas"
    cluster["metadata"]["managedFields"] = [{"manager": "trainyard", "time": "2026-01-02T04:00:00Z"}]
    assert len(causes(owner=cluster, events=[event(cluster, "InvalidRayClusterSpec", text)])) == 1


def test_pods_that_fail_and_are_replaced_again_and_again_are_a_cause_the_second_time() -> None:
    cluster = ray_cluster()
    death = event(
        cluster,
        "DeletedHeadPod",
        "Deleted head Pod team/lab-head; Pod status: Failed; Pod restart policy: Never; Ray container terminated "
        "status: &ContainerStateTerminated{ExitCode:1,Signal:0,Reason:Error,Message:ImportError: no ray,StartedAt:1,}",
        kind="Normal",
    )
    assert causes(head(), owner=cluster, events=[death]) == ()
    lines, _ = error(head(), owner=cluster, events=[death, death])
    assert lines[0] == (
        "head ended while it was starting (exit code 1), 2 times, and KubeRay makes it anew; the end of its log:\n"
        "    ImportError: no ray"
    )
    cluster["metadata"]["managedFields"] = [{"manager": "trainyard", "time": "2026-01-02T04:00:00Z"}]
    assert causes(head(), owner=cluster, events=[death, death]) == ()


def test_the_heads_cause_comes_before_those_of_its_workers() -> None:
    broken = head(ready=False, containers=(waiting("CrashLoopBackOff", name="ray-head", last=ended("Error", 1)),))
    assert [cause.nodes for cause in causes(pulling("x: not found"), broken)] == [("head",), ("gpu-x7k2p",)]


def test_a_deployment_whose_pods_may_not_be_made_says_why() -> None:
    text = 'pods "operator-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'
    deployment = {"status": {"conditions": [condition("ReplicaFailure", "True", message=text)]}}
    (found,) = diagnosis.of_deployment(replace(snapshot(), owner=deployment))
    assert found.message.startswith("its pod may not be made: the namespace's quota small has no room for it: pods: 1 ")
