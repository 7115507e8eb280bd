"""What `cluster.up` says when Kubernetes does not run the nodes: the one cause, named, with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real.kube import RAY_IMAGE
from tests.real.yard import Yard

pytestmark = pytest.mark.breaking
SPACE = "causes"
BROKEN = "trainyard-bed/broken:1"
# A head works; a worker does what its environment says.
BROKEN_RAY = """#!/bin/sh
case "$*" in
  *"start --head"*|*health-check*) exec /opt/ray/bin/ray.whole "$@";;
esac
case "$HOW" in
  memory) exec tail /dev/zero;;
  crash) echo "no licence found" >&2; exit 9;;
esac
exec /opt/ray/bin/ray.whole "$@"
"""
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: small}
spec: {hard: {limits.memory: 512Mi}}
"""
LAB = {
    "head": {"cpus": 1, "memory": "1GiB"},
    "workers": [{"name": "cpu", "count": 1, "cpus": 1, "memory": "512MiB"}],
    # Nobody is told of it who could ask it before the hosts do.
    "registry": None,
}

Make = Callable[..., Yard]


@pytest.fixture(scope="module")
def broken_image(kube: KubeBed) -> None:
    """Have an image of which workers do not start where the hosts find it."""
    script = f"mv /opt/ray/bin/ray /opt/ray/bin/ray.whole && cat > /opt/ray/bin/ray <<'END'\n{BROKEN_RAY}END\n"
    script += "chmod 755 /opt/ray/bin/ray"
    kube.engine.docker("rm", "-f", "broken", check=False)
    kube.engine.docker("run", "--user", "0", "--name", "broken", "--entrypoint", "sh", RAY_IMAGE, "-c", script)
    user = kube.engine.docker("inspect", "--format", "{{.Config.User}}", RAY_IMAGE).stdout.strip()
    changes = ["--change", "ENTRYPOINT []", *(["--change", f"USER {user}"] if user else [])]
    kube.engine.docker("commit", *changes, "broken", BROKEN)
    kube.engine.docker("rm", "broken")
    kube.publish(BROKEN)


@pytest.fixture
def make(kube: KubeBed, operator: None, tmp_path: Path) -> Iterator[Make]:
    """Give what writes a cluster's file; the cluster goes after the test."""
    made: list[Yard] = []

    def write(name: str, *, image: str = RAY_IMAGE, kubeconfig: Path | None = None, space: str = SPACE) -> Yard:
        yard = kubernetes.yard(kube, tmp_path / name, name, kubeconfig=kubeconfig)
        kubernetes.write(kube, yard, LAB, namespace=space, image=image)
        made.append(yard)
        return yard

    yield write
    for yard in made:
        yard.run("cluster.down")


def _refused(yard: Yard, *options: str, expect: int) -> str:
    """Return the error of an `up` that breaks; what stands before it says how far it came."""
    done = yard.run("cluster.up", *options, expect=expect)
    before, _, said = done.stderr.partition("\nerror: ")
    assert "\nerror: " not in said
    assert "Traceback" not in done.stderr
    print(f"{yard.cluster} {' '.join(options)}: {before.splitlines()[-1].strip()}")
    return said.rstrip("\n")


def test_what_cannot_be_is_said_by_kubernetes_and_a_corrected_file_goes_on(kube: KubeBed, make: Make) -> None:
    yard = make("nothing")
    said = _refused(yard, "--set", "workers.0.cpus=64", "--set", "kuberay.requests.cpus=64", expect=3)
    assert re.match(r"cpu-\w{5} found no room for 64 cpu", said)
    yard.run("cluster.up", "--recreate")
    assert set(yard.states().values()) == {"up"}


def test_a_quota_without_room_is_named(kube: KubeBed, make: Make) -> None:
    kube.kubectl("create", "namespace", "narrow")
    yard = make("narrow", space="narrow")
    try:
        kube.kubectl("apply", "-n", "narrow", "-f", "-", given=QUOTA)
        said = _refused(yard, expect=3).splitlines()
        assert said[0].startswith("a pod may not be made: exceeded quota: small, requested: limits.memory=1Gi")
    finally:
        yard.run("cluster.down")
        kube.kubectl("delete", "namespace", "narrow")


def test_an_image_that_is_not_there_is_named_with_its_registry(kube: KubeBed, make: Make) -> None:
    said = _refused(make("none", image="trainyard-bed/none:1"), expect=6)
    image = f"{kube.registry}/trainyard-bed/none:1"
    assert (
        f" cannot have the image {image}: registry {kube.registry} does not hold that image\n  at cluster none, "
        in said
    )
    assert said.endswith("\n  -> Is its name right? An image of ours gets there by: trainyard image.push")


def test_a_worker_that_ends_or_takes_too_much_memory_says_how(broken_image: None, make: Make) -> None:
    yard = make("broken", image=BROKEN)
    said = _refused(yard, "--set", "env.HOW=crash", expect=6).splitlines()
    assert re.fullmatch(r"cpu-\w{5} ended while it was starting \(exit code 9\); the end of its log:", said[0])
    assert "    no licence found" in said[1:3]
    assert re.fullmatch(r"  at cluster broken, namespace causes of context bed, on host-\d", said[-2])
    said = _refused(yard, "--set", "env.HOW=memory", "--recreate", expect=6).splitlines()
    assert re.fullmatch(r"cpu-\w{5} was killed: it used more than its memory \(512Mi\)", said[0])
    assert said[2] == "  -> Give it more `memory` in the cluster file: Ray alone takes about 1GiB, a head more."
    yard.run("cluster.up", "--recreate")
    assert set(yard.states().values()) == {"up"}


def test_a_cluster_that_no_operator_makes_says_so_to_whoever_may_not_look_for_one(kube: KubeBed, make: Make) -> None:
    yard = make("alone", space="mine", kubeconfig=kube.restricted("mine"))
    deployment = (f"deployment/{kubernetes.OPERATOR}", "-n", kubernetes.ADMINISTRATORS)
    kube.kubectl("scale", *deployment, "--replicas=0")
    kube.kubectl("wait", "--for=delete", "pod", "-n", kubernetes.ADMINISTRATORS, "--all", "--timeout=60s")
    try:
        said = _refused(yard, expect=3)
    finally:
        kube.kubectl("scale", *deployment, "--replicas=1")
        kube.kubectl("rollout", "status", *deployment, "--timeout=120s")
    first, place, hint = said.splitlines()
    assert first == "the KubeRay operator makes no pods for head, cpu"
    assert place == "  at cluster alone, namespace mine of context bed"
    assert hint.startswith("  -> Does it run, and does it watch this namespace (watchNamespace in its chart's values)?")
