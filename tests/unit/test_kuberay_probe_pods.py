"""Pods that do one thing and go, whatever becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.fake_kube import FakeKube, location, named
from trainyard.backends.kuberay import probe_pods
from trainyard.backends.kuberay.probe_pods import Outcome, Probe
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.kube.types import NODE, POD, Object
from trainyard.spec.kubernetes import PodPlacement
from trainyard.steps import Clock

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
HOSTS = [(NODE, {"metadata": {"name": name}, "status": READY}) for name in ("a", "b")]


class Time:
    """A clock that runs when somebody waits; `then` happens at each wait."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self.then = then

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then()


def pod(name: str = "lab-verify-1", *, host: str | None = None, **section: Any) -> Object:
    return probe_pods.pod(
        location(FakeKube(), **section),
        name,
        image="reg:5000/x@sha256:1",
        command=["python"],
        pull_secrets=("lab.pull",),
        placement=PodPlacement(),
        host=host,
    )


def ended(code: int, output: str, reason: str = "") -> Object:
    state = {
        "terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "message": output}
    }
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "probe", "image": "x", "state": state}],
    }


def run(kube: FakeKube, time: Time, *titles: str) -> list[Outcome]:
    probes = [Probe(title, pod(f"lab-verify-{title}", host=title)) for title in titles]
    return probe_pods.run(location(kube), probes, clock=time.clock())


def with_status(**by_title: Object) -> Callable[[Object], None]:
    """Return what gives each pod its host and its status."""

    def give(made: Object) -> None:
        title = made["metadata"]["name"].rpartition("-")[2]
        made["spec"]["nodeName"] = title
        made["status"] = by_title[title]

    return give


def test_a_probe_ends_where_it_was_sent_and_nothing_of_it_is_left() -> None:
    kube = FakeKube()
    kube.after_create = with_status(a=ended(0, "2.60.0\n"), b=ended(1, "no ray"))
    assert run(kube, Time(), "a", "b") == [Outcome("a", "a", 0.0, 0, "2.60.0"), Outcome("b", "b", 0.0, 1, "no ray")]
    assert kube.objects == {}


def test_what_an_earlier_run_left_goes_first_and_nothing_else() -> None:
    kube = FakeKube((POD, named("lab-head", cluster="lab", ray="lab")))
    left = pod("lab-verify-old")
    left["metadata"]["namespace"] = "team"
    kube.put(POD, left)
    kube.after_create = with_status(a=ended(0, ""))
    run(kube, Time(), "a")
    assert kube.names(POD) == {"lab-head"}


def test_a_pod_that_fails_says_why_beside_one_that_does_not() -> None:
    kube = FakeKube(*HOSTS)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "dial tcp 192.0.2.9:5000: connect: connection refused"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "probe", "image": "x", "state": waiting}]}
    kube.after_create = with_status(a=ended(0, "ok"), b=status)
    good, bad = run(kube, Time(), "a", "b")
    assert (good.code, good.error) == (0, None)
    assert isinstance(bad.error, OutsideError)
    assert bad.error.what.startswith("the pod on b cannot have the image ")


def test_a_host_without_room_is_an_error_after_some_seconds() -> None:
    kube, time = FakeKube(), Time()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    condition["message"] = "0/1 nodes are available: 1 Insufficient cpu."
    kube.after_create = lambda made: made.update(status={"phase": "Pending", "conditions": [condition]})
    (found,) = run(kube, time, "a")
    assert isinstance(found.error, PrerequisiteError)
    assert time.now >= 5.0


def test_a_pod_that_somebody_removes_is_said() -> None:
    kube = FakeKube()
    kube.after_create = with_status(a={"phase": "Running"})
    (found,) = run(kube, Time(kube.objects.clear), "a")
    assert str(found.error) == (
        "a: its pod was removed while it ran\n"
        "  -> Did somebody else give the same command, or was the node drained? Repeat it."
    )


def test_the_pod_is_tied_to_its_host_and_asks_for_next_to_nothing() -> None:
    found = pod(host="a", security={"restricted": True, "run_as_user": 1000})["spec"]
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
