"""Causes that `cluster.up` names when Kubernetes does not run the nodes, with their remedies."""

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
# Starts a head as usual; a worker ends with an error.
BROKEN_RAY = """#!/bin/sh
case "$*" in
  *"start --head"*|*health-check*) exec /opt/ray/bin/ray.whole "$@";;
esac
echo "no licence found" >&2
exit 9
"""
LAB = {
    "head": {"cpus": 1, "memory": "1GiB"},
    "workers": [{"name": "cpu", "count": 1, "cpus": 1, "memory": "512MiB"}],
    # Without a registry in the file no command asks it first: the hosts find out.
    "registry": None,
}

Make = Callable[..., Yard]


@pytest.fixture(scope="module")
def broken_image(kube: KubeBed) -> None:
    """Publish an image whose head starts and whose workers do not."""
    script = (
        "mv /opt/ray/bin/ray /opt/ray/bin/ray.whole && cat > /opt/ray/bin/ray "
        f"<<'END'\n{BROKEN_RAY}END\n"
    )
    script += "chmod 755 /opt/ray/bin/ray"
    kube.engine.docker("rm", "-f", "broken", check=False)
    kube.engine.docker(
        "run", "--user", "0", "--name", "broken", "--entrypoint", "sh", RAY_IMAGE, "-c", script
    )
    user = kube.engine.docker("inspect", "--format", "{{.Config.User}}", RAY_IMAGE).stdout.strip()
    changes = ["--change", "ENTRYPOINT []", *(["--change", f"USER {user}"] if user else [])]
    kube.engine.docker("commit", *changes, "broken", BROKEN)
    kube.engine.docker("rm", "broken")
    kube.publish(BROKEN)


@pytest.fixture
def make(kube: KubeBed, operator: None, tmp_path: Path) -> Iterator[Make]:
    """Give a function that writes a cluster's file; the cluster is removed after the test."""
    made: list[Yard] = []

    def write(name: str, *, image: str = RAY_IMAGE) -> Yard:
        yard = kubernetes.yard(kube, tmp_path / name, name)
        kubernetes.write(kube, yard, LAB, namespace=SPACE, image=image)
        made.append(yard)
        return yard

    yield write
    for yard in made:
        yard.run("cluster.down")


def _refused(yard: Yard, *options: str, expect: int) -> str:
    """Return the error of an `up` that fails; print the line before, which shows the progress."""
    done = yard.run("cluster.up", *options, expect=expect)
    before, _, said = done.stderr.partition("\nerror: ")
    assert "\nerror: " not in said
    assert "Traceback" not in done.stderr
    print(f"{yard.cluster} {' '.join(options)}: {before.splitlines()[-1].strip()}")
    return said.rstrip("\n")


def test_an_unschedulable_pod_is_reported_and_a_corrected_file_comes_up(make: Make) -> None:
    yard = make("nothing")
    said = _refused(
        yard, "--set", "workers.0.cpus=64", "--set", "kuberay.requests.cpus=64", expect=3
    )
    assert re.match(r"cpu-\w{5} found no room for 64 cpu", said)
    yard.run("cluster.up", "--recreate")
    assert set(yard.states().values()) == {"up"}


def test_an_image_that_is_not_there_is_named_with_its_registry(kube: KubeBed, make: Make) -> None:
    said = _refused(make("none", image="trainyard-bed/none:1"), expect=6)
    image = f"{kube.registry}/trainyard-bed/none:1"
    assert (
        f" cannot pull the image {image}: registry {kube.registry} does not hold that image\n  "
        "at cluster none, "
    ) in said
    assert said.endswith("\n  -> Is its name right? To push one: trainyard image.push")


def test_a_worker_that_ends_says_how(broken_image: None, make: Make) -> None:
    said = _refused(make("broken", image=BROKEN), expect=6).splitlines()
    assert re.fullmatch(
        r"cpu-\w{5} ended while it was starting \(exit code 9\); the end of its log:", said[0]
    )
    assert "    no licence found" in said[1:3]
    assert re.fullmatch(
        r"  at cluster broken, namespace causes of context bed, on host-\d", said[-3]
    )
    assert said[-2] == "  - what was made stays: to remove it: trainyard cluster.down"
