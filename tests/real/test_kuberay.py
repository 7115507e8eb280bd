"""Ray clusters on Kubernetes, by a user with a kubeconfig and Helm: made, used, removed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.real import flavour, matrix, own_files
from tests.real import kube as kubernetes
from tests.real.forwarded import assert_forwarded
from tests.real.jobs import end_of, newest, runs, write_job
from tests.real.kube import RAY_IMAGE
from tests.real.yard import Yard, wait_until

SPACE = "lab"
# The head takes no tasks.
LAB: dict[str, Any] = {
    "head": {"cpus": 0, "memory": "1GiB"},
    "workers": [
        {
            "name": "cpu",
            "count": 2,
            "cpus": 1,
            "memory": "1GiB",
            "resources": {"A100": 2},
            "labels": {"zone": "a"},
            "ray_start": {"metrics-export-port": 18080},
        }
    ],
    "env": {"PRICE": "5$HOME"},
    "kuberay": {
        "spread": "required",
        "groups": {
            "cpu": {"requests": {"cpus": 0.2, "memory": "200MiB"}, "labels": {"app": "worker-pod"}}
        },
    },
}
SMALL = {"head": {"cpus": 1, "memory": "1GiB"}}
SECOND = {**SMALL, "kuberay": {"storage": {"size": "1GiB", "access": "ReadWriteOnce"}}}
CHANGED = {**SECOND, "env": {"PRICE": "six"}}
GROWS = {
    "head": {"cpus": 0, "memory": "1GiB"},
    "workers": [
        {"name": "burst", "min": 0, "max": 2, "cpus": 1, "memory": "512MiB", "idle_timeout": "5s"}
    ],
}
BY_HAND = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: by-hand, namespace: {space}}}
spec:
  rayVersion: "2.60.0"
  authOptions: {{mode: token}}
  headGroupSpec:
    rayStartParams: {{num-cpus: "1", memory: "500000000"}}
    template:
      spec:
        containers:
          - name: ray-head
            image: {image}
            resources: {{requests: {{cpu: 100m, memory: 128Mi}}, limits: {{cpu: "1", memory: 1Gi}}}}
"""
WIDE = """
    command: [hostname]
    matrix: {i: [0, 1]}
    env: {I: "{i}"}
    together: true
    resources: {share: 1}
    node: {group: burst}
"""
# The first attempt waits after its checkpoint; one that resumes ends soon.
STEPS = """
    import os, pathlib, time
    place = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"], "step")
    step = int(place.read_text()) if place.exists() else 0
    print("begins at", step, flush=True)
    place.write_text(str(step + 10))
    time.sleep(0.6 if step else 600)
"""
WHERE = """
    command: [sh, -c, "hostname; echo $PRICE $FLAVOUR > $TRAINYARD_OUTPUT/price"]
    resources: {cpus: 1, custom: {A100: 2}}
"""


