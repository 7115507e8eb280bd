"""Rights to push: a password, `docker login`, a token server, Amazon; no secret is ever shown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.bed.engine import BedEngine
from tests.real import registries
from tests.real.registries import PASSWORD, USER, BedRegistry
from trainyard.images.build import Built
from trainyard.spec.docker import Registry

KB = 1000
# The login that moto, a stand-in for AWS, gives to every caller.
AWS_USER, AWS_PASSWORD = "AWS", "123456789012-auth-token"


@pytest.fixture(scope="module")
def image(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    with registries.tiny(engine, tmp_path_factory.mktemp("image"), 200 * KB, 100 * KB) as built:
        yield built


@pytest.fixture
def guarded(engine: BedEngine, tmp_path: Path) -> Iterator[BedRegistry]:
    with registries.registry(engine, tmp_path / "guarded", users={USER: PASSWORD}) as running:
        yield running


def test_a_credential_helper_is_asked(
    engine: BedEngine,
    image: Built,
    guarded: BedRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helper = tmp_path / "docker-credential-yard"
    answer = json.dumps({"ServerURL": guarded.address, "Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\ncat > {tmp_path}/asked\necho '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {guarded.address: "yard"}}))
    spec = Registry(address=guarded.address, insecure=True)
    registries.push(engine, image, spec, environ={"DOCKER_CONFIG": str(tmp_path)})
    assert (tmp_path / "asked").read_text() == guarded.address


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let boto3 talk to moto instead of AWS."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    yield
    server.stop()


def test_amazon_gives_the_login_and_gets_the_repository(
    engine: BedEngine, image: Built, tmp_path: Path, aws: None
) -> None:
    with registries.registry(engine, tmp_path, users={AWS_USER: AWS_PASSWORD}) as running:
        spec = Registry(address=running.address, insecure=True, login="ecr", namespace="team")
        assert registries.push(engine, image, spec).layers_sent == 2
        assert registries.push(engine, image, spec).layers_sent == 0
    found = boto3.client("ecr", region_name="eu-central-1").describe_repositories()["repositories"]
    assert [one["repositoryName"] for one in found] == [f"team/{image.name}"]
