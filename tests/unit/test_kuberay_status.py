"""What cluster.status, connect and cluster.logs of a cluster on Kubernetes ask, and answer."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, site
from tests.unit.kube_pods import IMAGE, Object, condition, ended, group, head, pod, ray_cluster, running, waiting
from trainyard.backends.contract import LogLine, Tools
from trainyard.backends.kuberay import asking, log_lines, way_in
from trainyard.backends.kuberay import site as sites
from trainyard.errors import NotReadyError
from trainyard.seams.kube.errors import GoneError
from trainyard.seams.kube.types import LEASE, NODE, POD, RAY_CLUSTER, SECRET
from trainyard.seams.ray_api import RefusedError, UnreachableError
from trainyard.spec import load_cluster
from trainyard.spec.cluster import ClusterSpec

WORKER = "lab-gpu-worker-x7k2p"
TOKEN = "t" * 64
HERE = "http://127.0.0.1:4242"
PLACE = "Kubernetes (namespace team of context lab)"


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "{name: lab, backend: kuberay, image: 'r:5000/ray', workers: [{name: gpu, count: 1, cpus: 2, gpus: 1}], "
        "kuberay: {namespace: team, simulated_gpus: true}}"
    )
    return load_cluster(file).spec


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path / "state", {}, "kuberay", directory=tmp_path)


Answering = Callable[..., None]


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> FakeKube:
    fake = FakeKube()
    fake.answers = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setattr(sites, "find", lambda spec, tools: site(fake))
    monkeypatch.setattr(way_in, "address", lambda where: HERE)
    monkeypatch.setattr(way_in, "trouble", lambda where: "")
    return fake


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Answering:
    def knows(*nodes: str, error: Exception | None = None) -> None:
        def answer(*_: Any) -> frozenset[str]:
            if error:
                raise error
            return frozenset(nodes)

        monkeypatch.setattr(way_in, "answer", answer)

    return knows


def made(kube: FakeKube, *pods: Object) -> None:
    kube.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    for one in pods:
        kube.put(POD, one)
    data = {"auth_token": base64.b64encode(TOKEN.encode()).decode()}
    kube.put(SECRET, {"metadata": {"name": "lab", "namespace": "team"}, "data": data})


def test_a_cluster_that_is_up_says_where_and_how_to_get_its_token(
    kube: FakeKube, ray: Answering, spec: ClusterSpec, tools: Tools
) -> None:
    made(kube, head(), pod(WORKER, ready=True))
    ray("head", "gpu-x7k2p")
    now = asking.status(spec, tools)
    assert (now.state, now.detail, now.address, now.tunnel) == ("up", "", HERE, PLACE)
    assert now.token_command == (
        "kubectl --context lab --namespace team get secret lab -o 'jsonpath={.data.auth_token}' | base64 -d"
    )
    assert TOKEN not in repr(now)


def test_a_cluster_that_was_never_made_is_down(kube: FakeKube, spec: ClusterSpec, tools: Tools) -> None:
    now = asking.status(spec, tools)
    assert (now.state, now.detail, now.address, now.token_command) == ("absent", "", None, None)


def test_a_dashboard_that_does_not_answer_is_said(
    kube: FakeKube, ray: Answering, spec: ClusterSpec, tools: Tools
) -> None:
    made(kube, head(), pod(WORKER, ready=True))
    ray(error=UnreachableError("no answer from Ray's dashboard: refused"))
    now = asking.status(spec, tools)
    assert now.state == "partial"
    assert now.detail == ("no answer from Ray's dashboard: refused")


def test_who_may_see_no_secret_sees_the_nodes(kube: FakeKube, ray: Answering, spec: ClusterSpec, tools: Tools) -> None:
    made(kube, head(), pod(WORKER, ready=True))
    kube.forbidden.add("secrets")
    ray(error=UnreachableError("refused"))
    now = asking.status(spec, tools)
    assert ([one.state for one in now.nodes], now.token_command) == (["starting", "starting"], None)


def test_a_node_that_ray_calls_alive_is_up_while_kubelet_or_control_plane_think_again(
    kube: FakeKube, ray: Answering, spec: ClusterSpec, tools: Tools
) -> None:
    unready = pod(WORKER, phase="Running", containers=(running(restarts=1, last=ended("Error", 1)),))
    made(kube, head(), unready)
    kube.put(NODE, {"metadata": {"name": "kube-2"}, "status": {"conditions": [condition("Ready", "True")]}})
    ray("head", "gpu-x7k2p")
    assert (asking.status(spec, tools).state, asking.status(spec, tools).detail) == ("up", "")
    unknown = {**condition("Ready", "Unknown"), "lastTransitionTime": "2026-01-02T02:04:00Z"}
    kube.put(NODE, {"metadata": {"name": "kube-2"}, "status": {"conditions": [unknown]}})
    lease = {"metadata": {"name": "kube-2", "namespace": "kube-node-lease"}}
    kube.put(LEASE, {**lease, "spec": {"renewTime": "2026-01-02T02:04:01.500000Z"}})
    doubt = "gpu-x7k2p: Kubernetes takes its node kube-2 for lost, though its kubelet renews its lease"
    for knows, state in (("gpu-x7k2p", "up"), ("", "starting")):
        ray("head", knows)
        now = asking.status(spec, tools)
        assert ([one.state for one in now.nodes], now.detail) == (["up", state], doubt)
    kube.put(LEASE, {**lease, "spec": {"renewTime": "2026-01-02T02:03:01.500000Z"}})
    ray("head", "gpu-x7k2p")
    assert [one.state for one in asking.status(spec, tools).nodes] == ["up", "broken"]


def test_a_run_gets_the_way_in_and_what_it_is_promised(kube: FakeKube, spec: ClusterSpec, tools: Tools) -> None:
    made(kube, head(), pod(WORKER, host=""))
    endpoint = asking.connect(spec, tools)
    assert (endpoint.address, endpoint.token, endpoint.image, endpoint.tunnel) == (HERE, TOKEN, IMAGE, PLACE)
    assert [one.name for one in endpoint.expected or ()] == ["head", "gpu-x7k2p"]
    assert endpoint.down == (("gpu-x7k2p", "waits for a Kubernetes node"),)
    assert endpoint.simulated_gpus is False


MAKES = ": waits for the KubeRay operator; KubeRay makes"
PULLS = waiting("ImagePullBackOff", "x: not found", name="ray-head")


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ((), f"{MAKES} the head, 1 node of gpu"),
        ((pod(WORKER, ready=True),), f"{MAKES} the head"),
        ((head(leaving=True),), f"{MAKES} 1 node of gpu; head is being removed"),
        (
            (pod("lab-head-abcde", group="head", containers=(PULLS,)),),
            f"{MAKES} 1 node of gpu; head cannot have the image {IMAGE}: registry 192.0.2.10:5000 has no such image",
        ),
    ],
)
def test_without_a_head_that_runs_there_is_no_way_in(
    pods: tuple[Object, ...], why: str, kube: FakeKube, spec: ClusterSpec, tools: Tools
) -> None:
    made(kube, *pods)
    for name in ("kube-1", "kube-2"):
        kube.put(NODE, {"metadata": {"name": name}, "status": {"conditions": [condition("Ready", "True")]}})
    with pytest.raises(NotReadyError) as caught:
        asking.connect(spec, tools)
    assert caught.value.lines() == [f"cluster lab is not up{why}", "  -> Make it: invoke cluster.up"]


def printing(texts: Mapping[bool, Sequence[str]]) -> Callable[..., list[tuple[str, str]]]:
    """Return a log with a line a second; the former run's under True."""

    def printed(pod: str, *, previous: bool = False, since: str, lines: int | None, **_: Any) -> list[tuple[str, str]]:
        every = [(f"{second:09}", text) for second, text in enumerate(texts[previous], 1)]
        return [one for one in every[-lines if lines else 0 :] if one[0] > since]

    return printed