@pytest.fixture(scope="module")
def lab(kube: KubeBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a head and two workers on three hosts; the operator's chart is a directory.

    After the tests nothing of the cluster and the operator is left.
    """
    kube.publish(RAY_IMAGE)
    wait_until(
        lambda: kubernetes.general(kube) == [], seconds=120, what="what another test left is gone"
    )
    lab = kubernetes.yard(kube, tmp_path_factory.mktemp("lab"), "lab")
    kube.publish(flavour.make(kube.engine))
    workers = [{**LAB["workers"][0], "image": f"{kube.registry}/{flavour.FLAVOUR}"}]
    kubernetes.write(kube, lab, {**LAB, "workers": workers}, namespace=SPACE)

    with lab.up("--purge"):
        yield lab

    assert not lab.state.exists()
    assert kubernetes.belongings(kube, "lab") == []
    assert kubernetes.general(kube) == []
    assert kubernetes.one(kube, "namespace", SPACE) is None
    assert kubernetes.one(kube, "namespace", "kuberay-system") is None


@pytest.fixture(scope="module")
def second(kube: KubeBed, lab: Yard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give another cluster in the same namespace: only a head, with a claim for outputs."""
    second = kubernetes.yard(kube, tmp_path_factory.mktemp("second"), "second")
    kubernetes.write(kube, second, SECOND, namespace=SPACE)
    with second.up():
        yield second
    assert kubernetes.belongings(kube, "second") == []


@pytest.fixture(scope="module")
def by_hand(kube: KubeBed, lab: Yard) -> Iterator[str]:
    """Give the name of a cluster that another user made with kubectl in the same namespace."""
    kube.apply(BY_HAND.format(space=SPACE, image=f"{kube.registry}/{RAY_IMAGE}"))
    try:
        wait = (
            "wait",
            "-n",
            SPACE,
            "rayclusters.ray.io/by-hand",
            "--for=jsonpath={.status.state}=ready",
        )
        kube.kubectl(*wait, "--timeout=200s", seconds=220)
        yield "by-hand"
    finally:
        kube.kubectl("delete", "rayclusters.ray.io", "by-hand", "-n", SPACE)
        wait_until(
            lambda: not kubernetes.belongings(kube, "by-hand"), seconds=90, what="by-hand is gone"
        )


@pytest.fixture
def other(kube: KubeBed, lab: Yard, tmp_path: Path) -> Iterator[Yard]:
    """Give a place for another cluster in the same namespace; it is removed after the test."""
    other = kubernetes.yard(kube, tmp_path, "other")
    yield other
    other.remove_all()
    assert kubernetes.belongings(kube, "other") == []


def test_cartpole_trains_on_three_hosts_from_the_pushed_image(
    kube: KubeBed, engine: BedEngine, tmp_path: Path
) -> None:
    kube.publish(RAY_IMAGE)
    wait_until(
        lambda: kubernetes.general(kube) == [], seconds=120, what="what another test left is gone"
    )
    site = kubernetes.yard(kube, tmp_path, "kuberay")

    with engine.trusting(kube.registry), kube.chart_repository() as charts:
        kubernetes.as_shipped(kube, site, {"operator": {"repository": charts}})
        try:
            pushed = site.json("image.push")["reference"]
            documents = site.json("cluster.plan")["documents"]
            assert "RayCluster" in {one["kind"] for one in documents}
            site.run("cluster.up")
            hosts = kubernetes.hosts_of(kube, "kuberay", namespace="trainyard")
            assert sorted(hosts.values()) == ["host-1", "host-2", "host-3"]
            run_by = {
                container["image"]
                for pod in kubernetes.pods(kube, "kuberay", namespace="trainyard").values()
                for container in pod["spec"]["containers"]
            }

            assert run_by == {pushed}
            verified = site.json("image.verify")
            assert verified["ok"]
            assert sorted(one["host"] for one in verified["hosts"]) == [
                "host-1",
                "host-2",
                "host-3",
            ]

            assert {one["reference"] for one in verified["hosts"]} == {pushed}
            wait_until(
                lambda: len(kubernetes.objects(kube, "pods", "-n", "trainyard")) == len(hosts),
                seconds=30,
                what="the pods that tried the image are gone",
            )

            assert site.json("smoke.run")["ok"]

            site.run("train.dispatch", "cartpole")

            run = next(site.results.glob("cartpole-*"))
            assert json.loads((run / "run.json").read_text())["image"] == pushed
            tasks = site.json("train.status")["tasks"]
            assert {node for node in hosts if node != "head"} <= {
                task["attempts"][0]["node"] for task in tasks
            }

            for task in tasks:
                assert list((run / "outputs" / task["name"]).iterdir())

            assert kubernetes.general(kube) != []
        finally:
            site.run("cluster.down", "--end-runs", "--purge")

    assert kubernetes.belongings(kube, "kuberay") == []
    assert kubernetes.general(kube) == []
    assert kubernetes.one(kube, "namespace", "trainyard") is None
    assert kubernetes.one(kube, "namespace", "kuberay-system") is None
    assert not site.state.exists()


@pytest.mark.lifecycle
def test_status_list_and_logs_name_every_node(lab: Yard, kube: KubeBed) -> None:
    hosts = kubernetes.hosts_of(kube, "lab", namespace=SPACE)
    assert sorted(hosts.values()) == ["host-1", "host-2", "host-3"]
    now = lab.json("cluster.status")
    assert now["state"] == "up"
    assert {node["name"]: node["host"] for node in now["nodes"]} == hosts
    assert [(node["group"], node["cpus"]) for node in now["nodes"]] == [
        ("head", 0),
        ("cpu", 1),
        ("cpu", 1),
    ]

    assert kubernetes.listed(lab)["lab"] == "up"
    assert lab.json("cluster.doctor")["ok"]
    lines = lab.run("cluster.logs", "--no-follow").stdout.splitlines()
    assert {line.split()[0] for line in lines} == set(hosts)
    worker = min(hosts)
    lines = lab.run("cluster.logs", worker, "--no-follow").stdout.splitlines()
    assert {line.split()[0] for line in lines} == {worker}
    done = lab.run("cluster.shell", worker, "--command", "hostname; exit 7", expect=7)
    assert done.stdout == f"lab-cpu-worker-{worker.rpartition('-')[2]}\n"
    pod = done.stdout.strip()
    assert lab.run("cluster.shell", pod, "--command", "hostname").stdout == done.stdout
    unknown = lab.run("cluster.shell", "haed", expect=2)
    assert "has no node 'haed'; did you mean 'head'?" in unknown.stderr
    assert_forwarded(lab, worker)


def test_the_token_is_printed_by_open_s_command_and_kept_nowhere_here(
    lab: Yard, kube: KubeBed
) -> None:
    opened = lab.json("--dry", "cluster.open")
    assert opened["token_file"] is None
    token = token_of(kube, "lab")
    pasted = subprocess.run(
        ["sh", "-c", opened["token_command"]],
        env={**os.environ, **kube.environ()},
        capture_output=True,
        text=True,
    )
    assert pasted.stdout == token
    for path in (path for path in lab.home.rglob("*") if path.is_file()):
        assert token.encode() not in path.read_bytes(), path


def test_up_again_changes_nothing(lab: Yard, second: Yard, kube: KubeBed) -> None:
    kubernetes.settled(kube, SPACE)
    before = everything(kube)
    assert {"RayCluster/lab", "Secret/lab", "PersistentVolumeClaim/second-outputs"} <= set(before)
    assert {f"Namespace/{SPACE}", "Namespace/kuberay-system", "Deployment/kuberay-operator"} <= set(
        before
    )
    assert "CustomResourceDefinition/rayclusters.ray.io" in before
    for yard in (lab, second):
        assert {step["state"] for step in yard.json("cluster.plan")["steps"]} == {"already"}
        assert not any(step["changed"] for step in yard.json("cluster.up")["steps"])
    assert everything(kube) == before


@pytest.mark.lifecycle
def test_a_job_runs_on_each_worker_with_the_environment_of_the_file(
    lab: Yard, kube: KubeBed
) -> None:
    write_job(lab, "where", WHERE + "    matrix: {i: [0, 1]}\n    env: {I: '{i}'}")
    lab.run("train.dispatch", "where", "--skip-smoke")
    run = newest(lab)
    nodes = {task["attempts"][0]["node"] for task in lab.json("train.status")["tasks"]}
    assert nodes == set(kubernetes.hosts_of(kube, "lab", namespace=SPACE)) - {"head"}
    assert {path.read_text() for path in run.glob("outputs/*/price")} == {"5$HOME workers\n"}


def test_a_group_asks_for_its_own_and_ray_has_its_labels_and_parameters(
    lab: Yard, kube: KubeBed
) -> None:
    program = "import json, ray; ray.init(); print(json.dumps(ray.nodes()))"
    said = lab.run("cluster.shell", "head", "--command", f"python -c '{program}'").stdout
    nodes = json.loads(said.splitlines()[-1])
    found = sorted(
        (node["Labels"].get("zone", ""), node["MetricsExportPort"] == 18080) for node in nodes
    )
    assert found == [("", False), ("a", True), ("a", True)]
    pods = kubernetes.pods(kube, "lab", namespace=SPACE).values()
    ours = [pod for pod in pods if pod["metadata"]["labels"].get("app") == "worker-pod"]
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in ours]
    assert requests == [{"cpu": "200m", "memory": "200Mi"}] * 2


