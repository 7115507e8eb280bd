"""The steps of `cluster.up` on Kubernetes, against an API and a Helm that are in sight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit import kube_pods
from tests.unit.fake_kube import FakeKube, named
from tests.unit.fake_kube import site as fake_site
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import image, location, preflight, ray_cluster, there, up
from trainyard.backends.kuberay.documents.document import Wish, documents, shipped_templates
from trainyard.backends.kuberay.image import Chosen
from trainyard.backends.kuberay.operators import definitions, installing, operator_steps
from trainyard.backends.kuberay.operators.installing import Installing
from trainyard.backends.kuberay.operators.operator_steps import Kuberay
from trainyard.backends.kuberay.removing import removal
from trainyard.backends.kuberay.wanted import Wanted, refuse_lacking
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError, RequestError
from trainyard.images.types import PinnedImage
from trainyard.seams.helm import Chart, Release
from trainyard.seams.kube.errors import InvalidError
from trainyard.seams.kube.types import (
    CLAIM,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    NODE,
    POD,
    QUOTA,
    RAY_CLUSTER,
    SECRET,
    SERVICE,
    Object,
)
from trainyard.seams.registry.errors import GoneError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import Operator as Section
from trainyard.steps import Step

DIGEST = "sha256:" + "a" * 64
PINNED = PinnedImage("r:5000/team/ray:1", f"r:5000/team/ray@{DIGEST}", DIGEST)
OURS = installing.description(Section(), "1.5.1")


class FakeHelm:
    """A chart, and one release. `breaks` is what installing raises the first time."""

    def __init__(self, kube: FakeKube, release: Release | None = None, breaks: Exception | None = None) -> None:
        self.kube, self.made, self.breaks = kube, release, breaks
        self.did: list[str] = []

    def crds(self, chart: Chart) -> list[Object]:
        self.did.append("crds")
        return [crd("rayclusters.ray.io"), crd("rayjobs.ray.io")]

    def release(self, name: str, namespace: str) -> Release | None:
        return self.made

    def install(self, name: str, chart: Chart, namespace: str, values: dict[str, Any], *, description: str) -> None:
        self.did.append("install")
        if self.breaks:
            error, self.breaks = self.breaks, None
            raise error
        self.made = Release(name, 1, "deployed", description)
        self.kube.put(DEPLOYMENT, deployment())

    def uninstall(self, name: str, namespace: str) -> None:
        self.did.append("uninstall")
        self.made = None

    def recover(self, name: str, namespace: str) -> None:
        self.did.append("recover")
        self.made = None


def crd(name: str) -> Object:
    schema: Object = {"properties": {"spec": {"properties": {"authOptions": {}, "headGroupSpec": {}}}}}
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}
    status = {"conditions": [{"type": "Established", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {"versions": [version]}, "status": status}


def deployment(*, available: str = "True") -> Object:
    labels = {"app.kubernetes.io/name": "kuberay-operator"}
    containers = [{"name": "operator", "image": "quay.io/kuberay/operator:v1.5.1"}]
    return {
        "metadata": {"name": "kuberay-operator", "namespace": "kuberay-system", "generation": 1, "labels": labels},
        "spec": {"template": {"spec": {"containers": containers}}},
        "status": {"observedGeneration": 1, "conditions": [{"type": "Available", "status": available}]},
    }


def spec(**more: Any) -> ClusterSpec:
    workers = more.pop("workers", [{"name": "gpu", "count": 1}])
    section = {"namespace": "team", **more.pop("kuberay", {})}
    base = {"name": "lab", "backend": "kuberay", "image": "r:5000/team/ray:1", "workers": workers, "kuberay": section}
    return ClusterSpec.model_validate({**base, **more})


def asked(kube: FakeKube, cluster: ClusterSpec | None = None, *, recreate: bool = False, what: str = "use") -> Wanted:
    cluster = cluster or spec()
    where = fake_site(kube)
    plan = Installing(what, "1.5.1")  # type: ignore[arg-type]
    kuberay = Kuberay(where.kube, FakeHelm(kube), Section(), Chart("c"), "1.5.1", plan)  # type: ignore[arg-type]
    return Wanted(
        spec=cluster,
        tools=Tools(Path("/nowhere/state"), {}, "kuberay", recreate=recreate),
        site=where,
        there=there.look(where, Section()),
        chosen=Chosen(PINNED),
        documents=documents(Wish(cluster, PINNED.reference), shipped_templates()),
        kuberay=kuberay,
        simulated=False,
    )


def live(cluster: ClusterSpec | None = None) -> Object:
    return documents(Wish(cluster or spec(), PINNED.reference), shipped_templates()).ray_cluster


def with_cluster(*more: tuple[Any, Object]) -> FakeKube:
    return FakeKube((RAY_CLUSTER, live()), (CRD, crd(definitions.RAY_CLUSTERS)), *more)


def kuberay(kube: FakeKube, helm: FakeHelm, what: str = "install") -> Kuberay:
    plan = Installing(what, "1.5.1")  # type: ignore[arg-type]
    return Kuberay(kube, helm, Section(), Chart("c"), "1.5.1", plan, sleep=lambda seconds: None)  # type: ignore[arg-type]


def run(step: Any) -> None:
    if not step.done().holds:
        step.do()
    assert step.done().holds


def test_a_cluster_that_is_as_the_file_says_is_not_written_to() -> None:
    kube = with_cluster()
    wanted = asked(kube)

    assert ray_cluster.differences(wanted) == ()
    assert ray_cluster.step(wanted, (), after=None).done().holds
    assert kube.changed == []


def test_what_kuberay_carries_out_is_changed_and_said_in_the_title() -> None:
    kube = with_cluster()
    wanted = asked(kube, spec(workers=[{"name": "gpu", "count": 2}]))
    changes = ray_cluster.differences(wanted)
    step = ray_cluster.step(wanted, changes, after=None)

    assert ray_cluster.refusal(wanted, changes) is None
    assert step.title == "Change the RayCluster: workers.gpu.count: 1 now, 2 wanted"
    run(step)
    assert kube.changed == ["apply RayCluster lab"]


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        ({"count": 1}, {"count": 2}, False),
        ({"count": 2}, {"count": 1}, True),
        ({"min": 0, "max": 3}, {"min": 1, "max": 4}, False),
        ({"min": 0, "max": 3}, {"min": 0, "max": 2}, True),
    ],
)
def test_only_a_group_that_gets_smaller_ends_nodes(before: dict[str, int], after: dict[str, int], ends: bool) -> None:
    kube = FakeKube(
        (RAY_CLUSTER, live(spec(workers=[{"name": "gpu", **before}]))), (CRD, crd(definitions.RAY_CLUSTERS))
    )
    wanted = asked(kube, spec(workers=[{"name": "gpu", **after}]))
    assert ray_cluster.step(wanted, ray_cluster.differences(wanted), after=None).disruptive == ends


def test_what_kuberay_ignores_needs_recreate() -> None:
    kube = with_cluster()
    other = spec(head={"memory": "4GiB"})
    wanted = asked(kube, other)
    refused = ray_cluster.refusal(wanted, ray_cluster.differences(wanted))

    assert refused
    assert refused.lines() == [
        "the cluster file asks for what KubeRay does not change on a running cluster; to make it anew ends everything "
        "on it",
        "  at head.memory: 2GiB now, 4GiB wanted",
        "  -> If that is meant: invoke cluster.up --recreate",
    ]
    meant = asked(kube, other, recreate=True)
    assert ray_cluster.refusal(meant, ray_cluster.differences(meant)) is None


def test_a_plan_that_needs_recreate_says_once_what_differs_and_then_what_would_be_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = asked(with_cluster(), spec(head={"memory": "4GiB"}))
    monkeypatch.setattr(up, "wanted", lambda *_: wanted)
    monkeypatch.setattr(preflight, "steps", lambda _: [])
    (stage,) = up.up_steps(wanted.spec, wanted.tools)
    found = [step for step in stage.expand() if isinstance(step, Step)]

    assert (found[0].title, found[0].done().detail) == (
        "Make the whole cluster anew",
        "needs --recreate, which ends everything on the cluster: head.memory: 2GiB now, 4GiB wanted",
    )
    titles = [step.title for step in found]
    assert titles[titles.index("Remove the cluster that is there") + 1] == "Make the RayCluster lab"
    assert not [title for title in titles if "4GiB" in title]
    with pytest.raises(RequestError):
        found[0].do()


def test_crds_that_are_older_than_their_operator_are_named() -> None:
    class Old(FakeKube):
        def apply(self, *arguments: Any, **more: Any) -> Object:
            raise InvalidError(".spec.authOptions: field not declared in schema")

    kube = Old((RAY_CLUSTER, live()), (CRD, crd(definitions.RAY_CLUSTERS)))
    with pytest.raises(PrerequisiteError) as error:
        ray_cluster.differences(asked(kube))

    assert error.value.what == (
        "Kubernetes knows an older RayCluster than its KubeRay operator: Helm does not upgrade CRDs"
    )


def test_who_may_not_change_ray_clusters_is_told_all_that_is_missing() -> None:
    kube = with_cluster()
    wanted = asked(kube)
    kube.may_not = {"patch rayclusters", "create secrets"}
    kube.forbidden.add("rayclusters")

    with pytest.raises(PrerequisiteError) as error:
        ray_cluster.differences(wanted)

    assert "create secrets in namespace team" in error.value.what


def test_the_crds_come_with_that_of_ray_clusters_last_and_are_not_read_again() -> None:
    kube = FakeKube()
    helm = FakeHelm(kube)
    # The API server establishes what is applied; the fake takes the chart's word for it.
    step = operator_steps.definitions_step(kuberay(kube, helm))
    step.do()
    for found in ("rayjobs.ray.io", "rayclusters.ray.io"):
        kube.objects[(CRD.plural, "", found)]["status"] = crd(found)["status"]

    assert kube.changed == [
        "apply CustomResourceDefinition rayjobs.ray.io",
        "apply CustomResourceDefinition rayclusters.ray.io",
    ]
    again = FakeHelm(kube)
    assert operator_steps.definitions_step(kuberay(kube, again)).done().holds
    assert again.did == []


def test_the_operator_is_installed_into_a_namespace_with_our_mark() -> None:
    kube = FakeKube()
    helm = FakeHelm(kube)
    run(operator_steps.operator_step(kuberay(kube, helm), "team", after=None))

    assert helm.did == ["install"]
    assert helm.made
    assert helm.made.description == OURS
    assert kube.objects[(NAMESPACE.plural, "", "kuberay-system")]["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "trainyard"
    }


def test_a_release_whose_helm_was_killed_is_recovered_first() -> None:
    kube = FakeKube()
    helm = FakeHelm(kube, Release("kuberay-operator", 1, "pending-install", OURS))
    run(operator_steps.operator_step(kuberay(kube, helm), "team", after=None))

    assert helm.did == ["recover", "install"]


def test_a_release_whose_removal_was_killed_is_removed_first() -> None:
    kube = FakeKube()
    helm = FakeHelm(kube, breaks=OutsideError("Helm could not install", where='"x" has no deployed releases'))
    run(operator_steps.operator_step(kuberay(kube, helm), "team", after=None))

    assert helm.did == ["install", "uninstall", "install"]


def test_an_operator_that_somebody_else_installed_in_the_same_moment_is_enough() -> None:
    class Raced(FakeHelm):
        def install(self, *arguments: Any, **more: Any) -> None:
            self.made = Release("kuberay-operator", 1, "deployed", OURS)
            self.kube.put(DEPLOYMENT, deployment())
            raise OutsideError("Helm could not install", where="another operation is in progress")

    kube = FakeKube()
    run(operator_steps.operator_step(kuberay(kube, Raced(kube)), "team", after=None))


def test_an_operator_that_does_not_run_yet_is_waited_for() -> None:
    kube = FakeKube((DEPLOYMENT, deployment(available="False")))
    step = operator_steps.operator_step(kuberay(kube, FakeHelm(kube), "use"), "team", after=None)

    assert step.title == "Check the KubeRay operator"
    assert step.done().detail == "it does not run yet"


def owned(kind: Any, name: str, uid: str) -> tuple[Any, Object]:
    owner = {"metadata": {"name": "lab", "uid": uid}}
    return kind, named(name, ray="lab", owner=owner)


def test_a_former_cluster_is_gone_with_its_pods_and_services_before_another_is_made() -> None:
    kube = FakeKube(owned(POD, "lab-head", "uid-old"), owned(SERVICE, "lab-head-svc", "uid-old"))
    step = removal.step(fake_site(kube), asked(kube).there, recreate=False)

    assert step
    assert step.title == "Wait until the former cluster is gone"
    assert step.done().detail == "still there: lab-head, lab-head-svc"
    kube.objects.clear()
    assert step.done().holds


def test_recreate_removes_the_cluster_that_is_there_and_no_later_one() -> None:
    kube = with_cluster()
    step = removal.step(fake_site(kube), asked(kube, recreate=True).there, recreate=True)
    assert step
    assert step.disruptive
    run(step)

    assert kube.deleted == ["RayCluster lab"]
    kube.put(RAY_CLUSTER, live())
    assert step.done().holds


def test_what_hangs_is_named_after_a_while() -> None:
    cluster = live()
    cluster["metadata"] |= {"uid": "uid-old", "finalizers": ["example.com/keep"]}
    times = iter((0.0, 200.0))
    going = removal.Going(fake_site(FakeKube((RAY_CLUSTER, cluster))), "uid-old", now=lambda: next(times))
    going.begin()

    with pytest.raises(NotReadyError) as error:
        going.done()
    assert error.value.what == "RayCluster lab is to be removed, and its finalizer example.com/keep holds it"


def node(name: str, cpu: str) -> Object:
    has = {"cpu": cpu, "memory": "16Gi", "pods": "10"}
    return {
        "metadata": {"name": name},
        "status": {"allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def titled(steps: Sequence[Any], title: str) -> Any:
    return next(one for one in steps if one.title.startswith(title))


def test_no_room_is_an_error_that_says_what_is_missing_and_where() -> None:
    wanted = asked(FakeKube((NODE, node("kube-1", "1"))))

    with pytest.raises(PrerequisiteError) as error:
        titled(preflight.steps(wanted), "Check the room").done()

    assert error.value.what == (
        "there is no room on Kubernetes for cluster lab:"
        "\n  - gpu: no Kubernetes node has room for it: cpu: 1 wanted, at most 0 free (kube-1)"
    )


def test_inside_a_pod_no_context_is_named_that_there_is_not() -> None:
    kube = FakeKube((NODE, node("kube-1", "1")))
    kube.context, kube.place = "", kube.server

    with pytest.raises(PrerequisiteError) as error:
        titled(preflight.steps(asked(kube)), "Check the room").done()

    *_, where, hint = error.value.lines()
    assert where == "  at https://192.0.2.1:6443"
    assert hint.endswith("All that was counted: kubectl describe nodes")


def test_a_quota_is_an_error_also_where_machines_come_by_themselves() -> None:
    found = {"metadata": {"name": "q", "namespace": "team"}, "status": {"hard": {"requests.cpu": "1"}}}
    kube = FakeKube((NAMESPACE, {"metadata": {"name": "team"}}), (NODE, node("kube-1", "8")), (QUOTA, found))
    wanted = asked(kube, spec(kuberay={"wait_for_machines": "5m"}))

    with pytest.raises(PrerequisiteError) as error:
        titled(preflight.steps(wanted), "Check the room").done()

    assert error.value.lines() == [
        "namespace team does not allow cluster lab:\n  - quota q: requests.cpu: 2 wanted, 1 of 1 free",
        "  at context lab",
        "  -> Want less, or have it raised: kubectl describe quota,limitrange -n team",
    ]


def test_no_room_is_a_remark_where_machines_come_by_themselves() -> None:
    wanted = asked(FakeKube((NODE, node("kube-1", "1"))), spec(kuberay={"wait_for_machines": "5m"}))
    answer = titled(preflight.steps(wanted), "Check the room").done()

    assert answer.holds
    assert answer.detail == "gpu: no Kubernetes node has room for it: cpu: 1 wanted, at most 0 free (kube-1)"


def test_pods_that_have_their_place_need_no_room() -> None:
    pods = [kube_pods.head(), kube_pods.pod("lab-gpu-a", ready=True)]
    wanted = asked(with_cluster(*((POD, one) for one in pods)))

    assert preflight.to_place(wanted) == {}
    assert preflight.to_place(asked(with_cluster(*((POD, one) for one in pods)), recreate=True)) == {
        "head": 1,
        "gpu": 1,
    }


def test_room_that_cannot_be_seen_is_a_remark() -> None:
    wanted = asked(FakeKube(forbidden=["nodes"]))

    assert titled(preflight.steps(wanted), "Check the room").done().detail == (
        "whether there is room was not checked: you may not see the Kubernetes nodes, or their pods"
    )


def test_gpus_that_nobody_offers_hint_at_the_device_plugin() -> None:
    wanted = asked(FakeKube((NODE, node("kube-1", "8"))), spec(workers=[{"name": "gpu", "gpus": 1}]))

    with pytest.raises(PrerequisiteError) as error:
        titled(preflight.steps(wanted), "Check the room").done()

    assert error.value.hint
    assert error.value.hint.startswith("No Kubernetes node offers nvidia.com/gpu: is NVIDIA's device plugin there")


def test_a_cluster_that_runs_keeps_its_image_while_the_registry_does_not_answer() -> None:
    tools = Tools(Path("/nowhere/state"), {}, "kuberay")
    gone = GoneError("registry r:5000 does not answer")

    kept = image.choose(spec(), tools, gone, live(), recreate=False)

    assert kept.kept
    assert kept.image.reference == PINNED.reference
    assert kept.image.remark == "the cluster keeps the image that it runs: registry r:5000 does not answer"
    with pytest.raises(GoneError):
        image.choose(spec(), tools, gone, None, recreate=False)
    with pytest.raises(GoneError):
        image.choose(spec(image="r:5000/team/other:1"), tools, gone, live(), recreate=False)


def test_pods_that_an_up_left_behind_take_neither_room_nor_quota() -> None:
    used = {"metadata": {"name": "q", "namespace": "team"}, "status": {"hard": {"cpu": "3"}, "used": {"cpu": "3"}}}
    left = kube_pods.pod("lab-trial-a", host="kube-1", phase="Running")
    left["metadata"]["labels"] = {"io.trainyard/cluster": "lab", "io.trainyard/errand": "trial"}
    left["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    kube = FakeKube((NAMESPACE, {"metadata": {"name": "team"}}), (NODE, node("kube-1", "3")), (QUOTA, used))
    kube.put(POD, left)

    assert titled(preflight.steps(asked(kube)), "Check the room").done().holds


@pytest.mark.parametrize("status", ["deployed", "failed", "pending-install"])
def test_a_helm_release_of_somebody_else_is_not_touched(status: str) -> None:
    kube = FakeKube((NAMESPACE, {"metadata": {"name": "kuberay-system"}}))
    helm = FakeHelm(kube, Release("kuberay-operator", 1, status, "Install failed: quota"))

    with pytest.raises(PrerequisiteError) as error:
        operator_steps.operator_step(kuberay(kube, helm), "team", after=None).do()
    assert helm.did == []
    assert error.value.lines() == [
        "there is a Helm release kuberay-operator in namespace kuberay-system that Trainyard did not make",
        f"  at its status is {status}; Install failed: quota",
        "  -> If its operator runs by now, repeat the command, and it is used. If nobody needs that release: helm "
        "uninstall kuberay-operator -n kuberay-system. Or name another one: kuberay.operator.release.",
    ]


def test_a_release_that_failed_in_a_namespace_of_ours_is_tried_again() -> None:
    kube = FakeKube((NAMESPACE, named("kuberay-system", made_by="trainyard")))
    helm = FakeHelm(kube, Release("kuberay-operator", 1, "failed", "Install failed: no answer"))
    run(operator_steps.operator_step(kuberay(kube, helm), "team", after=None))

    assert helm.did == ["install"]


def test_crds_that_somebody_else_installs_are_not_written() -> None:
    old = crd(definitions.RAY_CLUSTERS)
    old["spec"]["versions"][0]["schema"] = {}
    seen = there.look(fake_site(FakeKube((CRD, old))), Section())
    refuse_lacking(seen, Section(), version="1.5.1")

    with pytest.raises(PrerequisiteError) as error:
        refuse_lacking(seen, Section(install=False), version="1.5.1")
    assert error.value.lines() == [
        "Kubernetes knows no RayCluster as our clusters need it, and the cluster file says that somebody else installs "
        "KubeRay",
        "  at kuberay.operator.install: false; CRD rayclusters.ray.io",
        "  -> Have the CRDs of KubeRay 1.5.1 applied: helm show crds CHART | kubectl apply --server-side "
        "--force-conflicts -f -",
    ]


def test_crds_under_somebody_elses_operator_are_said_to_be() -> None:
    kube = FakeKube()
    theirs = replace(kuberay(kube, FakeHelm(kube)), plan=Installing("use", "1.5.1", foreign=True))
    assert operator_steps.definitions_step(theirs).title == (
        "Tell Kubernetes what a RayCluster is (CRDs of KubeRay 1.5.1; its operator is somebody else's)"
    )


def noted(kube: FakeKube) -> dict[str, str]:
    return dict(kube.objects[("rayclusters", "team", "lab")]["metadata"]["annotations"])


def test_who_made_a_cluster_is_written_once_and_carried_over(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube((CRD, crd(definitions.RAY_CLUSTERS)))
    monkeypatch.setattr(ray_cluster, "_us", lambda: "ops@desk at 2026-01-02 03:04 UTC")
    run(ray_cluster.step(asked(kube), (), after=None))
    assert noted(kube)["io.trainyard/made-by"] == "ops@desk at 2026-01-02 03:04 UTC"

    monkeypatch.setattr(ray_cluster, "_us", lambda: "eve@other at 2026-02-03 04:05 UTC")
    assert ray_cluster.differences(asked(kube)) == ()
    run(ray_cluster.step(asked(kube, spec(workers=[{"name": "gpu", "count": 2}])), (), after=None))
    assert noted(kube)["io.trainyard/made-by"] == "ops@desk at 2026-01-02 03:04 UTC"
    assert kube.changed == ["apply RayCluster lab"] * 2


def test_a_cluster_that_does_not_say_who_made_it_is_not_written_to_for_that() -> None:
    kube = with_cluster()
    run(ray_cluster.step(asked(kube, spec(workers=[{"name": "gpu", "count": 2}])), (), after=None))

    assert "io.trainyard/made-by" not in noted(kube)


def test_a_cluster_of_which_nothing_is_written_down_here_is_said_to_have_been_there(tmp_path: Path) -> None:
    def seen(kube: FakeKube) -> str:
        wanted = replace(asked(kube), tools=Tools(tmp_path / "state", {}, "kuberay"))
        return str(titled(preflight.steps(wanted), "Check access").done().detail)

    kube = with_cluster()
    assert seen(kube) == "cluster lab was there already"
    kube.objects[("rayclusters", "team", "lab")]["metadata"]["annotations"]["io.trainyard/made-by"] = "ops@desk at noon"
    assert seen(kube) == "cluster lab was there already, made by ops@desk at noon"
    assert seen(FakeKube()) == ""
    location.write(Tools(tmp_path / "state", {}, "kuberay"), fake_site(FakeKube()))
    assert seen(kube) == ""


def test_a_cluster_that_is_removed_while_it_is_made_is_said_at_once() -> None:
    kube = FakeKube((CRD, crd(definitions.RAY_CLUSTERS)))
    step = ray_cluster.step(asked(kube), (), after=None)
    assert step.done().detail == "there is none"
    step.do()
    assert step.done().holds
    kube.delete(RAY_CLUSTER, "lab", namespace="team")

    with pytest.raises(NotReadyError) as error:
        step.done()
    assert error.value.lines() == [
        "cluster lab was removed while it came up",
        "  at namespace team of context lab",
        "  -> Somebody else gave cluster.down, or removed the RayCluster or its namespace. If it is to exist: "
        "invoke cluster.up",
    ]


def test_a_plan_prints_what_up_would_send(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = with_cluster()
    metadata = kube.objects[("rayclusters", "team", "lab")]["metadata"]
    metadata["annotations"]["io.trainyard/made-by"] = "ops@desk at noon"
    kept = replace(asked(kube), chosen=Chosen(PINNED, kept=True))
    anew = replace(kept, tools=Tools(Path("/nowhere/state"), {}, "kuberay", recreate=True))
    for wanted, maker in ((kept, "ops@desk at noon"), (anew, None)):
        monkeypatch.setattr(up, "wanted", lambda *_, found=wanted: found)
        *_, printed = up.documents(spec(), wanted.tools)
        assert printed["metadata"]["annotations"].get("io.trainyard/made-by") == maker
        head = printed["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
        assert head["image"] == PINNED.reference


def missing(wanted: Wanted, *may_not: str) -> list[str]:
    """Return what is said to be missing where the user may not do that."""
    kube: Any = wanted.site.kube
    kube.may_not = set(may_not)
    try:
        titled(preflight.steps(wanted), "Check access").done()
    except PrerequisiteError as error:
        return error.what.split("\n  - ")[1:]
    return []


def test_rights_are_asked_for_what_this_up_is_going_to_do() -> None:
    rights = ("patch secrets", "delete secrets", "delete pods", "patch persistentvolumeclaims")
    storage = spec(kuberay={"storage": {"size": "2GiB"}})
    assert missing(asked(with_cluster(), storage), *rights) == []

    with_login = documents(Wish(spec(), PINNED.reference, pull_secrets=("lab.pull",)), shipped_templates())
    assert missing(replace(asked(with_cluster()), documents=with_login), *rights) == ["patch secrets in namespace team"]

    old_login = with_cluster((SECRET, named("lab.pull", cluster="lab")))
    assert missing(asked(old_login), *rights) == ["delete secrets in namespace team"]

    small = named("lab-outputs", cluster="lab")
    small["spec"] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    assert missing(asked(with_cluster((CLAIM, small)), storage), *rights) == [
        "patch persistentvolumeclaims in namespace team"
    ]
