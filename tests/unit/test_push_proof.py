"""Whether a registry holds an image, and what a push does when it went away; the registry is a dict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from trainyard.images.access import Access
from trainyard.images.proof import Proof, prove, sizes
from trainyard.images.push import Pushing
from trainyard.images.transfer import AWAY_SECONDS, ask_why, wait_until_back
from trainyard.images.types import Built, Pushed
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry_api import UNKNOWN, RegistryApi
from trainyard.seams.registry_manifest import Blob, Manifest, PlatformManifest
from trainyard.seams.registry_refusals import (
    BusyError,
    DamagedError,
    FixedTagError,
    FullError,
    GoneError,
    LoginError,
    RegistryError,
)
from trainyard.spec.docker import Registry
from trainyard.steps import Clock, StepResult, run

ID = "sha256:" + "a" * 64
BASE, CODE = Blob("sha256:base", 100), Blob("sha256:code", 5)
MANIFEST = Manifest("sha256:manifest", "type", Blob(ID, 7), (BASE, CODE), (), b"{}")


@dataclass
class Held:
    """A registry that holds what it is told."""

    manifests: dict[str, Manifest] = field(default_factory=lambda: {"1": MANIFEST, "sha256:manifest": MANIFEST})
    blobs: dict[str, int] = field(default_factory=lambda: {ID: 7, "sha256:base": 100, "sha256:code": 5})

    def manifest(self, name: str, reference: str) -> Manifest | None:
        assert name == "team/mine"
        return self.manifests.get(reference)

    def blob_size(self, name: str, digest: str) -> int | None:
        return self.blobs.get(digest)

    def config(self, name: str, digest: str) -> bytes:
        return b"{}"


def proof(held: Held, *, image_id: str = ID, known: dict[str, int] | None = None) -> Proof:
    return prove(cast("RegistryApi", held), "team/mine", "1", image_id=image_id, known=known)


def test_an_image_is_there_when_every_part_of_it_is() -> None:
    assert proof(Held()) == Proof(MANIFEST)
    assert proof(Held()).holds


def test_a_tag_that_is_not_there_is_what_is_missing() -> None:
    found = proof(Held(manifests={}))
    assert (found.holds, found.missing) == (False, ("the registry has no team/mine:1",))


def test_a_tag_of_another_image_is_not_this_one() -> None:
    assert proof(Held(), image_id="sha256:other").missing == ("team/mine:1 is another image there",)


def test_an_engine_may_name_an_image_by_its_manifest() -> None:
    assert proof(Held(), image_id="sha256:manifest").holds


def test_a_manifest_under_its_tag_only_is_not_enough() -> None:
    assert proof(Held(manifests={"1": MANIFEST})).missing == ("manifest sha256:manifest is missing",)


def test_every_part_that_is_missing_or_cut_off_is_named() -> None:
    assert proof(Held(blobs={ID: 7, "sha256:base": 99})).missing == (
        "sha256:base has 99 bytes instead of 100",
        "sha256:code is missing",
    )


def test_a_size_that_the_registry_tells_of_itself_is_compared_with_what_was_sent_once() -> None:
    fooled = Manifest("sha256:manifest", "type", Blob(ID, 7), (Blob("sha256:base", 99), CODE), (), b"{}")
    held = Held({"1": fooled, "sha256:manifest": fooled}, {ID: 7, "sha256:base": 99, "sha256:code": 5})
    assert proof(held).holds
    assert proof(held, known=sizes(MANIFEST)).missing == ("sha256:base has 99 bytes instead of 100",)
    assert sizes(None) == {}


def test_a_size_that_the_registry_does_not_tell_is_no_missing_part() -> None:
    assert proof(Held(blobs={ID: 7, "sha256:base": UNKNOWN, "sha256:code": 5})).holds


def test_an_index_is_there_when_every_platform_is() -> None:
    platforms = (
        PlatformManifest("sha256:manifest", 2, "linux/amd64"),
        PlatformManifest("sha256:arm", 2, "linux/arm64"),
    )
    index = Manifest("sha256:index", "type", None, (), platforms, b"{}")
    held = Held({"1": index, "sha256:index": index, "sha256:manifest": MANIFEST})
    assert proof(held, image_id="sha256:index").missing == ("manifest sha256:arm is missing",)


@dataclass
class Failing:
    """A registry that fails as told; None works."""

    checks: list[RegistryError | None]
    upload: RegistryError | None = None

    def check(self) -> None:
        error = self.checks.pop(0) if len(self.checks) > 1 else self.checks[0]
        if error:
            raise error

    def try_upload(self, name: str) -> None:
        if self.upload:
            raise self.upload


GONE = GoneError("registry reg does not answer")


def as_api(failing: Failing) -> RegistryApi:
    return cast("RegistryApi", failing)


@pytest.mark.parametrize("error", [GONE, LoginError("no"), FullError("full")])
def test_what_a_retry_will_not_mend_ends_the_push(error: RegistryError) -> None:
    with pytest.raises(type(error)):
        ask_why(as_api(Failing([None], upload=error)), "team/mine")


def test_a_registry_that_takes_no_trial_upload_may_still_take_dockers() -> None:
    ask_why(as_api(Failing([None], upload=RegistryError("405 Method Not Allowed"))), "team/mine")
    ask_why(as_api(Failing([BusyError("502")])), "team/mine")


def test_a_registry_that_comes_back_in_time_is_waited_for() -> None:
    now = [0.0]
    clock = Clock(now=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    wait_until_back(as_api(Failing([GONE, GONE, BusyError("503"), None])), clock)
    assert now[0] == 1.5
    with pytest.raises(GoneError):
        wait_until_back(as_api(Failing([GONE])), clock)
    assert now[0] == 1.5 + AWAY_SECONDS


def test_a_registry_that_comes_back_and_refuses_is_not_waited_for() -> None:
    with pytest.raises(LoginError):
        wait_until_back(as_api(Failing([GONE, LoginError("no")])), Clock(now=lambda: 0.0, sleep=lambda seconds: None))


BUILT = Built("mine", "trainyard/mine:1", "trainyard/mine:ray-2", "1", "s", ID)


def access_to(registry: Held) -> Access:
    return Access(Registry(address="reg:5000", namespace="team"), cast("RegistryApi", registry), None)


class Fixed(Held):
    """A registry whose tags do not move once they are set."""

    def digest_of(self, name: str, tag: str) -> str | None:
        found = self.manifest(name, tag)
        return found.digest if found else None

    def put_manifest(self, name: str, tag: str, manifest: Manifest) -> None:
        raise FixedTagError("immutable")


class Damaged(Held):
    """A registry whose last image, under the readable tag, is broken."""

    alias = "ray-2"

    def manifest(self, name: str, reference: str) -> Manifest | None:
        if reference == self.alias:
            raise DamagedError("what registry reg holds is damaged")
        return super().manifest(name, reference)

    def put_manifest(self, name: str, tag: str, manifest: Manifest) -> None:
        self.alias = ""
        self.manifests[tag] = manifest


def test_a_damaged_image_before_this_one_is_replaced() -> None:
    registry = Damaged()
    pushing = Pushing(BUILT, access_to(registry), Engine("unix:///none", cast("Any", None), {}))
    assert pushing._known_sizes() == sizes(MANIFEST)
    results = run(pushing.steps(), Silent())
    assert [(result.title, result.changed) for result in results] == [
        ("Push reg:5000/team/mine:1", False),
        ("Tag it ray-2", True),
    ]
    assert registry.manifests["ray-2"] == MANIFEST


def test_where_tags_cannot_move_the_push_is_done_and_people_get_the_other_tag() -> None:
    older = Manifest("sha256:older", "type", Blob(ID, 7), (), (), b"{}")
    registry = Fixed({"1": MANIFEST, "sha256:manifest": MANIFEST, "ray-2": older})
    pushing = Pushing(BUILT, access_to(registry), Engine("unix:///none", cast("Any", None), {}))
    results = run(pushing.steps(), Silent())
    assert [(result.title, result.changed) for result in results] == [
        ("Push reg:5000/team/mine:1", False),
        ("Tag it ray-2", True),
    ]
    assert pushing.result() == Pushed(
        reference="reg:5000/team/mine@sha256:manifest",
        tag="reg:5000/team/mine:1",
        alias="reg:5000/team/mine:1",
        digest="sha256:manifest",
        bytes_sent=0,
        layers_sent=0,
        layers_there=2,
    )


class Silent:
    """Shows nothing."""

    def started(self, title: str) -> None:
        pass

    def expanding(self, title: str) -> None:
        pass

    def saw(self, title: str, seen: str) -> None:
        pass

    def finished(self, result: StepResult) -> None:
        pass

    def failed(self, title: str, seconds: float) -> None:
        pass