def test_ray_tasks_and_actors_of_a_command_have_its_environment(lab: Yard) -> None:
    directory = matrix.write(lab, "pip")
    lab.run("train.dispatch", directory.name, "--skip-smoke", expect=1)
    printed = (newest(lab) / "logs" / f"{directory.name}.1.log").read_text()
    assert matrix.found(printed) == matrix.everywhere(nodes=2)


def test_each_attempt_has_files_of_its_own(lab: Yard) -> None:
    own_files.of_a_matrix_with_retries(lab)
    own_files.of_tasks_together(lab)
    own_files.of_actors(lab)


def test_scale_changes_one_group_and_says_what_the_file_still_says(
    lab: Yard, kube: KubeBed
) -> None:
    before = kubernetes.uids(kube, "lab", namespace=SPACE)
    fewer = lab.run("cluster.scale", "cpu=1")
    file = lab.home / "clusters" / "lab.yaml"
    note = (
        f"note: cpu: 2 in the file, 1 now; write it into {file} to keep it, or the next "
        "cluster.up undoes it"
    )
    assert note in fewer.stderr.splitlines()
    after = kubernetes.uids(kube, "lab", namespace=SPACE)
    assert len(after) == 2
    assert after.items() <= before.items()
    checks = lab.json("smoke.run", "--set", "workers.cpu.count=1")["checks"]
    assert {check["node"] for check in checks} == {*after, None}
    assert "in the file" not in lab.run("cluster.scale", "cpu=2").stderr
    assert len(lab.states()) == 3
    assert set(lab.states().values()) == {"up"}
    assert kubernetes.uids(kube, "lab", namespace=SPACE)["head"] == before["head"]
    unknown = lab.run("cluster.scale", "gpu=1", expect=2)
    assert "workers has no entry 'gpu'" in unknown.stderr


