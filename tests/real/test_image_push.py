"""Pushed images: the digest, the layers that a second push sends, and every host that runs them."""

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
from trainyard.seams.processes import free_ports

MB = 1_000_000
DOCKERFILE = 'ARG BASE\nFROM ${BASE}\nENV PYTHONPATH=/opt/code\nCOPY files/ /\nCMD ["bash"]\n'
# Names that only this run of the tests uses: the engine is shared.
NAME = f"pushed-{os.getpid()}"
BASE = f"push-test/base:{os.getpid()}"


@pytest.fixture(scope="module")
def running(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BedRegistry]:
    with registries.registry(engine, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def mine(
    engine: BedEngine, running: BedRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    """Give a directory with the user's own image, pushed, and a cluster file that names it."""
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
    """Push without lint, which other tests cover and which takes longer than the push."""
    return yard.json("image.push", "--skip-lint")


def test_push_gives_the_digest_that_runs_and_sends_only_what_has_changed(
    mine: Yard, engine: BedEngine, running: BedRegistry
) -> None:
    before = running.bytes()
    first = push(mine)
    assert (first["layers_sent"], first["bytes_sent"]) == (0, 0)
    assert running.bytes() == before
    assert first["reference"] == f"{running.address}/team/robots/{NAME}@{first['digest']}"
    assert first["alias"].endswith(f"/team/robots/{NAME}:ray-{versions.RAY}")
    said = engine.docker(
        "run", "--rm", first["reference"], "python", "-c", "import mine; print(mine.answer)"
    )
    assert said.stdout == "41\n"

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
    # A layer with another content whenever it is built.
    (image / "Dockerfile").write_text(
        DOCKERFILE.replace("COPY", "RUN head -c 3000000 /dev/urandom > /large\nCOPY")
    )
    (image / "image.yaml").write_text("base: trainyard-bed/base:1\n")
    fresh.run("registry.up")
    push(fresh)

    private_engine.docker("builder", "prune", "--all", "--force")
    (image / "files" / "opt" / "code" / "mine.py").write_text("answer = 42\n")
    assert push(fresh)["bytes_sent"] < MB

    # Now as on another machine, such as CI's: it has the base, and nothing else.
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
    # The engine has the whole image, yet `image.verify` asks the registry.
    asked = f"/v2/team/robots/{NAME}/manifests/src-"
    before = running.requests(asked)
    assert f"ray {versions.RAY}" in mine.run("image.verify").stdout
    assert running.requests(asked) > before


def test_an_image_whose_tag_is_gone_runs_nowhere_until_it_is_pushed_again(
    mine: Yard, running: BedRegistry
) -> None:
    pushed = push(mine)
    running.shell(f"rm -r docker/registry/v2/repositories/team/robots/{NAME}/_manifests/tags")
    done = mine.run("image.verify", expect=6)
    assert f"does not have the current version of image {NAME}" in done.stderr
    assert "image.push" in done.stderr
    again = push(mine)
    assert (again["digest"], again["layers_sent"]) == (pushed["digest"], 0)
    mine.run("image.verify")
