"""Why a cluster on Kubernetes is not ready: one message, the real cause, with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

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
from trainyard.backends.kuberay.causes import cause
from trainyard.backends.kuberay.causes.cause_lost import DOUBTED
from trainyard.backends.kuberay.causes.facts import Cause, Facts, Host

PLACE = "cluster lab, namespace team of context bed"
WORKER = "lab-gpu-worker-x7k2p"
AT = f"  at {PLACE}, on kube-2"


def causes(*pods: Object, events: Sequence[Object] = (), **more: Any) -> tuple[Cause, ...]:
    facts = Facts(pods=pods, events=tuple(events), **{"words": _words, **more})
    return cause.merged(cause.of_cluster(facts))


def only(*pods: Object, **more: Any) -> tuple[list[str], int]:
    """Return the lines and the exit code of the only cause."""
    (found,) = causes(*pods, **more)
    error = cause.error(found, PLACE)
    return error.lines(), error.exit_code


def pulling(said: str, *, reason: str = "ImagePullBackOff") -> Object:
    return pod(WORKER, init=(waiting(reason, said, name="wait-gcs-ready"),))


def test_an_image_that_is_not_there_is_one_message_for_all_nodes() -> None:
    text = (
        f'Back-off pulling image "{IMAGE}": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack '
        'image "x": failed to resolve reference "x": x: not found'
    )
    status = waiting("ImagePullBackOff", text, name="wait-gcs-ready")
    lines, code = only(pod(WORKER, init=(status,)), pod("lab-gpu-worker-abc12", host="kube-3", init=(status,)))
    assert lines == [
        f"gpu-x7k2p, gpu-abc12 cannot have the image {IMAGE}: registry 192.0.2.10:5000 has no such image",
        f"  at {PLACE}, on kube-2, kube-3: ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack "
        'image "x": failed to resolve reference "x": x: not found',
        "  -> Is its name right? One of ours gets there by: invoke image.push",
    ]
    assert code == 6


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            'Head "https://192.0.2.10:5000/v2/": http: server gave HTTP response to HTTPS client',
            "registry 192.0.2.10:5000 speaks plain HTTP, and the node expects TLS",
        ),
        (
            "unexpected status: 400 Client sent an HTTP request to an HTTPS server",
            "registry 192.0.2.10:5000 speaks TLS, and the node expects plain HTTP",
        ),
        (
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "the node does not trust the certificate of registry 192.0.2.10:5000",
        ),
        (
            "tls: failed to verify certificate: x509: certificate is valid for 127.0.0.1, not 192.0.2.10",
            "the certificate of registry 192.0.2.10:5000 is for another address",
        ),
        ("dial tcp 192.0.2.10:5000: connect: connection refused", "registry 192.0.2.10:5000 does not answer the node"),
        ("dial tcp: lookup reg.lab: no such host", "registry 192.0.2.10:5000 does not answer the node"),
        (
            "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
            "registry 192.0.2.10:5000 refuses the login, or asks for one",
        ),
        (
            "pull access denied, repository does not exist or may require authorization: insufficient_scope",
            "registry 192.0.2.10:5000 has no such image, or not for this login",
        ),
        ("no match for platform in manifest: not found", "the image is for another kind of processor than the node's"),
        ("write /var/lib/containerd/x: no space left on device", "the node's disk is full"),
        ("something that nobody has seen", "registry 192.0.2.10:5000 or the node refuses"),
    ],
)
def test_a_pull_fails_for_one_reason(said: str, why: str) -> None:
    (found,) = causes(pulling(said))
    assert found.what == f"cannot have the image {IMAGE}: {why}"
    assert found.said == said


def test_plain_http_is_answered_with_where_containerd_is_told() -> None:
    lines, _ = only(pulling("http: server gave HTTP response to HTTPS client"))
    assert lines[-1] == (
        "  -> Tell containerd on every node how to speak to it: /etc/containerd/certs.d/192.0.2.10:5000/hosts.toml "
        "(MicroK8s: /var/snap/microk8s/current/args/certs.d/192.0.2.10:5000/hosts.toml), with "
        'server = "http://192.0.2.10:5000".'
    )


def test_a_kubelet_that_only_says_back_off_is_asked_by_its_events() -> None:
    one = pulling(f'Back-off pulling image "{IMAGE}"')
    failed = event(one, "Failed", f'Failed to pull image "{IMAGE}": rpc error: connection refused')
    (found,) = causes(one, events=[failed, event(one, "Failed", "Error: ErrImagePull")])
    assert found.brief == "cannot pull its image: registry 192.0.2.10:5000 does not answer the node"


def test_a_first_failed_pull_may_be_chance() -> None:
    patience = [causes(pulling("x: not found", reason=one))[0].patience for one in ("ErrImagePull", "ImagePullBackOff")]
    assert patience == [6.0, 0.0]


def test_an_image_name_that_is_none_is_said() -> None:
    lines, _ = only(pulling("couldn't parse image name", reason="InvalidImageName"))
    assert lines[0] == f"gpu-x7k2p cannot have the image {IMAGE}: that is no image reference"


def unplaced(said: str) -> Object:
    refused = condition("PodScheduled", "False", reason="Unschedulable", message=said)
    return pod(WORKER, host="", conditions=(refused,))


def test_a_pod_that_finds_no_room_says_what_each_machine_lacks() -> None:
    said = (
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {nvidia.com/gpu: present}, "
        "1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/4 "
        "nodes are available: 4 No preemption victims found for incoming pod."
    )
    lines, code = only(unplaced(said))
    assert lines == [
        "gpu-x7k2p found no room for 2 CPUs and 4GiB of memory; of 4 nodes 1 is short of CPUs, "
        "1 is tainted nvidia.com/gpu: present, 1 is cordoned, 2 are short of nvidia.com/gpu",
        f"  at {PLACE}: 0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint "
        "{nvidia.com/gpu: present}, 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu",
        "  -> Ask for less in the cluster file, or add a machine (kuberay.wait_for_machines, if one comes by itself).",
    ]
    assert code == 3


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
            "of 1 node 1 is without the labels that `node_selector` asks for",
        ),
        (
            "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. preemption: not helpful",
            "of 2 nodes 2 are taken by another node of this cluster (`spread: required`)",
        ),
        (
            "0/2 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, "
            "1 Too many pods.",
            "of 2 nodes 1 is not ready, 1 is full: no room for another pod",
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {team: red}.",
            "of 2 nodes 2 are tainted team: red",
        ),
        ("0/1 nodes are available: 1 node(s) are on the moon.", "of 1 node 1: node(s) are on the moon"),
    ],
)
def test_the_schedulers_words_become_ours(said: str, what: str) -> None:
    (found,) = causes(unplaced(said))
    assert found.what == f"found no room for 2 CPUs and 4GiB of memory; {what}"


def test_a_claim_without_a_volume_is_no_lack_of_room() -> None:
    (found,) = causes(unplaced("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."))
    assert found.what == "cannot start: no volume was found for its claim yet"
    (found,) = causes(unplaced('0/1 nodes are available: persistentvolumeclaim "data" not found.'))
    assert found.what == "cannot start: there is no claim data"


def test_machines_that_come_by_themselves_are_waited_for() -> None:
    said = "0/1 nodes are available: 1 Insufficient cpu."
    patience = [causes(unplaced(said), wait_for_machines=wait)[0].patience for wait in (0.0, 600.0)]
    assert patience == [5.0, 600.0]


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (
            'FailedCreateWorkerPod\npods "lab-gpu-worker-x" is forbidden: exceeded quota: small, requested: '
            "limits.cpu=2,requests.memory=4Gi, used: limits.cpu=3,requests.memory=2Gi, limited: "
            "limits.cpu=4,requests.memory=5Gi",
            "a worker may not be made: the namespace's quota small has no room for it: limits.cpu: 2 wanted, 3 of 4 "
            "used; requests.memory: 4Gi wanted, 2Gi of 5Gi used",
        ),
        (
            'FailedCreateWorkerPod\npods "x" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, '
            "maximum memory usage per Container is 1Gi, but limit is 4Gi]",
            "a worker may not be made: a LimitRange of the namespace stands against it: maximum cpu usage per "
            "Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 4Gi",
        ),
        (
            'FailedCreateWorkerPod\npods "x" is forbidden: violates PodSecurity "restricted:latest": '
            'allowPrivilegeEscalation != false (container "ray-worker" must set it)',
            "a worker may not be made: the namespace's Pod Security Standard restricted stands against it: "
            'allowPrivilegeEscalation != false (container "ray-worker" must set it)',
        ),
        (
            'FailedCreateWorkerPod\npods "x" is forbidden: error looking up service account team/trainer: '
            'serviceaccount "trainer" not found',
            "a worker may not be made: there is no service account trainer",
        ),
        (
            'FailedCreateWorkerPod\npods "x" is forbidden: no PriorityClass with name high was found',
            "a worker may not be made: there is no priority class high",
        ),
        (
            'FailedCreateWorkerPod\npods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            "a worker may not be made: there is no runtime class nvidia",
        ),
        (
            'FailedCreateWorkerPod\nadmission webhook "policy.team" denied the request: images must be signed',
            "a worker may not be made: the rule policy.team of this Kubernetes says: images must be signed",
        ),
        ("FailedCreateWorkerPod\nthe moon is full", "a worker could not be made: the moon is full"),
    ],
)
def test_what_the_api_refuses_is_said_as_kuberay_wrote_it_down(said: str, what: str) -> None:
    refused = condition("ReplicaFailure", "True", reason="FailedCreateWorkerPod", message=said)
    (found,) = causes(owner=ray_cluster(group("gpu", 1), conditions=(refused,)), head=head())
    assert found.what == what


def test_a_missing_secret_is_named() -> None:
    one = pod(WORKER, containers=(waiting("CreateContainerConfigError", 'secret "lab" not found'),))
    assert only(one) == (
        [
            "gpu-x7k2p cannot start: there is no Secret lab",
            f'{AT}: secret "lab" not found',
            "  -> Make it, or correct the cluster file; the token's is made by cluster.up.",
        ],
        3,
    )


def test_a_kubelet_that_has_not_read_a_secret_yet_is_no_cause() -> None:
    said = "failed to sync secret cache: timed out waiting for the condition"
    one = pod(WORKER, containers=(waiting("CreateContainerConfigError", said),))
    assert causes(one, events=[event(one, "FailedMount", said)]) == ()


def test_a_node_without_enough_memory_is_said_with_how_much_it_had() -> None:
    last = ended("OOMKilled", 137)
    one = pod(WORKER, phase="Running", containers=(waiting("CrashLoopBackOff", restarts=2, last=last),))
    lines, code = only(one)
    assert (lines[0], code) == ("gpu-x7k2p was killed: it used more than its memory of 4GiB", 6)


def test_a_node_that_recovered_from_that_is_no_cause() -> None:
    last = ended("OOMKilled", 137)
    assert causes(pod(WORKER, ready=True, containers=(running(ready=True, restarts=1, last=last),))) == ()


def test_a_crash_is_shown_with_the_last_words_of_the_run_that_ended() -> None:
    last = ended("Error", 1)
    one = pod(WORKER, phase="Running", containers=(waiting("CrashLoopBackOff", restarts=2, last=last),))
    assert only(one) == (
        [
            "gpu-x7k2p ended while it was starting (exit code 1); its last words:\n"
            "    ray-worker, former run\n    no such thing",
            AT,
            "  -> Is Ray in the image, and does it work there? `invoke image.lint` says.",
        ],
        6,
    )


def test_a_node_that_ended_once_and_is_started_again_is_no_cause() -> None:
    assert causes(pod(WORKER, phase="Running", containers=(running(restarts=1, last=ended("Error", 1)),))) == ()


def test_a_worker_that_ended_with_the_head_before_this_one_is_no_cause() -> None:
    new_head = head(containers=(running("ray-head", since=LATER, ready=True),))
    crashed = waiting("CrashLoopBackOff", restarts=3, last=ended("Error", 1, started=STARTED))
    one = pod(WORKER, phase="Running", containers=(crashed,))
    assert causes(one, head=new_head) == ()
    assert len(causes(one, head=head())) == 1


def test_a_pod_that_failed_has_its_words_in_its_status() -> None:
    state = stopped(ended("Error", 1, message="Traceback\nImportError: no ray\n"))
    lines, _ = only(pod(WORKER, phase="Failed", containers=(state,)))
    assert lines[0] == (
        "gpu-x7k2p ended while it was starting (exit code 1); its last words:\n    Traceback\n    ImportError: no ray"
    )


def test_a_program_that_the_image_lacks_is_named() -> None:
    said = 'runc create failed: exec: "/bin/bash": stat /bin/bash: no such file or directory: unknown'
    last = ended("StartError", 128, message=said)
    one = pod(WORKER, phase="Running", containers=(waiting("CrashLoopBackOff", restarts=1, last=last),))
    lines, _ = only(one)
    assert lines[0] == f"gpu-x7k2p cannot start: there is no /bin/bash in the image {IMAGE}"
    assert lines[1] == f"{AT}: {said}"


def test_what_cannot_be_mounted_is_named() -> None:
    one = pod(WORKER)
    said = 'MountVolume.SetUp failed for volume "volume-0" : configmap "settings" not found'
    lines, code = only(one, events=[event(one, "FailedMount", said)])
    assert (lines[0], code) == ("gpu-x7k2p cannot start: there is no ConfigMap settings to be mounted", 3)


def test_a_mount_that_went_well_the_second_time_is_no_cause() -> None:
    one = pod(WORKER)
    failed = event(one, "FailedMount", "MountVolume.SetUp failed", when=STARTED)
    assert causes(one, events=[failed, event(one, "Pulling", "Pulling image", kind="Normal")]) == ()


def test_a_runtime_that_containerd_does_not_know_is_named_with_the_host() -> None:
    one = pod(WORKER)
    said = 'Failed to create pod sandbox: failed to get sandbox runtime: no runtime for "nvidia" is configured'
    lines, code = only(one, events=[event(one, "FailedCreatePodSandBox", said)])
    assert lines[0] == "gpu-x7k2p cannot start: containerd of the Kubernetes node kube-2 has no runtime nvidia"
    assert code == 3


def test_a_kubelet_that_pulled_without_the_secret_gets_time_to_pull_with_it() -> None:
    one = pod(WORKER, init=(waiting("ImagePullBackOff", "x: 401 Unauthorized", name="wait-gcs-ready"),))
    said = "Unable to retrieve some image pull secrets (lab.pull); attempting to pull the image may not succeed."
    assert [found.patience for found in causes(one)] == [0]
    one["spec"]["imagePullSecrets"] = [{"name": "lab.pull"}]
    assert [found.patience for found in causes(one)] == [25]
    assert [found.patience for found in causes(one, events=[event(one, "FailedToRetrieveImagePullSecret", said)])] == [
        45
    ]


def test_events_of_an_earlier_pod_of_the_same_name_are_never_blamed() -> None:
    earlier = pod(WORKER)
    earlier["metadata"]["uid"] = "uid-of-another"
    assert causes(pod(WORKER), events=[event(earlier, "FailedMount", "no such volume")]) == ()


def silent(*hosts: str, renewed: str | None = "02:03:00") -> dict[str, Host | None]:
    """Return Kubernetes nodes that Kubernetes takes for lost since 02:04:00; when their leases were renewed."""
    unknown = condition("Ready", "Unknown", message="Kubelet stopped posting.")
    unknown["lastTransitionTime"] = "2026-01-02T02:04:00Z"
    lease = {"spec": {"renewTime": f"2026-01-02T{renewed}.500000Z"}} if renewed else None
    return {host: Host({"status": {"conditions": [unknown]}}, lease) for host in hosts}


def test_a_machine_that_is_lost_is_the_cause_also_for_a_pod_that_is_being_removed() -> None:
    for leaving in (False, True):
        lines, code = only(pod(WORKER, phase="Running", leaving=leaving), nodes=lambda: silent("kube-2"))
        assert lines == [
            "gpu-x7k2p ran on the Kubernetes node kube-2, which does not answer any more",
            f"{AT}: Kubelet stopped posting.",
            "  -> Start that machine or its kubelet again; or give it up (kubectl delete node kube-2), and its Ray "
            "nodes are made anew elsewhere.",
        ]
        assert code == 6


@pytest.mark.parametrize(
    ("renewed", "seconds"), [("02:03:00", 10), ("02:03:44", 10), ("02:03:50", 60), ("02:04:01", 60), (None, 60)]
)
def test_a_control_plane_that_takes_a_host_for_lost_whose_kubelet_reports_gets_time_to_think_again(
    renewed: str | None, seconds: int
) -> None:
    lost = pod(WORKER, phase="Running")
    (found,) = causes(lost, nodes=lambda: silent("kube-2", renewed=renewed))
    assert (found.patience, found.about == DOUBTED) == (seconds, seconds == 60)
    # One that goes is no other cause's reason to wait.
    leaving = pod(WORKER, phase="Running", leaving=True)
    assert len(causes(leaving, nodes=lambda: silent("kube-2", renewed=renewed))) == (seconds == 10)


def test_leases_are_judged_by_the_clock_of_the_api_server_and_by_how_long_they_are_for() -> None:
    (now,) = silent("kube-2", renewed="02:09:00").values()
    assert now is not None and now.lease is not None
    lost = pod(WORKER, phase="Running")
    for spec, written, seconds in (
        ({}, "02:03:00", 10),
        ({}, "02:03:50", 60),
        ({"leaseDurationSeconds": 120}, "02:03:20", 60),
        ({"leaseDurationSeconds": 20}, "02:03:50", 10),
    ):
        # The host's clock goes wrong by minutes.
        lease = {
            "spec": {**now.lease["spec"], **spec},
            "metadata": {"managedFields": [{"time": f"2026-01-02T{written}Z"}]},
        }
        (found,) = causes(lost, nodes=lambda lease=lease: {"kube-2": Host(now.node, lease)})
        assert found.patience == seconds, (spec, written)


def test_nothing_is_held_against_a_host_that_kubernetes_takes_for_lost_by_mistake() -> None:
    now = silent("kube-2", "kube-3", renewed="02:04:00")
    found = [pod(WORKER, phase="Running"), pod("lab-gpu-worker-abc12", host="kube-3", phase="Running")]
    said = "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."
    unplaced = pod(
        "lab-gpu-worker-q1",
        host="",
        conditions=(condition("PodScheduled", "False", reason="Unschedulable", message=said),),
    )
    assert {one.patience for one in causes(*found, unplaced, nodes=lambda: now)} == {60}
    lines, code = only(found[0], nodes=lambda: now)
    assert lines[0] == (
        "gpu-x7k2p is on the Kubernetes node kube-2, which Kubernetes takes for lost, though its kubelet renews its "
        "lease"
    )
    assert code == 6


def test_a_machine_that_calls_itself_not_ready_is_not_said_to_be_silent() -> None:
    ready = condition("Ready", "False", message="container runtime is down")
    nodes: dict[str, Host | None] = {"kube-2": Host({"status": {"conditions": [ready]}})}
    lines, code = only(pod(WORKER, phase="Running"), nodes=lambda: nodes)
    assert lines == [
        "gpu-x7k2p is on the Kubernetes node kube-2, which is not ready",
        f"{AT}: container runtime is down",
        "  -> More about it: kubectl describe node kube-2",
    ]
    assert code == 6


def test_a_kubernetes_node_that_is_gone_is_told_from_one_that_nobody_may_see() -> None:
    lines, _ = only(pod(WORKER, phase="Running"), nodes=lambda: {"kube-2": None})
    assert lines[1] == f'{AT}: nodes "kube-2" not found'
    assert causes(pod(WORKER, phase="Running"), nodes=dict) == ()


FLIPPED = "2026-01-02T03:05:00Z"


def unready(*containers: Object, status: str = "False", leaving: bool = False) -> Object:
    """Return a pod that Kubernetes called unready at FLIPPED."""
    ready = {**condition("Ready", status), "lastTransitionTime": FLIPPED}
    found = containers or (running(since="2026-01-02T03:00:00Z"),)
    return pod(WORKER, phase="Running", conditions=(ready,), containers=found, leaving=leaving)


def test_who_may_not_see_nodes_is_told_of_a_lost_one_by_the_events_of_its_pods() -> None:
    one = unready()
    said = event(one, "NodeNotReady", "Node is not ready", when="2026-01-02T03:04:59Z")
    lines, code = only(one, events=[said])
    assert lines == [
        "gpu-x7k2p is on the Kubernetes node kube-2, which Kubernetes calls not ready",
        f"{AT}: Node is not ready",
        "  -> Whoever runs this Kubernetes sees why: kubectl describe node kube-2",
    ]
    assert code == 6
    (found,) = causes(one, events=[said])
    assert (found.patience, found.brief) == (60, "Kubernetes calls its node kube-2 not ready")


SINCE = "2026-01-02T03:06:00Z"


@pytest.mark.parametrize(
    ("one", "spoken"),
    [
        (unready(running(since=SINCE)), ()),
        (unready(waiting("CrashLoopBackOff", last=ended("Error", 1, started=SINCE))), ()),
        (unready(), ("BackOff",)),
        (unready(status="True", leaving=True), ()),
    ],
)
def test_a_host_whose_kubelet_has_spoken_since_is_not_lost(one: Object, spoken: tuple[str, ...]) -> None:
    said = event(one, "NodeNotReady", "Node is not ready", when=FLIPPED)
    later = [{**event(one, reason, "", when=SINCE), "source": {"component": "kubelet"}} for reason in spoken]
    assert DOUBTED not in {found.about for found in causes(one, events=[said, *later])}


def test_a_pod_that_is_unready_for_another_reason_now_is_not_on_a_lost_host() -> None:
    one = unready()
    assert causes(one, events=[event(one, "NodeNotReady", "Node is not ready", when="2026-01-02T03:04:00Z")]) == ()


def test_an_evicted_pod_is_said_with_why() -> None:
    one = pod(WORKER, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    lines, _ = only(one)
    assert lines[:2] == [
        "gpu-x7k2p was evicted from the Kubernetes node kube-2, which ran out of something",
        f"{AT}: The node was low on resource: memory.",
    ]


def test_a_worker_that_does_not_get_through_to_a_ready_head_says_what_it_sees() -> None:
    one = pod(WORKER, init=(running("wait-gcs-ready"),))
    found = causes(head(), one, head=head(), probe=lambda _: "    no address for lab-head-svc")
    assert cause.error(found[0], PLACE).lines()[0] == (
        "gpu-x7k2p cannot get through to the head, which is ready; seen from there:\n    no address for lab-head-svc"
    )
    assert causes(one, head=head(ready=False)) == ()


def test_nobody_who_makes_the_cluster_is_said() -> None:
    lines, code = only(owner=ray_cluster(group("gpu", 1), observed=None))
    assert (lines[0], code) == ("nobody makes the cluster: no KubeRay operator watches the namespace team", 3)


def test_an_operator_that_is_gone_is_told_from_one_that_never_was() -> None:
    (found,) = causes(owner=ray_cluster(group("gpu", 1), generation=2, observed=1))
    assert found.what == "the KubeRay operator does not answer: it has not looked at a change for 20 s"
    (found,) = causes(head(), owner=ray_cluster(group("gpu", 2)), head=head())
    assert found.what == "the KubeRay operator makes no pod for 2 nodes of gpu"


def test_a_change_that_kuberay_does_not_write_down_was_seen_if_its_counts_are_right() -> None:
    counts = {"desiredWorkerReplicas": 2, "minWorkerReplicas": 1, "maxWorkerReplicas": 5}
    cluster = ray_cluster(group("gpu", 1, 5, replicas=2), generation=3, observed=2, counts=counts)
    workers = [pod(WORKER, ready=True), pod("lab-gpu-worker-abc12", ready=True)]
    assert causes(head(), *workers, owner=cluster, head=head()) == ()
    assert len(causes(head(), *workers, owner=ray_cluster(group("gpu", 2), generation=3, observed=2), head=head())) == 1


def test_what_kuberay_does_not_take_is_said_in_its_words_if_it_is_about_this_change() -> None:
    cluster = ray_cluster(group("gpu", 1), generation=2, observed=1)
    said = "The RayCluster spec is invalid team/lab: worker group gpu has an invalid minReplicas"
    (found, _) = causes(owner=cluster, events=[event(cluster, "InvalidRayClusterSpec", said)])
    assert found.what == "KubeRay does not take the cluster: worker group gpu has an invalid minReplicas"
    cluster["metadata"]["managedFields"] = [{"manager": "trainyard", "time": "2026-01-02T04:00:00Z"}]
    (found,) = causes(owner=cluster, events=[event(cluster, "InvalidRayClusterSpec", said)])
    assert found.what.startswith("the KubeRay operator does not answer")


def deaths(cluster: Object, count: int) -> tuple[Object, ...]:
    said = (
        "Deleted head Pod team/lab-head; Pod status: Failed; Pod restart policy: Never; Ray container "
        "terminated status: &ContainerStateTerminated{ExitCode:1,Signal:0,Reason:Error,Message:ImportError: no ray,"
        "StartedAt:2026,}"
    )
    return tuple(event(cluster, "DeletedHeadPod", said, kind="Normal") for _ in range(count))


def test_pods_that_fail_and_are_replaced_again_and_again_are_a_cause_the_second_time() -> None:
    cluster = ray_cluster()
    assert causes(head(), owner=cluster, head=head(), fresh=deaths(cluster, 1)) == ()
    (found,) = causes(head(), owner=cluster, head=head(), fresh=deaths(cluster, 2))
    assert cause.error(found, PLACE).lines()[0] == (
        "head ended while it was starting (exit code 1), 2 times, and KubeRay makes it anew; its last words:\n"
        "    ImportError: no ray"
    )


def test_the_heads_cause_comes_before_those_of_its_workers() -> None:
    broken = head(ready=False, containers=(waiting("CrashLoopBackOff", name="ray-head", last=ended("Error", 1)),))
    found = causes(pulling("x: not found"), broken, head=broken)
    assert [one.who for one in found] == [("head",), ("gpu-x7k2p",)]


def test_a_deployment_whose_pods_may_not_be_made_says_why() -> None:
    said = 'pods "operator-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'
    deployment = {"status": {"conditions": [condition("ReplicaFailure", "True", message=said)]}}
    (found,) = cause.of_deployment(Facts(pods=(), owner=deployment))
    assert found.what == (
        "its pod may not be made: the namespace's quota small has no room for it: pods: 1 wanted, 2 of 2 used"
    )


def _words(pod: Object, container: str, former: bool) -> str:
    return f"{container}, {'former' if former else 'this'} run\n\n\x1b[31mno such thing\x1b[0m\n"