def test_recreate_replaces_the_head_and_keeps_the_token_and_outputs(
    second: Yard, kube: KubeBed
) -> None:
    write_job(second, "keep", "command: [sh, -c, 'echo kept > /outputs/file']\n")
    second.run("train.dispatch", "keep", "--skip-smoke")
    before = kubernetes.uids(kube, "second", namespace=SPACE)
    token = token_of(kube, "second")
    kubernetes.write(kube, second, CHANGED, namespace=SPACE)
    second.run("cluster.up", "--recreate")
    assert kubernetes.uids(kube, "second", namespace=SPACE)["head"] != before["head"]
    assert token_of(kube, "second") == token
    write_job(second, "look", "command: [sh, -c, 'cat /outputs/file; echo $PRICE']\n")
    second.run("train.dispatch", "look", "--skip-smoke")
    assert (newest(second) / "logs" / "look.1.log").read_text() == "kept\nsix\n"


def test_a_checkpoint_on_a_claim_outlives_its_head_and_is_resumed(
    second: Yard, kube: KubeBed
) -> None:
    write_job(second, "steps", "command: [python, steps.py]\n", steps=STEPS)
    before = runs(second)
    operator = second.start("train.dispatch", "steps", "--skip-smoke")

    def has_a_checkpoint() -> bool:
        paths = [run / "events.jsonl" for run in runs(second) - before]
        return any('"event":"checkpoint"' in path.read_text() for path in paths if path.exists())

    wait_until(has_a_checkpoint, seconds=90, what="a checkpoint is on the claim")
    (run,) = runs(second) - before
    head = kubernetes.uids(kube, "second", namespace=SPACE)["head"]
    kube.kubectl(
        "delete", "pod", "-n", SPACE, "-l", "ray.io/cluster=second", "--grace-period=0", "--force"
    )
    code, output = end_of(operator, seconds=120)
    assert code == 6, output
    second.run("cluster.up")
    assert kubernetes.uids(kube, "second", namespace=SPACE)["head"] != head

    gone = second.run("train.fetch", run.name, "--checkpoints", expect=4).stderr
    assert (
        f"checkpoints of run {run.name} are on storage of cluster second, "
        "/outputs/.trainyard/second"
    ) in gone
    again = second.run("train.resume", run.name, "--skip-smoke")
    assert f"resumes {run.name}: from their checkpoints: steps" in again.stderr
    assert (newest(second) / "logs" / "steps.1.log").read_text() == "begins at 10\n"
    assert (newest(second) / "checkpoints" / "steps" / "step").read_text() == "20"


