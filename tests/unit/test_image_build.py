"""The steps of a build, asked of an engine that is not there."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from docker.errors import ImageNotFound

from trainyard import steps
from trainyard.console.report import Table
from trainyard.errors import OutsideError
from trainyard.images import build, catalog, pipeline
from trainyard.images.build import Building
from trainyard.images.pipeline import ImageCommand
from trainyard.seams.docker import cli
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import BuildSection, Registry
from trainyard.tasks.image import listed

BASE_ID = "sha256:" + "b" * 64


class FakeApi:
    """Images by every name they have; no pull brings another."""

    base_url = "http+docker://localhost"
    api_version = "1.41"

    def __init__(self, images: dict[str, dict[str, Any]] | None = None) -> None:
        self.held = images or {}
        self.logins: list[dict[str, str]] = []

    def version(self, *, api_version: bool) -> dict[str, str]:
        return {"Os": "linux", "Arch": "amd64"}

    def images(self, *, filters: dict[str, str]) -> list[dict[str, str]]:
        return []

    def inspect_image(self, reference: str) -> dict[str, Any]:
        if reference not in self.held:
            raise ImageNotFound(f"No such image: {reference}")
        return self.held[reference]

    def tag(self, reference: str, repository: str, *, tag: str, force: bool) -> None:
        self.held[f"{repository}:{tag}"] = self.held[reference]

    def post(self, url: str, *, headers: dict[str, str], **options: Any) -> None:
        self.logins.append(json.loads(base64.urlsafe_b64decode(headers["X-Registry-Auth"])))
        raise requests.ConnectionError


def image(identifier: str, *, platform: str = "linux/amd64") -> dict[str, Any]:
    os, architecture = platform.split("/")
    return {"Id": identifier, "Os": os, "Architecture": architecture}


def building(
    tmp_path: Path,
    api: FakeApi,
    settings: BuildSection | None = None,
    *,
    registry: Registry | None = None,
) -> Building:
    directory = tmp_path / "images" / "mine"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "image.yaml").write_text("base: debian:12\n")
    (directory / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    # No PATH: nothing can be started.
    engine = Engine("unix:///x.sock", api, {"PATH": ""})  # type: ignore[arg-type]
    spec = ClusterSpec(
        name="yard", backend="compose", build=settings or BuildSection(), registry=registry
    )
    return Building(catalog.find("mine", directory=tmp_path), engine, spec)


def tagged(tmp_path: Path) -> dict[str, dict[str, Any]]:
    images = {"debian:12": image(BASE_ID)}
    what = building(tmp_path, FakeApi(images))
    return {**images, what.reference: image("sha256:1"), what.alias: image("sha256:1")}


def test_an_alias_that_stayed_with_an_older_image_is_moved(tmp_path: Path) -> None:
    images = tagged(tmp_path)
    what = building(tmp_path, FakeApi(images))
    images[what.alias] = image("sha256:0")
    tag = build.steps(what)[-1]
    assert tag.done() == steps.no(f"{what.alias} is not this image")
    tag.do()
    assert tag.done().holds


@pytest.mark.parametrize(("has", "needs"), [("linux/amd64", "linux/arm64"), ("linux/arm64", None)])
def test_a_base_for_other_machines_is_not_the_base(
    tmp_path: Path, has: str, needs: str | None
) -> None:
    """The default platform is the engine's own: the last build may have been for another."""
    api = FakeApi({"debian:12": image(BASE_ID, platform=has)})
    first = build.steps(building(tmp_path, api, BuildSection(platform=needs)))[0]
    assert first.done() == steps.no(f"it is for {has}, not {needs or 'linux/amd64'}")


def test_a_base_in_the_cluster_file_s_registry_is_pulled_with_its_login(tmp_path: Path) -> None:
    api = FakeApi()
    (tmp_path / "password").write_text("open sesame")
    bases = {
        "reg:5000/bases/debian:12": {
            "username": "ray",
            "password": "open sesame",
            "serveraddress": "reg:5000",
        }
    }

    registry = Registry(
        address="reg:5000", username="ray", password_file=str(tmp_path / "password")
    )

    for base, used in {**bases, "elsewhere:5000/debian:12": {}}.items():
        what = building(tmp_path, api, registry=registry)
        with pytest.raises(OutsideError):
            build.steps(replace(what, image=replace(what.image, base=base)))[0].do()
        assert api.logins[-1] == used


def test_proxies_and_secrets_stay_out_of_the_command_line() -> None:
    environ = {
        "HTTPS_PROXY": "http://user:password@proxy:3128",
        "no_proxy": "localhost",
        "HTTP_PROXY": "",
    }

    command = cli.build_command(
        environ,
        "trainyard/mine:1",
        arguments={"BASE": "debian:12"},
        labels={"a": "b"},
        platform="linux/arm64",
        network="host",
        secrets={"ca_bundle": Path("/a/ca.pem")},
        cached="trainyard/mine:ray-2.60.0",
    )

    assert command == [
        *("docker", "buildx", "build", "--builder", "default", "--load", "--progress", "plain"),
        *("--tag", "trainyard/mine:1", "--network", "host", "--platform", "linux/arm64"),
        *("--cache-to", "type=inline", "--cache-from=trainyard/mine:ray-2.60.0"),
        *("--build-arg", "BASE=debian:12", "--build-arg", "HTTPS_PROXY", "--build-arg", "no_proxy"),
        *("--label", "a=b", "--secret", "id=ca_bundle,src=/a/ca.pem", "-"),
    ]


def test_one_image_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    what = building(tmp_path, FakeApi({"debian:12": image(BASE_ID)}))
    (tmp_path / "images" / "broken").mkdir()
    (tmp_path / "images" / "broken" / "image.yaml").write_text("bas: debian:12\n")
    command = ImageCommand(what.spec, tmp_path / "yard.yaml", what.engine, tmp_path)
    report = listed(pipeline.listed(command))
    (table,) = report.body
    assert isinstance(table, Table)
    states = {row[0]: row[1] for row in table.rows}
    assert (states["broken"], states["mine"]) == ("broken", "not built")
    (note,) = report.notes
    assert note.startswith("image broken cannot be built: ")
    assert "bas: is not a known key; did you mean 'base'?" in note


def test_the_cluster_file_s_base_is_for_its_own_image_alone(tmp_path: Path) -> None:
    what = building(tmp_path, FakeApi({"debian:12": image(BASE_ID)}))
    spec = what.spec.model_copy(
        update={"image": "mine", "build": BuildSection(base="mirror.lab/debian:12")}
    )
    command = ImageCommand(spec, tmp_path / "yard.yaml", what.engine, tmp_path)
    report = listed(pipeline.listed(command), command.name)
    (table,) = report.body
    assert isinstance(table, Table)
    bases = {str(row[0]): str(row[5]) for row in table.rows}
    assert bases["mine"] == "mirror.lab/debian:12"
    assert bases["ray-cpu"].startswith("python:")
    assert report.next == "trainyard image.build mine"
