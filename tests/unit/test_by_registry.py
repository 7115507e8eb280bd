"""Which image a cluster runs where no engine can be asked; the registry is a function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainyard import labels
from trainyard.errors import RequestError
from trainyard.images import by_registry, catalog, content
from trainyard.images.by_registry import pinned_by_registry
from trainyard.images.types import PinnedImage
from trainyard.seams.registry_api import RegistryApi
from trainyard.seams.registry_auth import Login
from trainyard.seams.registry_manifest import digest_of
from trainyard.seams.registry_refusals import GoneError, LoginError, MissingError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import Registry

REG = Registry(address="reg.lab:5000")
ALIAS = "ray-2.60.0"
BASIC = "Basic cmF5OnNlc2FtZQ=="


class FakeRegistry:
    """A registry: manifests and configs by path. `wants` is the only Authorization that it lets in.

    One that `hides` gives everybody a token, and what is private is not there for strangers. `away` answers nobody.
    """

    def __init__(self, *, wants: str | None = None, hides: bool = False, away: bool = False) -> None:
        self.content: dict[str, bytes] = {}
        self.wants, self.hides, self.away = wants, hides, away
        self.asked: list[str] = []

    def put(self, name: str, tag: str, *, source: str = "x", index: bool = False) -> str:
        config = json.dumps({"config": {"Labels": {labels.SOURCE: source}}}).encode()
        self.content[f"/v2/{name}/blobs/{digest_of(config)}"] = config
        manifest = {"schemaVersion": 2, "config": {"digest": digest_of(config), "size": 1}, "layers": []}
        digest = self._put_manifest(name, manifest)
        if index:
            entry = {"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}}
            unknown = {"os": "unknown", "architecture": "unknown"}
            proof = {"digest": "sha256:" + "0" * 64, "size": 1, "platform": unknown}
            digest = self._put_manifest(name, {"schemaVersion": 2, "manifests": [proof, entry]})
        self.content[f"/v2/{name}/manifests/{tag}"] = self.content[f"/v2/{name}/manifests/{digest}"]
        return digest

    def _put_manifest(self, name: str, document: dict[str, Any]) -> str:
        written = json.dumps(document).encode()
        self.content[f"/v2/{name}/manifests/{digest_of(written)}"] = written
        return digest_of(written)

    def open(self, registry: Registry, environ: Mapping[str, str], who: Login | None) -> RegistryApi:
        transport = httpx.MockTransport(self.answer)
        return RegistryApi(registry.address, insecure=registry.insecure, login=who, transport=transport)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("Connection refused")
        self.asked.append(f"{request.url.host}{request.url.path}")
        given = request.headers.get("Authorization")
        if request.url.path == "/token":
            return httpx.Response(200, json={"token": "known" if given else "stranger"})
        if self.hides and given != "Bearer known":
            challenge = {"WWW-Authenticate": 'Bearer realm="/token"'}
            return httpx.Response(404) if given else httpx.Response(401, headers=challenge)
        if self.wants and given != self.wants:
            return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        name, _, rest = request.url.path.rpartition("/tags/")
        if rest == "list":
            tags = [path.rpartition("/")[2] for path in self.content if path.startswith(f"{name}/manifests/")]
            return httpx.Response(200, json={"tags": [tag for tag in tags if ":" not in tag]})
        found = self.content.get(request.url.path)
        return httpx.Response(200, content=found) if found else httpx.Response(404)


def yard(tmp_path: Path) -> str:
    """Write images/mine; return the hash of its files."""
    directory = tmp_path / "images" / "mine"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "image.yaml").write_text("base: debian:12\n")
    (directory / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    return content.source_hash(catalog.find("mine", directory=tmp_path), {"HOME": str(tmp_path)})


def docker_login(tmp_path: Path, host: str) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": "cmF5OnNlc2FtZQ=="}}}))


def pin(
    tmp_path: Path, there: FakeRegistry, image: str = "mine", registry: Registry | None = REG, **more: Any
) -> PinnedImage:
    spec = ClusterSpec(name="yard", backend="kuberay", image=image, registry=registry)
    environ = {"HOME": str(tmp_path), "PASSWORD": "sesame"}
    return pinned_by_registry(spec, environ, directory=tmp_path, opened=there.open, **more)


@pytest.mark.parametrize("index", [False, True])
def test_an_image_of_ours_is_what_was_built_from_these_files(tmp_path: Path, index: bool) -> None:
    there = FakeRegistry()
    digest = there.put("mine", ALIAS, source=yard(tmp_path), index=index)
    assert pin(tmp_path, there) == PinnedImage("mine", f"reg.lab:5000/mine@{digest}", digest)


def test_it_is_found_although_peoples_tag_leads_to_another_build(tmp_path: Path) -> None:
    there = FakeRegistry()
    digest = there.put("mine", "0123456789ab", source=yard(tmp_path))
    there.put("mine", "ba9876543210", source="older")
    there.put("mine", ALIAS, source="another")
    assert pin(tmp_path, there).digest == digest


@pytest.mark.parametrize("at", [0, 150, 299])
def test_it_is_found_among_however_many_pushes(tmp_path: Path, at: int) -> None:
    there, source, wanted = FakeRegistry(), yard(tmp_path), ""
    for number in range(300):
        digest = there.put("mine", f"{number:012x}", source=source if number == at else f"older {number}")
        wanted = digest if number == at else wanted
    there.put("mine", ALIAS, source="another")
    assert pin(tmp_path, there).digest == wanted


def test_a_push_that_is_damaged_hides_no_other(tmp_path: Path) -> None:
    there = FakeRegistry()
    there.content["/v2/mine/manifests/000000000000"] = b"{"
    digest = there.put("mine", "0123456789ab", source=yard(tmp_path))
    there.put("mine", ALIAS, source="another")
    assert pin(tmp_path, there).digest == digest


def test_files_that_changed_since_are_to_be_pushed(tmp_path: Path) -> None:
    there = FakeRegistry()
    yard(tmp_path)
    there.put("mine", ALIAS, source="older")
    with pytest.raises(MissingError) as caught:
        pin(tmp_path, there)
    assert caught.value.lines() == [
        "registry reg.lab:5000 does not hold image mine as it is now",
        f"  at reg.lab:5000/mine:{ALIAS}",
        "  -> Its files changed since it was pushed, or it never was. Push it: invoke image.push mine",
    ]


@pytest.mark.parametrize(
    ("registry", "what"),
    [
        (None, "image mine is built here, and the nodes of cluster yard pull theirs from a registry"),
        (
            Registry(address="127.0.0.1:32000", insecure=True),
            "the nodes of cluster yard cannot pull from 127.0.0.1:32000: to them, it is their own loopback",
        ),
    ],
)
def test_a_registry_that_nodes_cannot_reach_is_refused(tmp_path: Path, registry: Registry | None, what: str) -> None:
    yard(tmp_path)
    with pytest.raises(RequestError) as caught:
        pin(tmp_path, FakeRegistry(), registry=registry)
    assert caught.value.what == what


def test_loopback_will_do_where_the_nodes_are_on_this_machine(tmp_path: Path) -> None:
    there = FakeRegistry()
    digest = there.put("mine", ALIAS, source=yard(tmp_path))
    registry = Registry(address="127.0.0.1:32000", insecure=True)
    assert pin(tmp_path, there, registry=registry, loopback=True).digest == digest


def test_a_registry_that_does_not_answer_cannot_be_asked_for_an_image_of_ours(tmp_path: Path) -> None:
    yard(tmp_path)
    with pytest.raises(GoneError):
        pin(tmp_path, FakeRegistry(away=True))


@pytest.mark.parametrize("there", [FakeRegistry(wants=BASIC), FakeRegistry(hides=True)])
def test_dockers_login_is_used_where_strangers_are_not_let_in(tmp_path: Path, there: FakeRegistry) -> None:
    digest = there.put("mine", ALIAS, source=yard(tmp_path))
    docker_login(tmp_path, "reg.lab:5000")
    found = pin(tmp_path, there)
    assert (found.digest, found.login) == (digest, Login(f"{tmp_path}/.docker/config.json", "ray", "sesame"))


def test_dockers_login_is_not_handed_on_where_everybody_is_let_in(tmp_path: Path) -> None:
    there = FakeRegistry()
    there.put("mine", ALIAS, source=yard(tmp_path))
    docker_login(tmp_path, "reg.lab:5000")
    assert pin(tmp_path, there).login is None


def test_the_login_of_the_cluster_file_is_always_handed_on(tmp_path: Path) -> None:
    there = FakeRegistry()
    there.put("mine", ALIAS, source=yard(tmp_path))
    named = Registry(address="reg.lab:5000", username="ray", password_env="PASSWORD")
    assert pin(tmp_path, there, registry=named).login == Login("$PASSWORD", "ray", "sesame")


@pytest.mark.parametrize(
    ("asked", "path", "repository"),
    [
        ("debian:12", "registry-1.docker.io/v2/library/debian/manifests/12", "debian"),
        ("team/robots", "registry-1.docker.io/v2/team/robots/manifests/latest", "team/robots"),
        ("quay.io/a/b/c:1", "quay.io/v2/a/b/c/manifests/1", "quay.io/a/b/c"),
        ("reg.lab:5000/x:y", "reg.lab/v2/x/manifests/y", "reg.lab:5000/x"),
    ],
)
def test_a_reference_is_resolved_by_its_own_registry(tmp_path: Path, asked: str, path: str, repository: str) -> None:
    there = FakeRegistry()
    name, tag = path.partition("/v2/")[2].split("/manifests/")
    digest = there.put(name, tag, index=True)
    assert pin(tmp_path, there, asked) == PinnedImage(asked, f"{repository}@{digest}", digest)
    assert there.asked == [path]


def test_a_reference_that_is_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError) as caught:
        pin(tmp_path, FakeRegistry(), "reg.lab:5000/x:y")
    assert caught.value.what == "there is no image reg.lab:5000/x:y in its registry"


def test_a_registry_that_cannot_be_asked_from_here_leaves_the_reference_as_it_is(tmp_path: Path) -> None:
    docker_login(tmp_path, "quay.io")
    found = pin(tmp_path, FakeRegistry(away=True), "quay.io/a/b:1")
    assert (found.reference, found.digest) == ("quay.io/a/b:1", None)
    assert found.login == Login(f"{tmp_path}/.docker/config.json", "ray", "sesame")
    assert found.remark == ("image quay.io/a/b:1 is used as it is, without a digest: registry quay.io does not answer")


def test_a_private_image_without_a_login_here_is_left_to_the_nodes(tmp_path: Path) -> None:
    found = pin(tmp_path, FakeRegistry(wants="x"), "quay.io/a/b:1")
    assert (found.reference, found.login) == ("quay.io/a/b:1", None)
    assert found.remark == (
        "image quay.io/a/b:1 is used as it is, without a digest: registry quay.io asks for a login, and none is known"
    )


def test_a_login_that_is_refused_is_an_error(tmp_path: Path) -> None:
    docker_login(tmp_path, "quay.io")
    with pytest.raises(LoginError):
        pin(tmp_path, FakeRegistry(wants="x"), "quay.io/a/b:1")


def test_loopback_in_a_reference_is_the_nodes_own(tmp_path: Path) -> None:
    found = pin(tmp_path, FakeRegistry(away=True), "localhost:32000/x:1")
    assert found.remark == (
        "image localhost:32000/x:1 is used as it is, without a digest: localhost:32000 is the nodes' own loopback, "
        "not this machine's"
    )


def test_a_reference_with_a_digest_is_the_same_while_its_registry_is_away(tmp_path: Path) -> None:
    asked = "quay.io/a/b@sha256:" + "a" * 64
    assert pin(tmp_path, FakeRegistry(away=True), asked) == PinnedImage(asked, asked, "sha256:" + "a" * 64)


def test_a_registry_without_tls_says_which_key_is_missing() -> None:
    why = "registry r:5000 speaks plain HTTP, and the cluster file expects TLS"
    assert by_registry._as_it_is("r:5000/a/b:1", None, why).remark == (
        f"image r:5000/a/b:1 is used as it is, without a digest: {why}. "
        "If meant, say so before the cluster is made: registry: {address: r:5000, insecure: true}"
    )