def test_a_new_group_comes_without_touching_the_others(second: Yard, kube: KubeBed) -> None:
    before = kubernetes.uids(kube, "second", namespace=SPACE)
    extra = {"name": "extra", "count": 1, "cpus": 1, "memory": "512MiB"}
    kubernetes.write(kube, second, {**CHANGED, "workers": [extra]}, namespace=SPACE)
    second.run("cluster.up")
    assert kubernetes.uids(kube, "second", namespace=SPACE).items() > before.items()
    assert sorted(node["group"] for node in second.json("cluster.status")["nodes"]) == [
        "extra",
        "head",
    ]
    kubernetes.write(kube, second, CHANGED, namespace=SPACE)
    gone = second.run("cluster.up", expect=2)
    assert "workers.extra is gone" in gone.stderr
    kubernetes.write(kube, second, {**CHANGED, "workers": [{**extra, "count": 0}]}, namespace=SPACE)
    second.run("cluster.up")
    assert kubernetes.uids(kube, "second", namespace=SPACE) == before


@pytest.mark.usefixtures("second")
def test_a_cluster_made_by_hand_is_never_touched(
    lab: Yard, by_hand: str, kube: KubeBed, tmp_path: Path
) -> None:
    theirs, ours = mark_of(kube, by_hand), kubernetes.uids(kube, "lab", namespace=SPACE)
    same = kubernetes.yard(kube, tmp_path, by_hand)
    kubernetes.write(kube, same, SMALL, namespace=SPACE)

    for task in (
        ("cluster.up",),
        ("cluster.up", "--recreate"),
        ("cluster.status",),
        ("train.dispatch", "cartpole"),
    ):
        refused = same.run(*task, expect=2)
        said = (
            "error: a RayCluster called by-hand is in namespace lab, and Trainyard did not make it"
        )
        assert said in refused.stderr
        assert mark_of(kube, by_hand) == theirs

    for yard, count, listed in (
        (
            same,
            "3 others need it",
            "RayCluster lab/by-hand, RayCluster lab/lab, RayCluster lab/second",
        ),
        (lab, "2 others need it", "RayCluster lab/by-hand, RayCluster lab/second"),
    ):
        refused = yard.run("cluster.down", "--purge", expect=2)
        assert refused.stderr.splitlines()[-3:] == [
            f"error: the KubeRay operator is not removed: {count}",
            f"  at {listed}",
            "  -> Leave out --purge: then only this cluster is removed. Or remove the other objects first.",
        ]
        assert mark_of(kube, by_hand) == theirs

    same.run("cluster.down")
    assert mark_of(kube, by_hand) == theirs
    assert kubernetes.uids(kube, "lab", namespace=SPACE) == ours
    assert set(lab.states().values()) == {"up"}