def followed(kube: FakeKube, *happens: Callable[[], object], away: float = 0.0) -> list[str]:
    """Return the lines while one thing after the other happens, and then the cluster goes."""
    left = [*happens, kube.objects.clear]
    passed = itertools.count(step=away)

    def sleep(_: float) -> None:
        left.pop(0)()

    return [one.text for one in log_lines.lines(site(kube), None, follow=True, sleep=sleep, now=lambda: next(passed))]


def test_every_line_is_shown_once_however_many_there_are(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    kube.put(POD, pod(WORKER, ready=True))
    texts = [f"line {number}" for number in range(100)]
    monkeypatch.setattr(kube, "printed", printing({False: texts}), raising=False)
    monkeypatch.setattr(log_lines, "_of_ray", lambda *_: iter(()))
    found = followed(kube, lambda: texts.extend(f"more {number}" for number in range(900)), lambda: None)
    assert found == [*(f"line {number}" for number in range(80, 100)), *(f"more {number}" for number in range(900))]


def test_an_api_server_that_is_away_costs_who_follows_no_line(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    kube.put(POD, pod(WORKER, ready=True))
    texts, lost = ["one"], GoneError("the Kubernetes API does not answer")
    answers = printing({False: texts})
    monkeypatch.setattr(log_lines, "_of_ray", lambda *_: iter(()))

    def answer(*given: Any, **more: Any) -> list[tuple[str, str]]:
        if "away" in texts:
            raise lost
        return answers(*given, **more)

    monkeypatch.setattr(kube, "printed", answer, raising=False)

    def back() -> None:
        texts[:] = ["one", "two"]

    assert followed(kube, lambda: texts.append("away"), lambda: None, back) == ["one", "two"]
    kube.put(POD, pod(WORKER, ready=True))
    texts.append("away")
    with pytest.raises(GoneError):
        followed(kube, lambda: None, away=200.0)
    with pytest.raises(GoneError):
        list(log_lines.lines(site(kube), None, follow=False))


def test_logs_have_the_containers_words_also_of_the_run_that_ended(
    kube: FakeKube, ray: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = pod(WORKER, phase="Running", containers=(running(restarts=1, last=ended("Error", 1)),))
    kube.put(POD, crashed)
    texts = {True: ["first run", "it broke"], False: ["second run"]}
    monkeypatch.setattr(kube, "printed", printing(texts), raising=False)
    monkeypatch.setattr(log_lines, "_of_ray", lambda *_: iter(()))

    def later(_: float) -> None:
        if len(texts[False]) == 2:
            kube.objects.clear()
        texts[False].append("it runs")

    found = list(log_lines.lines(site(kube), None, follow=True, sleep=later))
    assert found == [
        LogLine("gpu-x7k2p", "former ray-worker", "first run"),
        LogLine("gpu-x7k2p", "former ray-worker", "it broke"),
        LogLine("gpu-x7k2p", "ray-worker", "second run"),
        LogLine("gpu-x7k2p", "ray-worker", "it runs"),
    ]


def test_logs_of_nothing_are_refused(kube: FakeKube, spec: ClusterSpec, tools: Tools) -> None:
    with pytest.raises(NotReadyError, match="cluster lab is not up"):
        asking.logs(spec, tools, follow=False)


@pytest.mark.parametrize(
    ("readable", "seen"),
    [
        (True, "Secret lab holds another token than the nodes were started with"),
        (False, "its token is in Secret lab, which is not there or not ours to read"),
    ],
)
def test_a_token_that_is_refused_is_no_news_of_the_nodes(
    readable: bool, seen: str, kube: FakeKube, ray: Answering, spec: ClusterSpec, tools: Tools
) -> None:
    made(kube, head(), pod(WORKER, ready=True))
    if not readable:
        kube.forbidden.add("secrets")
    ray(error=RefusedError("the cluster refused our token: Unauthorized"))
    now = asking.status(spec, tools)
    assert (now.state, now.detail) == ("partial", f"Ray does not say which nodes it has: {seen}")


def test_whoever_is_refused_is_told_which_secret_it_is(kube: FakeKube, spec: ClusterSpec, tools: Tools) -> None:
    made(kube, head(), pod(WORKER))
    assert asking.connect(spec, tools).refused == (
        "Secret lab in namespace team of context lab holds another token than the nodes were started with. "
        "To make them anew, which ends all that runs: invoke cluster.up --recreate"
    )


def test_the_cause_comes_first_without_a_kubelets_words_and_a_head_that_is_down_is_no_way_in(
    kube: FakeKube, ray: Answering, spec: ClusterSpec, tools: Tools
) -> None:
    crashed = waiting("CrashLoopBackOff", name="ray-head", restarts=4, last=ended("Error", 127))
    broken = head(ready=False, phase="Running", containers=(crashed,))
    made(kube, broken, pod(WORKER, ready=True))
    ray(error=UnreachableError("error forwarding port 8265 to pod fbf8, uid : failed to execute portforward"))
    now = asking.status(spec, tools)
    assert (
        now.detail == "head: its Kubernetes node kube-1 does not answer; nothing listens on the head's dashboard port"
    )
    assert (now.nodes[0].name, now.nodes[0].state) == ("head", "broken")
    assert (now.address, now.tunnel) == (None, None)


def test_logs_of_a_cluster_that_has_said_nothing_say_why(
    kube: FakeKube, spec: ClusterSpec, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(kube, head(), pod(WORKER, host=""))
    monkeypatch.setattr(log_lines, "lines", lambda *_, **__: iter(()))
    with pytest.raises(NotReadyError) as caught:
        list(asking.logs(spec, tools, follow=False))
    assert caught.value.lines() == ["cluster lab has said nothing yet: gpu-x7k2p waits for a Kubernetes node"]
