"""Pods that do one thing and go, whatever becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named, site
from trainyard.backends.kuberay.errands import errand, errand_pod
from trainyard.backends.kuberay.errands.errand import Errand, Outcome
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams.kube.errors import GoneError
from trainyard.seams.kube.types import NODE, POD, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection, PodPlacement
from trainyard.steps import Clock

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
HOSTS = [(NODE, {"metadata": {"name": name}, "status": READY}) for name in ("a", "b")]


class Time:
    """A clock that runs when somebody waits; `then` happens at each wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self.then: list[Any] = []

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        for happen in self.then:
            happen()


def spec(**section: Any) -> ClusterSpec:
    return ClusterSpec(name="lab", backend="kuberay", kuberay=KuberaySection.model_validate(section))


def pod(name: str = "lab-verify-1", *, host: str | None = None, gpus: int = 0, **section: Any) -> Object:
    return errand_pod.pod(
        spec(**section),
        errand_pod.Wanted(
            name, "verify", "reg:5000/x@sha256:1", ["python"], ("lab.pull",), PodPlacement(), 60, host, gpus
        ),
    )


def ended(code: int, said: str, reason: str = "") -> Object:
    state = {"terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "message": said}}
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "containerStatuses": [{"name": "errand", "state": state}]}


def run(kube: FakeKube, time: Time, *titles: str) -> list[Outcome]:
    asked = [Errand(title, pod(f"lab-verify-{title}", host=title)) for title in titles]
    return errand.run(site(kube), asked, purpose="verify", clock=time.clock())


def test_an_errand_is_done_where_it_was_sent_and_nothing_of_it_is_left() -> None:
    kube, time = FakeKube(), Time()

    def end(one: Object) -> None:
        one["spec"]["nodeName"] = one["metadata"]["name"].rpartition("-")[2]
        one["status"] = ended(0, "2.60.0\n")

    kube.after_create = end
    assert run(kube, time, "a", "b") == [Outcome("a", "a", 0.0, 0, "2.60.0"), Outcome("b", "b", 0.0, 0, "2.60.0")]
    assert kube.objects == {}


def test_what_an_earlier_run_left_goes_first_and_nothing_else() -> None:
    kube, time = FakeKube(), Time()
    left = pod("lab-verify-old")
    left["metadata"]["namespace"] = "team"
    kube.put(POD, left)
    kube.put(POD, named("lab-trial-1", cluster="lab"))
    kube.put(POD, named("lab-head", cluster="lab", ray="lab"))
    kube.after_create = lambda one: one.update(status=ended(0, ""))
    run(kube, time, "a")
    assert kube.names(POD) == {"lab-trial-1", "lab-head"}


def test_a_pod_that_fails_says_why_beside_one_that_does_not() -> None:
    kube, time = FakeKube(*HOSTS), Time()
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "dial tcp 192.0.2.9:5000: connect: connection refused"}}

    def fail(one: Object) -> None:
        name = one["metadata"]["name"]
        one["spec"]["nodeName"] = name.rpartition("-")[2]
        statuses = [{"name": "errand", "image": "x", "state": waiting}]
        one["status"] = ended(0, "ok") if name.endswith("a") else {"phase": "Pending", "containerStatuses": statuses}

    kube.after_create = fail
    good, bad = run(kube, time, "a", "b")
    assert (good.code, good.error) == (0, None)
    assert isinstance(bad.error, OutsideError)
    assert bad.error.what.startswith("the pod on b cannot have the image ")
    assert kube.names(POD) == set()


def test_a_program_that_is_not_in_the_image_is_told_at_once() -> None:
    kube, time = FakeKube(*HOSTS), Time()
    said = 'exec: "python": executable file not found in $PATH: unknown'

    def fail(one: Object) -> None:
        one["spec"]["nodeName"] = "a"
        one["status"] = ended(128, said, "StartError")

    kube.after_create = fail
    (found,) = run(kube, time, "a")
    assert found.error is not None
    assert found.error.what == "the pod on a cannot start: there is no python in the image reg:5000/x@sha256:1"
    assert time.now < 2.0


def test_a_host_without_room_is_an_error_after_some_seconds() -> None:
    kube, time = FakeKube(), Time()
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    said = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    kube.after_create = lambda one: one.update(
        status={"phase": "Pending", "conditions": [{**refused, "message": said}]}
    )
    (found,) = run(kube, time, "a")
    assert isinstance(found.error, PrerequisiteError)
    assert time.now >= 5.0


def test_a_pod_that_somebody_removes_is_told() -> None:
    kube, time = FakeKube(), Time()
    kube.after_create = lambda one: one.update(status={"phase": "Running"})
    time.then = [kube.objects.clear]
    (found,) = run(kube, time, "a")
    assert str(found.error) == (
        "a: its pod was removed while it ran\n"
        "  at namespace team: lab-verify-a\n"
        "  -> Did somebody else give the same command, or was the node drained? Repeat it."
    )


def test_what_runs_for_ever_is_given_up() -> None:
    kube, time = FakeKube(), Time()
    kube.after_create = lambda one: one.update(status={"phase": "Running"})
    (found,) = run(kube, time, "a")
    assert isinstance(found.error, NotReadyError)
    assert found.error.what == "a: it did not end within 300 s"
    assert kube.objects == {}


def test_an_interrupted_errand_leaves_nothing() -> None:
    kube, time = FakeKube(), Time()

    def interrupt() -> None:
        raise KeyboardInterrupt

    time.then = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        run(kube, time, "a", "b")
    assert kube.objects == {}


def test_an_api_server_that_is_away_for_a_while_is_waited_for() -> None:
    kube, time = FakeKube(), Time()
    answer = kube.list
    kube.after_create = lambda one: one.update(status={"phase": "Running"})

    def away(*given: Any, **more: Any) -> list[Object]:
        if 1.0 < time.now < 40.0:
            raise GoneError("the Kubernetes API does not answer")
        if time.now >= 40.0:
            for one in kube.objects.values():
                one["status"] = ended(0, "ok")
        return answer(*given, **more)

    kube.list = away  # type: ignore[method-assign]
    (found,) = run(kube, time, "a")
    assert (found.code, found.said) == (0, "ok")


def test_the_pod_is_tied_to_its_host_and_asks_for_next_to_nothing() -> None:
    found = pod(host="a", node_selector={"pool": "x"}, security={"restricted": True, "run_as_user": 1000})["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    assert found["affinity"] == {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    (container,) = found["containers"]
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {
        "limits": {"cpu": "2", "memory": "4Gi"},
        "requests": {"cpu": "10m", "memory": "16Mi"},
    }
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert found["imagePullSecrets"] == [{"name": "lab.pull"}]
    assert "runtimeClassName" not in found


def test_a_pod_with_gpus_gets_what_the_groups_nodes_get() -> None:
    wanted = errand_pod.Wanted("x", "trial", "image", ["python"], (), PodPlacement(runtime_class="nvidia"), 60, gpus=2)
    found = errand_pod.pod(spec(gpu_resource="example.com/gpu"), wanted)
    assert found["spec"]["runtimeClassName"] == "nvidia"
    assert found["spec"]["tolerations"] == [{"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    resources = found["spec"]["containers"][0]["resources"]
    assert (resources["limits"]["example.com/gpu"], resources["requests"]["example.com/gpu"]) == ("2", "2")
    assert "env" not in found["spec"]["containers"][0]
    assert found["metadata"]["labels"] == {
        "io.trainyard/cluster": "lab",
        "app.kubernetes.io/managed-by": "trainyard",
        "io.trainyard/errand": "trial",
    }