def test_a_cluster_made_by_hand_is_found_by_its_service_after_a_new_head(
    by_hand: str, kube: KubeBed, tmp_path: Path
) -> None:
    theirs = kubernetes.yard(kube, tmp_path, by_hand)
    before = mark_of(kube, by_hand)
    listed = {
        one["name"]: one for one in theirs.json("cluster.list", "--context", "bed")["clusters"]
    }
    assert (listed[by_hand]["state"], listed[by_hand]["place"]) == (
        "up",
        f"namespace {SPACE} of context bed",
    )
    assert "made by another tool; a file for it: " in listed[by_hand]["problem"]
    theirs.run("cluster.import", "--context", "bed", by_hand)
    steps = theirs.json("cluster.up")["steps"]
    assert [(step["title"], step["changed"]) for step in steps] == [
        (f"Ray answers at {SPACE}/by-hand-head-svc", False)
    ]
    status = theirs.json("cluster.status")
    assert (status["state"], len(status["nodes"])) == ("up", 1)
    assert status["tunnel"] == f"service by-hand-head-svc in namespace {SPACE} of context bed"
    assert theirs.json("smoke.run")["ok"] is True
    theirs.run("cluster.down")
    assert mark_of(kube, by_hand) == before
    kube.kubectl("delete", "pods", "-n", SPACE, "-l", f"ray.io/cluster={by_hand}", "--wait=true")
    wait_until(
        lambda: theirs.json("cluster.status")["state"] == "up",
        seconds=120,
        what="it is found again",
    )


def test_a_run_gets_the_nodes_that_it_needs_and_they_go_when_it_is_over(
    other: Yard, kube: KubeBed
) -> None:
    kubernetes.write(kube, other, GROWS, namespace=SPACE)
    other.run("cluster.up")
    assert list(other.states()) == ["head"]
    # The job needs both nodes at once: adding them one by one would never start it.
    write_job(other, "wide", WIDE)
    other.run("train.dispatch", "wide")
    tasks = other.json("train.status")["tasks"]
    nodes = {task["attempts"][0]["node"] for task in tasks}
    assert len(nodes) == 2
    assert all(node.startswith("burst-") for node in nodes)
    report = (newest(other) / "report.html").read_text()
    assert all(node in report for node in nodes)
    wait_until(
        lambda: list(kubernetes.pods(kube, "other", namespace=SPACE)) == ["head"],
        seconds=150,
        what="the nodes that are idle are gone",
    )

    now = other.json("cluster.status")
    assert now["state"] == "up"
    assert {step["state"] for step in other.json("cluster.plan")["steps"]} == {"already"}


def everything(kube: KubeBed) -> dict[str, str]:
    """Return the resourceVersion of all objects that cluster.up makes."""
    names = {SPACE, "kuberay-system"}
    found = kubernetes.objects(kube, "namespaces,customresourcedefinitions")
    ours = (
        one
        for one in found
        if one["metadata"]["name"] in names or one["metadata"]["name"].endswith(".ray.io")
    )

    return {
        **{
            f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
            for one in ours
        },
        **kubernetes.versions(kube, "kuberay-system", "deployments,secrets,serviceaccounts"),
        **kubernetes.versions(kube, SPACE, ",".join(kubernetes.KINDS)),
    }


def token_of(kube: KubeBed, cluster: str) -> str:
    secret = kubernetes.one(kube, "secret", cluster, namespace=SPACE)
    assert secret is not None
    return base64.b64decode(secret["data"]["auth_token"]).decode()


def mark_of(kube: KubeBed, cluster: str) -> list[str]:
    """Return uids and versions of what a change of a cluster touches: RayCluster, Secret, pods."""
    made = kubernetes.one(kube, "rayclusters.ray.io", cluster, namespace=SPACE)
    secret = kubernetes.one(kube, "secret", cluster, namespace=SPACE)
    assert made is not None and secret is not None
    versions = [one["metadata"]["resourceVersion"] for one in (made, secret)]
    return [
        made["metadata"]["uid"],
        *versions,
        *kubernetes.uids(kube, cluster, namespace=SPACE).values(),
    ]
