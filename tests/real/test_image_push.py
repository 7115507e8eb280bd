"""An image that is pushed: its digest, what is sent of it again, and every host that runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed.engine import BedEngine
from tests.real import registries
from tests.real.registries import BedRegistry
from tests.real.yard import Yard
from trainyard import versions
from trainyard.images.build import Built
from trainyard.images.resolve import pinned
from trainyard.seams.docker.engine import connect
from trainyard.seams.processes import free_ports
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import Registry
from trainyard.spec.load import load_cluster

KB = 1000
MB = 1_000_000
DOCKERFILE = 'ARG BASE\nFROM ${BASE}\nENV PYTHONPATH=/opt/code\nCOPY files/ /\nCMD ["bash"]\n'
# Names of this run alone: the engine is shared.
NAME = f"pushed-{os.getpid()}"
BASE = f"push-test/base:{os.getpid()}"


@pytest.fixture(scope="module")
def running(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BedRegistry]:
    with registries.registry(engine, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def mine(engine: BedEngine, running: BedRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a directory with an image of the user's own, pushed, and a cluster that is to run it."""
    home = tmp_path_factory.mktemp("mine")
    yard = Yard(home, environ={**engine.environ(), "XDG_CACHE_HOME": str(home / "cache")})
    write_image(home, code="answer = 41\n")
    engine.docker("tag", "trainyard-bed/ray:1", BASE)
    cluster = {
        "name": "yard",
        "backend": "compose",
        "image": NAME,
        "registry": {"address": running.address, "namespace": "team/robots", "insecure": True},
    }
    (home / "clusters").mkdir()
    (home / "clusters" / "yard.yaml").write_text(json.dumps(cluster))
    push(yard)
    yield yard
    engine.docker("rmi", BASE, check=False)
    for image in engine.docker("images", "-q", "--no-trunc", f"trainyard/{NAME}").stdout.split():
        engine.docker("rmi", "-f", image, check=False)


def write_image(home: Path, *, code: str) -> None:
    files = home / "images" / NAME / "files" / "opt" / "code"
    files.mkdir(parents=True, exist_ok=True)
    (files / "mine.py").write_text(code)
    (home / "images" / NAME / "Dockerfile").write_text(DOCKERFILE)
    (home / "images" / NAME / "image.yaml").write_text(f"base: {BASE}\n")


def push(yard: Yard) -> Any:
    """Push without a look at it: what lint finds is tested elsewhere, and takes longer than the push."""
    return yard.json("image.push", "--skip-lint")


def test_push_gives_the_digest_that_runs(mine: Yard, engine: BedEngine, running: BedRegistry) -> None:
    pushed = push(mine)
    assert pushed["reference"] == f"{running.address}/team/robots/{NAME}@{pushed['digest']}"
    assert pushed["alias"].endswith(f"/team/robots/{NAME}:ray-{versions.RAY}")
    said = engine.docker("run", "--rm", pushed["reference"], "python", "-c", "import mine; print(mine.answer)")
    assert said.stdout == "41\n"


def test_an_unchanged_image_is_not_sent_again(mine: Yard, running: BedRegistry) -> None:
    before = running.bytes()
    pushed = push(mine)
    assert (pushed["layers_sent"], pushed["bytes_sent"]) == (0, 0)
    assert running.bytes() == before


def test_a_change_in_the_code_of_an_image_sends_less_than_a_megabyte(mine: Yard, running: BedRegistry) -> None:
    first, before = push(mine), running.bytes()
    write_image(mine.home, code="answer = 42\n")
    second = push(mine)
    write_image(mine.home, code="answer = 41\n")
    assert second["digest"] != first["digest"]
    assert second["layers_sent"] == 1
    assert 0 < second["bytes_sent"] < MB
    assert running.bytes() - before < MB


def test_layers_are_not_built_and_sent_again_where_buildkit_forgot_them(
    private_engine: BedEngine, engine: BedEngine, fresh: Yard
) -> None:
    private_engine.load("trainyard-bed/base:1", registries.IMAGE, source=engine)
    fresh.environ.update(private_engine.environ())
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"address": address, "insecure": True, "image": registries.IMAGE}
    (fresh.home / "clusters").mkdir()
    cluster = {"name": "yard", "backend": "local", "image": NAME, "registry": settings}
    (fresh.home / "clusters" / "yard.yaml").write_text(json.dumps(cluster))
    image = fresh.home / "images" / NAME
    write_image(fresh.home, code="answer = 41\n")
    # A layer that is another one whenever it is built.
    (image / "Dockerfile").write_text(DOCKERFILE.replace("COPY", "RUN head -c 3000000 /dev/urandom > /large\nCOPY"))
    (image / "image.yaml").write_text("base: trainyard-bed/base:1\n")
    fresh.run("registry.up")
    push(fresh)

    private_engine.docker("builder", "prune", "--all", "--force")
    (image / "files" / "opt" / "code" / "mine.py").write_text("answer = 42\n")
    assert push(fresh)["bytes_sent"] < MB

    # Another machine, such as CI's: it has the base, and nothing else.
    built = private_engine.docker("images", "--quiet", f"trainyard/{NAME}").stdout.split()
    private_engine.docker("rmi", "--force", *built)
    private_engine.docker("builder", "prune", "--all", "--force")
    (image / "files" / "opt" / "code" / "mine.py").write_text("answer = 43\n")
    assert push(fresh)["bytes_sent"] < MB
    fresh.run("registry.down", "--purge")


