"""Which exact image a cluster runs; registries and the Docker engine are dicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from docker.errors import ImageNotFound

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.images import catalog, content, resolve
from trainyard.images.build import Building
from trainyard.images.resolve import PinnedImage
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.api import RegistryApi, digest_of
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.errors import GoneError, LoginError, MissingError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import Registry

REG = Registry(address="reg.lab:5000")
BASIC = "Basic cmF5OnNlc2FtZQ=="
MANIFEST = b'{"schemaVersion": 2}'
DIGEST = "sha256:" + "d" * 64
ID, OLD = "sha256:" + "a" * 64, "sha256:" + "c" * 64


def yard(tmp_path: Path) -> str:
    """Write images/mine; return the tag of its files."""
    directory = tmp_path / "images" / "mine"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "image.yaml").write_text("base: debian:12\n")
    (directory / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    return content.source_tag(
        content.source_hash(catalog.find("mine", directory=tmp_path), {"HOME": str(tmp_path)})
    )


class FakeRegistry:
    """A registry with these paths.

    `wants` is the only Authorization that it accepts. One that `hides` gives everyone a token, and
    answers strangers as if private repositories did not exist. `away` never answers.
    """

    def __init__(
        self, *paths: str, wants: str = "", hides: bool = False, away: bool = False
    ) -> None:
        self.paths, self.wants, self.hides, self.away = paths, wants, hides, away
        self.content: dict[str, bytes] = {}

    def open(
        self, registry: Registry, environ: Mapping[str, str], login: Login | None
    ) -> RegistryApi:
        transport = httpx.MockTransport(self.answer)
        return RegistryApi(
            registry.address, insecure=registry.insecure, login=login, transport=transport
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("Connection refused")

        given = request.headers.get("Authorization")
        if request.url.path == "/token":
            return httpx.Response(200, json={"token": "known" if given else "stranger"})
        if self.hides and given != "Bearer known":
            challenge = {"WWW-Authenticate": 'Bearer realm="/token"'}
            return httpx.Response(404) if given else httpx.Response(401, headers=challenge)
        if self.wants and given != self.wants:
            return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'})

        path = f"{request.url.host}{request.url.path}"
        return (
            httpx.Response(200, content=self.content.get(path, MANIFEST))
            if path in self.paths
            else httpx.Response(404)
        )


def ours(tmp_path: Path, **how: Any) -> FakeRegistry:
    return FakeRegistry(f"reg.lab/v2/mine/manifests/{yard(tmp_path)}", **how)


def for_nodes(
    tmp_path: Path,
    held: FakeRegistry,
    image: str = "mine",
    registry: Registry | None = REG,
    **more: Any,
) -> PinnedImage:
    spec = ClusterSpec(name="yard", backend="kuberay", image=image, registry=registry)
    environ = {"HOME": str(tmp_path), "PASSWORD": "sesame"}
    return resolve.pinned(spec, environ, directory=tmp_path, connect=held.open, **more)


def docker_login(tmp_path: Path, host: str) -> Login:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(
        json.dumps({"auths": {host: {"auth": "cmF5OnNlc2FtZQ=="}}})
    )
    return Login(f"{tmp_path}/.docker/config.json", "ray", "sesame")


def test_a_built_image_is_found_by_files_and_a_public_one_without_login(tmp_path: Path) -> None:
    docker_login(tmp_path, "reg.lab:5000")
    image = for_nodes(tmp_path, ours(tmp_path))
    assert image == PinnedImage("mine", f"reg.lab:5000/mine@{image.digest}", image.digest)


def test_only_groups_with_another_image_than_the_head_s_get_one(tmp_path: Path) -> None:
    yard(tmp_path)
    workers = [
        {"name": name, "image": image}
        for name, image in (("a", "reg.lab/x:1"), ("b", "reg.lab/x:1"), ("c", None))
    ]
    spec = ClusterSpec.model_validate(
        {"name": "yard", "backend": "kuberay", "image": "mine", "workers": workers}
    )
    held = FakeRegistry("reg.lab/v2/x/manifests/1")
    found = resolve.of_groups(spec, {"HOME": str(tmp_path)}, directory=tmp_path, connect=held.open)
    assert list(found) == ["a", "b"]
    assert (
        found["a"]
        == found["b"]
        == PinnedImage("reg.lab/x:1", f"reg.lab/x@{found['a'].digest}", found["a"].digest)
    )


def test_a_built_image_without_a_registry_is_refused_if_nodes_pull_it(tmp_path: Path) -> None:
    yard(tmp_path)
    with pytest.raises(RequestError) as caught:
        for_nodes(tmp_path, FakeRegistry(), registry=None)
    assert caught.value.lines() == [
        "the nodes of cluster yard pull images from a registry, and the cluster file names none",
        "  at the cluster file",
        "  -> Write `registry: {address: HOST:PORT}` with an address that the nodes reach too, "
        "then "
        "`trainyard registry.up` if it is to run here; or name an image that is in a registry "
        "already: "
        "`image: REGISTRY/NAME:TAG`.",
    ]


@pytest.mark.parametrize("running", [None, "reg.lab:5000/other@sha256:1", "reg.lab:5000/mine:1"])
def test_a_silent_registry_is_an_error_where_nothing_of_it_runs(
    tmp_path: Path, running: str | None
) -> None:
    yard(tmp_path)
    with pytest.raises(GoneError):
        for_nodes(tmp_path, FakeRegistry(away=True), running=running)


@pytest.mark.parametrize("image", ["mine", "reg.lab:5000/mine:1"])
def test_a_cluster_keeps_its_image_while_the_registry_does_not_answer(
    tmp_path: Path, image: str
) -> None:
    yard(tmp_path)
    running = f"reg.lab:5000/mine@{DIGEST}"
    kept = for_nodes(tmp_path, FakeRegistry(away=True), image, running=running)
    assert (kept.reference, kept.digest, kept.is_kept) == (running, DIGEST, True)
    assert kept.remark.startswith("the cluster keeps the image that it runs: ")


@pytest.mark.parametrize("how", [{"wants": BASIC}, {"hides": True}])
def test_dockers_login_is_used_where_strangers_are_not_let_in(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    login = docker_login(tmp_path, "reg.lab:5000")
    assert for_nodes(tmp_path, ours(tmp_path, **how)).login == login


def test_the_login_of_the_cluster_file_is_always_handed_on(tmp_path: Path) -> None:
    named = Registry(address="reg.lab:5000", username="ray", password_env="PASSWORD")
    assert for_nodes(tmp_path, ours(tmp_path), registry=named).login == Login(
        "$PASSWORD", "ray", "sesame"
    )


@pytest.mark.parametrize(
    ("image", "path", "repository"),
    [
        ("debian:12", "registry-1.docker.io/v2/library/debian/manifests/12", "debian"),
        ("team/robots", "registry-1.docker.io/v2/team/robots/manifests/latest", "team/robots"),
        ("quay.io/a/b/c:1", "quay.io/v2/a/b/c/manifests/1", "quay.io/a/b/c"),
        ("reg.lab:5000/x:y", "reg.lab/v2/x/manifests/y", "reg.lab:5000/x"),
    ],
)
def test_a_reference_is_resolved_by_its_own_registry(
    tmp_path: Path, image: str, path: str, repository: str
) -> None:
    pinned = for_nodes(tmp_path, FakeRegistry(path), image)
    assert pinned == PinnedImage(image, f"{repository}@{pinned.digest}", pinned.digest)
    with pytest.raises(MissingError, match=f"image {image} is not in its registry, "):
        for_nodes(tmp_path, FakeRegistry(), image)


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (FakeRegistry(away=True), "registry quay.io does not answer"),
        (FakeRegistry(wants="x"), "registry quay.io asks for a login, and none is known"),
    ],
)
def test_an_unreachable_or_private_registry_leaves_the_reference_unpinned(
    tmp_path: Path, held: FakeRegistry, why: str
) -> None:
    image = "quay.io/a/b:1"
    remark = f"image {image} is used as it is, without a digest: {why}"
    assert for_nodes(tmp_path, held, image) == PinnedImage(image, image, None, None, remark)


def test_a_reference_with_a_digest_is_the_same_while_its_registry_is_away(tmp_path: Path) -> None:
    login = docker_login(tmp_path, "quay.io")
    image = f"quay.io/a/b@{DIGEST}"
    assert for_nodes(tmp_path, FakeRegistry(away=True), image) == PinnedImage(
        image, image, DIGEST, login
    )


DEFAULT = "127.0.0.1:32000/mine"


class FakeEngine:
    """An engine: its images by name, each with the digests that it noted."""

    def __init__(self, images: dict[str, list[str]], *, image_id: str = ID) -> None:
        self.held, self.image_id = images, image_id

    def inspect_image(self, reference: str) -> dict[str, Any]:
        if reference not in self.held:
            raise ImageNotFound(f"No such image: {reference}")
        return {
            "Id": self.image_id,
            "RepoDigests": self.held[reference],
            "Os": "linux",
            "Architecture": "amd64",
        }


def for_engine(
    tmp_path: Path,
    api: FakeEngine,
    image: str = "mine",
    *,
    running: str | None = None,
    held: FakeRegistry | None = None,
) -> PinnedImage:
    yard(tmp_path)
    engine = Engine("unix:///x.sock", api, {"HOME": str(tmp_path)})  # type: ignore[arg-type]
    spec = ClusterSpec(name="yard", backend="compose", image=image)
    # The engine has no base: its name counts.
    tag = Building(catalog.find("mine", directory=tmp_path), engine, spec).content
    api.held = {name.replace("CONTENT", tag): value for name, value in api.held.items()}
    connect = (held or FakeRegistry(away=True)).open
    return resolve.pinned(
        spec, engine.environ, directory=tmp_path, engine=engine, running=running, connect=connect
    )


@pytest.mark.parametrize(
    ("noted", "reference", "digest"),
    [([f"{DEFAULT}@{DIGEST}"], f"{DEFAULT}@{DIGEST}", DIGEST), ([], ID, None)],
)
def test_a_build_without_a_registry_section_runs_by_pushed_digest_or_id(
    tmp_path: Path, noted: list[str], reference: str, digest: str | None
) -> None:
    engine = FakeEngine({"trainyard/mine:CONTENT": noted})
    assert for_engine(tmp_path, engine) == PinnedImage("mine", reference, digest)


def test_an_image_that_was_never_built_is_refused_with_the_build_command(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        for_engine(tmp_path, FakeEngine({}))
    assert (
        caught.value.what
        == f"image mine was not built from the current files in {tmp_path}/images/mine"
    )
    assert caught.value.hint == "Build it: trainyard image.build mine"


OTHERS = "reg:5000/team/robots:1"
PULLED = {OTHERS: [f"reg:5000/team/robots@{OLD}"]}


def test_a_foreign_tag_is_looked_up_and_the_local_image_is_the_fallback(tmp_path: Path) -> None:
    newer = for_engine(
        tmp_path, FakeEngine(PULLED), OTHERS, held=FakeRegistry("reg/v2/team/robots/manifests/1")
    )
    assert newer.digest not in (None, OLD)
    assert for_engine(tmp_path, FakeEngine(PULLED), OTHERS).reference == OTHERS
    running = f"reg:5000/team/robots@{OLD}"
    assert for_engine(tmp_path, FakeEngine(PULLED), OTHERS, running=running).reference == running


def test_a_registry_that_refuses_is_told_although_an_older_image_is_here(tmp_path: Path) -> None:
    with pytest.raises(LoginError):
        for_engine(tmp_path, FakeEngine(PULLED), OTHERS, held=FakeRegistry(wants="x"))


@pytest.mark.parametrize(
    ("noted", "reference", "digest"),
    [
        ([], ID, None),
        ([f"other/name@{OLD}"], ID, None),
        ([f"mine/robots@{ID}"], f"mine/robots@{ID}", ID),
    ],
)
def test_a_locally_built_image_resolves_without_docker_hub(
    tmp_path: Path, noted: list[str], reference: str, digest: str | None
) -> None:
    image = for_engine(tmp_path, FakeEngine({"mine/robots:1": noted}), "mine/robots:1")
    assert image == PinnedImage("mine/robots:1", reference, digest)


def test_a_running_image_keeps_its_name_where_the_file_means_the_same(tmp_path: Path) -> None:
    engine = FakeEngine(
        {"trainyard/mine:CONTENT": [f"{DEFAULT}@{DIGEST}"], f"{DEFAULT}@{DIGEST}": [], ID: []}
    )
    assert for_engine(tmp_path, engine, running=ID).reference == ID
    assert (
        for_engine(tmp_path, FakeEngine(engine.held), running="gone").reference
        == f"{DEFAULT}@{DIGEST}"
    )


def test_the_pulled_size_is_that_of_the_largest_platform_s_layers(tmp_path: Path) -> None:
    image = (
        b'{"schemaVersion": 2, "layers": [{"digest": "a", "size": 5}, {"digest": "b", "size": 7}]}'
    )
    index = f'{{"schemaVersion": 2, "manifests": [{{"digest": "{digest_of(image)}"}}]}}'.encode()
    held = ours(tmp_path)
    held.content = {
        held.paths[0]: index,
        f"reg.lab/v2/mine/manifests/{digest_of(index)}": index,
        f"reg.lab/v2/mine/manifests/{digest_of(image)}": image,
    }

    held.paths = tuple(held.content)
    spec = ClusterSpec(name="yard", backend="kuberay", image="mine", registry=REG)
    pulled = partial(
        resolve.pulled_bytes, spec, {"HOME": str(tmp_path)}, directory=tmp_path, connect=held.open
    )
    assert pulled() == 12
    held.away = True
    assert pulled() == 0
