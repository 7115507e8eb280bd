"""The steps of `cluster.up` on Kubernetes, against an API and a Helm that are in sight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_helm import FakeHelm, crd, deployment
from tests.unit.fake_kube import FakeKube, named
from tests.unit.step_lists import refuse_lost_ids
from trainyard.backends import kuberay as up
from trainyard.backends.contract import Site
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.images import resolve
from trainyard.images.resolve import PinnedImage
from trainyard.seams.kube.errors import ApiUnreachableError, InvalidError
from trainyard.seams.kube.types import BUDGET as PDB
from trainyard.seams.kube.types import (
    CLAIM,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    RAY_CLUSTER,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
)
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step

BUDGET = "Keep the head where it is while hosts are drained"
DIGEST = "sha256:" + "a" * 64
PINNED = PinnedImage("r:5000/team/ray:1", f"r:5000/team/ray@{DIGEST}", DIGEST)
# The kinds that `cluster.up` reads or changes (docs/kuberay.md, `Rights`).
ASKED = {
    CLAIM,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    NETWORK_POLICY,
    PDB,
    POD,
    RAY_CLUSTER,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
}


def spec(**file: Any) -> ClusterSpec:
    section = {"namespace": "team", **file.pop("kuberay", {})}
    base = {
        "name": "lab",
        "backend": "kuberay",
        "image": "r:5000/team/ray:1",
        "workers": [{"name": "gpu", "count": 1}],
    }
    return ClusterSpec.model_validate({**base, **file, "kuberay": section})


class Yard:
    """A Kubernetes with KubeRay and one host, a registry that has the image, and a cluster file."""

    def __init__(self, kube: FakeKube, state: Path) -> None:
        kube.put(DEPLOYMENT, deployment())
        kube.put(CRD, crd("rayclusters.ray.io"))
        kube.put(NAMESPACE, named("team"))
        kube.expected = ASKED
        self.kube = kube
        self.site = Site(state, {"TRAINYARD_OWNER": "bob@lab"}, "kuberay")
        self.pinned = PINNED
        self.asked: list[str | None] = []

    def steps(
        self, file: ClusterSpec | None = None, *, recreate: bool = False, adopt: bool = False
    ) -> list[Step]:
        """Return the steps, all that is asked for them asked."""
        file = file or spec()
        site = self.site.wishing(recreate=recreate, adopt=adopt)
        (stage,) = up.up_steps(file, site, file.kuberay)
        steps = stage.expand()
        refuse_lost_ids(steps)
        return [step for step in steps if isinstance(step, Step)]

    def step(self, title: str, file: ClusterSpec | None = None, **flags: bool) -> Step:
        return next(step for step in self.steps(file, **flags) if step.title.startswith(title))

    def made(self, file: ClusterSpec | None = None, *, started: bool = True) -> Object:
        """Return the RayCluster as `cluster.up` made it; `started`: its head was ready once."""
        run(self.step("Make the RayCluster", file))
        found = self.kube.objects[(RAY_CLUSTER.plural, "team", "lab")]
        found["status"] = {
            "conditions": [{"type": "HeadPodReady", "status": "True" if started else "False"}]
        }
        self.kube.changed.clear()
        return found

    def resolve(
        self, spec: ClusterSpec, environ: object, *, directory: Path, running: str | None = None
    ) -> PinnedImage:
        if spec.image != PINNED.name:
            raise AssertionError(f"unprepared question to the registry: {spec.image}")
        self.asked.append(running)
        return self.pinned


@pytest.fixture
def yard(monkeypatch: pytest.MonkeyPatch, kube: FakeKube, helm: FakeHelm, tmp_path: Path) -> Yard:
    helm.kube = kube
    yard = Yard(kube, tmp_path / "state")
    monkeypatch.setattr(resolve, "pinned", yard.resolve)
    return yard


def run(step: Step) -> None:
    if not step.done().holds:
        step.do()
    assert step.done().holds


def titles(steps: list[Step]) -> list[str]:
    return [step.title for step in steps]


def test_nothing_is_asked_before_the_first_stage_is_expanded(yard: Yard) -> None:
    yard.kube.refusals["get"] = ApiUnreachableError("the Kubernetes API does not answer")
    file = spec()
    (stage,) = up.up_steps(file, yard.site, file.kuberay)
    assert isinstance(stage, Stage)
    with pytest.raises(ApiUnreachableError):
        stage.expand()


def test_a_cluster_is_made_in_this_order_and_then_nothing_is_written(yard: Yard) -> None:
    steps = yard.steps(spec(kuberay={"storage": {"size": "1GiB", "storage_class": "fast"}}))
    assert titles(steps) == [
        "Record the cluster's location",
        "Check the KubeRay operator",
        "Make namespace team",
        "Set the login for the image",
        "Make the cluster's token",
        "Make the claim lab-outputs for outputs",
        "Make the RayCluster lab",
        BUDGET,
        "All 2 nodes answer",
    ]

    live = yard.made()
    assert live["metadata"]["annotations"]["io.trainyard/image"] == PINNED.reference
    assert yard.step("Make the RayCluster").done().holds
    assert yard.kube.changed == []


def test_a_changed_worker_count_is_applied_and_named_in_the_title(yard: Yard) -> None:
    yard.made()
    step = yard.step("Change", spec(workers=[{"name": "gpu", "count": 2}]))
    assert step.title == "Change the RayCluster: workers.gpu.count: 1 now, 2 desired"
    run(step)
    assert yard.kube.changed == ["apply RayCluster lab"]
    assert yard.step("Change", spec(workers=[{"name": "gpu", "count": 1}])).disruptive


def test_a_change_that_kuberay_ignores_replaces_the_cluster_if_asked(yard: Yard) -> None:
    yard.made()
    other = spec(head={"memory": "4GiB"})
    planned = yard.steps(other)
    meant = yard.steps(other, recreate=True)
    last = ["Remove the former cluster", "Make the RayCluster lab", BUDGET, "All 2 nodes answer"]
    assert titles(meant)[-4:] == last
    assert titles(planned) == ["Replace the whole cluster", *titles(meant)]
    assert meant[-4].disruptive
    run(meant[-4])
    assert yard.kube.deleted == ["RayCluster lab"]


def test_a_cluster_that_never_started_is_replaced_without_being_asked_to(yard: Yard) -> None:
    yard.made(started=False)
    assert titles(yard.steps())[-3:] == ["Make the RayCluster lab", BUDGET, "All 2 nodes answer"]
    steps = yard.steps(spec(head={"memory": "4GiB"}))
    assert titles(steps)[-4:] == [
        "Remove the cluster that never started",
        "Make the RayCluster lab",
        BUDGET,
        "All 2 nodes answer",
    ]
    assert not steps[-4].disruptive


def test_the_same_image_under_another_name_is_no_difference(yard: Yard) -> None:
    yard.made()
    yard.pinned = PinnedImage("mirror:5000/ray:1", f"mirror:5000/ray@{DIGEST}", DIGEST)
    assert yard.step("Make the RayCluster").done().holds
    yard.pinned = PinnedImage("r:5000/team/ray:2", "r:5000/team/ray@sha256:b", "sha256:b")
    assert yard.steps()[0].title == "Replace the whole cluster"
    assert yard.asked[-1] == PINNED.reference


def test_crds_that_are_older_than_their_operator_are_named(yard: Yard) -> None:
    yard.made()
    yard.kube.refusals["patch"] = InvalidError(".spec.authOptions: field not declared in schema")
    with pytest.raises(PrerequisiteError) as error:
        yard.steps()
    assert error.value.what == (
        "the CRD of RayClusters is older than the KubeRay operator: Helm does not upgrade CRDs"
    )


def test_a_former_cluster_is_gone_with_its_pods_before_another_is_made(yard: Yard) -> None:
    former: Object = {"metadata": {"name": "lab", "uid": "uid-old"}}
    yard.kube.put(POD, named("lab-head", ray="lab", owner=former))
    step = yard.step("Remove the former cluster")
    assert step.done().detail == "still there: lab-head"
    del yard.kube.objects[(POD.plural, "team", "lab-head")]
    assert step.done().holds


def test_a_cluster_that_others_made_is_taken_and_said(yard: Yard) -> None:
    yard.made()
    step = yard.step("Record")
    run(step)
    assert step.done().detail == "cluster lab was there already"
    assert yard.step("Record").done().detail == ""


def test_printed_documents_hide_variables_named_like_secrets(yard: Yard) -> None:
    file = spec(env={"HF_TOKEN": "hunter2", "MODE": "fast"}, kuberay={"storage": {"size": "1GiB"}})
    found = up.documents(file, yard.site)
    assert [document["kind"] for document in found] == [
        "Namespace",
        "PersistentVolumeClaim",
        "RayCluster",
        "PodDisruptionBudget",
    ]
    assert "hunter2" not in str(found)
    variables = found[-2]["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "HF_TOKEN", "value": "(hidden)"} in variables
    assert {"name": "MODE", "value": "fast"} in variables


def test_a_leash_goes_with_its_ray_cluster_and_secrets_outlive_it(yard: Yard) -> None:
    leashed = spec(leash={"idle": 7200.0})
    yard.step("Make the cluster's token", leashed).do()
    live = yard.made(leashed)
    live["metadata"]["creationTimestamp"] = "2026-11-23T08:00:00Z"
    yard.site.state.mkdir()
    assert titles(yard.steps(leashed))[-3:] == [
        "Set the leash: idle 2h",
        "All 2 nodes answer",
        "The leash holds",
    ]

    run(yard.step("Set the leash", leashed))
    uid = live["metadata"]["uid"]
    kinds = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, DEPLOYMENT)
    made = {kind.name: yard.kube.objects[(kind.plural, "team", "lab-leash")] for kind in kinds}
    secret = yard.kube.objects[(SECRET.plural, "team", "lab")]
    assert {
        owner["uid"]
        for each in (*made.values(), secret)
        for owner in each["metadata"]["ownerReferences"]
    } == {uid}

    rule = {
        "apiGroups": ["ray.io"],
        "resources": ["rayclusters"],
        "resourceNames": ["lab"],
        "verbs": ["delete"],
    }

    assert made["Role"]["rules"] == [rule]
    given = json.loads(
        made["Deployment"]["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    )
    assert (given["dashboard"], given["kubernetes"]["uid"]) == ("http://lab-head-svc:8265", uid)
    run(yard.step("Remove the former cluster", leashed, recreate=True))
    assert yard.kube.names(SECRET) == {"lab"}
    assert not any("lab-leash" in yard.kube.names(kind) for kind in kinds)


def test_a_leash_that_the_file_no_longer_has_is_taken_off(yard: Yard) -> None:
    leashed = spec(leash={"idle": 7200.0})
    yard.made(leashed)["metadata"]["creationTimestamp"] = "2026-11-23T08:00:00Z"
    yard.site.state.mkdir()
    run(yard.step("Set the leash", leashed))
    run(yard.step("Take the leash off"))
    assert "lab-leash" not in yard.kube.names(DEPLOYMENT)


def test_all_lacking_rights_are_named_before_anything_is_made(yard: Yard) -> None:
    yard.kube.lacking = ("delete rayclusters", "get secrets", "delete secrets", "patch deployments")
    with pytest.raises(PrerequisiteError) as error:
        yard.steps(spec(leash={"idle": 60.0}))

    assert error.value.lines() == [
        "user ops lacks rights that cluster lab needs",
        "  at namespace team of context lab",
        "  - rayclusters.ray.io: delete",
        "  - secrets: get, delete",
        "  - deployments.apps: patch",
        "  -> A Role with all of them is in docs/kuberay.md, under `Rights`: have it applied by "
        "an administrator of this Kubernetes.",
    ]

    assert yard.kube.created == []


def test_a_cluster_that_is_as_its_file_says_needs_no_right_to_change_it(yard: Yard) -> None:
    yard.made()
    yard.kube.lacking = ("delete rayclusters", "patch rayclusters")
    assert yard.step("Make the RayCluster").done().holds


def test_a_foreign_cluster_is_used_unchanged_and_changed_only_with_adopt(yard: Yard) -> None:
    live = yard.made()
    larger = spec(workers=[{"name": "gpu", "count": 2}])
    live["metadata"]["annotations"]["io.trainyard/owner"] = "alice@laptop"
    live["metadata"]["creationTimestamp"] = "2026-11-23T08:00:00Z"
    assert yard.steps()[0].title == "Record the cluster's location"
    (step, *_) = yard.steps(larger)
    assert (step.needs, step.done().detail) == (
        "--adopt",
        "needs --adopt: cluster lab belongs to alice@laptop, you are bob@lab",
    )

    with pytest.raises(RequestError) as error:
        step.do()

    assert error.value.lines() == [
        "cluster lab belongs to alice@laptop",
        "  at you are bob@lab",
        "  -> Ask them, or rename your cluster (`name:` in its file). If it is yours on another "
        "machine: export TRAINYARD_OWNER=alice@laptop. To take it over: "
        "trainyard cluster.up --adopt",
    ]

    assert yard.steps(recreate=True)[0].needs == "--adopt"
    assert yard.steps(spec(leash={"idle": 60.0}))[0].needs == "--adopt"
    run(yard.step("Take the cluster over from alice@laptop", larger, adopt=True))
    assert yard.steps(larger)[0].title == "Record the cluster's location"


def test_a_change_of_a_cluster_leaves_its_owner(yard: Yard) -> None:
    live = yard.made()
    larger = spec(workers=[{"name": "gpu", "count": 2}])
    assert live["metadata"]["annotations"]["io.trainyard/owner"] == "bob@lab"
    del live["metadata"]["annotations"]["io.trainyard/owner"]
    run(yard.step("Change", larger))
    made = yard.kube.objects[(RAY_CLUSTER.plural, "team", "lab")]
    assert not made["metadata"]["annotations"]["io.trainyard/owner"]


def test_leftovers_of_another_user_s_cluster_are_theirs(yard: Yard) -> None:
    claim = named("lab-outputs", cluster="lab")
    claim["metadata"]["annotations"] = {"io.trainyard/owner": "alice@laptop"}
    yard.kube.put(CLAIM, claim)
    assert yard.steps()[0].needs == "--adopt"


def test_the_disruption_budget_belongs_to_the_ray_cluster_and_can_be_off(yard: Yard) -> None:
    live = yard.made()
    run(yard.step(BUDGET))
    made = yard.kube.objects[(PDB.plural, "team", "lab-nodes")]
    assert made["spec"] == {
        "minAvailable": 1,
        "selector": {"matchLabels": {"ray.io/cluster": "lab", "ray.io/node-type": "head"}},
    }
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [
        live["metadata"]["uid"]
    ]
    live["metadata"]["uid"] = "uid-new"
    assert yard.step(BUDGET).done().detail == "it is the former cluster's"
    without = spec(kuberay={"disruption_budget": False})
    run(yard.step("Remove the PodDisruptionBudget lab-nodes", without))
    assert yard.kube.names(PDB) == set()