def test_every_host_pulls_the_digest_and_runs_it(mine: Yard, running: BedRegistry) -> None:
    push(mine)
    found = mine.json("image.verify")
    assert found["ok"] is True
    assert [(host["host"], host["ok"], host["result"]) for host in found["hosts"]] == [
        ("here", True, f"ray {versions.RAY}")
    ]
    # The engine has it all, and the registry is asked nevertheless.
    asked = f"/v2/team/robots/{NAME}/manifests/src-"
    before = running.requests(asked)
    assert f"ray {versions.RAY}" in mine.run("image.verify").stdout
    assert running.requests(asked) > before


def test_a_cluster_whose_nodes_are_processes_has_no_image_to_verify(fresh: Yard) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\n")
    done = fresh.run("image.verify", expect=2)
    assert "runs no images" in done.stderr


def test_an_image_whose_tag_is_gone_runs_nowhere_until_it_is_pushed_again(mine: Yard, running: BedRegistry) -> None:
    pushed = push(mine)
    running.shell(f"rm -r docker/registry/v2/repositories/team/robots/{NAME}/_manifests/tags")
    done = mine.run("image.verify", expect=6)
    assert f"registry {running.address} does not hold image {NAME} as it is now" in done.stderr
    assert "image.push" in done.stderr
    again = push(mine)
    assert (again["digest"], again["layers_sent"]) == (pushed["digest"], 0)
    mine.run("image.verify")


def test_a_host_without_the_base_finds_what_was_pushed_from_the_same_files(mine: Yard, engine: BedEngine) -> None:
    pushed = push(mine)
    engine.docker("rmi", BASE)
    try:
        assert mine.json("image.verify")["hosts"][0]["reference"] == pushed["reference"]
    finally:
        engine.docker("tag", "trainyard-bed/ray:1", BASE)


def test_a_cluster_keeps_the_image_that_it_runs_while_the_registry_is_away(
    mine: Yard, engine: BedEngine, running: BedRegistry
) -> None:
    pushed = push(mine)
    spec = load_cluster(mine.home / "clusters" / "yard.yaml").spec
    running.kill()
    try:
        with connect({**os.environ, **engine.environ()}) as there:
            found = pinned(spec, os.environ, directory=mine.home, engine=there, running=pushed["reference"])
            assert (found.reference, found.is_kept) == (pushed["reference"], True)
        # Whether it can be pulled is another question.
        assert f"registry {running.address} does not answer" in mine.run("image.verify", expect=6).stderr
    finally:
        running.start()


def test_a_cluster_file_without_a_registry_runs_what_was_pushed_to_the_default_one(
    mine: Yard, engine: BedEngine, running: BedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = push(mine)
    # The default one's port may be in use on this machine.
    default = Registry(address=running.address, namespace="team/robots", insecure=True)
    monkeypatch.setattr("trainyard.images.resolve.DEFAULT", default)
    spec = load_cluster(mine.home / "clusters" / "yard.yaml").spec.model_copy(update={"registry": None})
    with connect({**os.environ, **engine.environ()}) as there:
        assert pinned(spec, os.environ, directory=mine.home, engine=there).reference == pushed["reference"]
        # Where nothing was pushed to it, it is not asked.
        monkeypatch.setattr("trainyard.images.resolve.DEFAULT", Registry(address="127.0.0.1:1", insecure=True))
        assert pinned(spec, os.environ, directory=mine.home, engine=there).digest is None


def test_a_full_reference_is_pinned_to_what_it_means_now(engine: BedEngine, image: Built, running: BedRegistry) -> None:
    pushed = registries.push(engine, image, Registry(address=running.address, insecure=True))
    with connect({**os.environ, **engine.environ()}) as there:

        def pin(reference: str) -> str:
            spec = ClusterSpec(name="yard", backend="compose", image=reference)
            return pinned(spec, os.environ, directory=Path("/nowhere"), engine=there).reference

        assert pin(pushed.alias) == pushed.reference
        assert pin(pushed.reference) == pushed.reference
        # What only this engine has is pinned by its id.
        assert pin(image.reference_local) == image.image_id


@pytest.fixture(scope="module")
def image(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    with registries.tiny(engine, tmp_path_factory.mktemp("image"), 200 * KB, 100 * KB) as built:
        yield built
