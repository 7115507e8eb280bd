"""When a push is done, and what happens when it goes wrong; the registry is a dict."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.fake_time import FakeTime
from trainyard.console.progress import for_stream
from trainyard.errors import NotReadyError
from trainyard.images.build import Built
from trainyard.images.push import Pushed, Pushing
from trainyard.registry.access import Access
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.api import Blob, Manifest, RegistryApi
from trainyard.seams.registry.errors import FixedTagError
from trainyard.spec.docker import Registry
from trainyard.steps import run

ID = "sha256:" + "a" * 64
BASE, CODE = Blob("sha256:base", 100), Blob("sha256:code", 5)
MANIFEST = Manifest("sha256:manifest", "type", Blob(ID, 7), (BASE, CODE), (), b"{}")
OLDER = Manifest("sha256:older", "type", Blob("sha256:other", 7), (), (), b"{}")
BUILT = Built("mine", "trainyard/mine:1", "trainyard/mine:ray-2", "1", "0123", ID)


@dataclass
class FakeRegistry:
    """A registry whose tags lead to these manifests."""

    tags: dict[str, Manifest] = field(default_factory=dict)
    fixed: bool = False

    def manifest(self, name: str, reference: str) -> Manifest | None:
        assert name == "team/mine"
        return self.tags.get(reference)

    def put_manifest(self, name: str, tag: str, manifest: Manifest) -> None:
        if self.fixed:
            raise FixedTagError("immutable")
        self.tags[tag] = manifest


class FakeApi:
    """An engine that calls every push done, and reports nothing of it."""

    base_url, api_version = "http+docker://localhost", "1.47"

    def tag(self, reference: str, repository: str, *, tag: str, force: bool) -> None:
        assert (reference, f"{repository}:{tag}") == (ID, "reg:5000/team/mine:1")

    def post(self, url: str, **_: Any) -> AbstractContextManager[Any]:
        assert url.endswith("/images/reg:5000/team/mine/push")
        return nullcontext(SimpleNamespace(status_code=200, iter_lines=lambda **_: iter(())))


def pushing(held: FakeRegistry) -> Pushing:
    registry = Registry(address="reg:5000", namespace="team")
    access = Access(registry, cast("RegistryApi", held), None)
    return Pushing(BUILT, access, Engine("unix:///none", cast("Any", FakeApi()), {}))


def changed(what: Pushing) -> list[tuple[str, bool]]:
    results = run(what.steps(), for_stream(io.StringIO()), clock=FakeTime().clock())
    return [(result.title, result.changed) for result in results]


def test_an_image_that_is_there_is_not_sent_but_gets_all_tags() -> None:
    held = FakeRegistry({"1": MANIFEST})
    assert changed(pushing(held)) == [
        ("Push reg:5000/team/mine:1", False),
        ("Tag it ray-2", True),
        ("Tag it src-0123", True),
    ]
    assert held.tags == {"1": MANIFEST, "ray-2": MANIFEST, "src-0123": MANIFEST}
    assert not any(has_changed for _, has_changed in changed(pushing(held)))


def test_a_push_where_tags_cannot_move_is_done_under_the_other_tag() -> None:
    what = pushing(FakeRegistry({"1": MANIFEST, "ray-2": OLDER, "src-0123": MANIFEST}, fixed=True))
    changed(what)
    assert what.result() == Pushed(
        reference="reg:5000/team/mine@sha256:manifest",
        tag="reg:5000/team/mine:1",
        alias="reg:5000/team/mine:1",
        digest="sha256:manifest",
        bytes_sent=0,
        layers_sent=0,
        layers_there=2,
    )


@pytest.mark.parametrize("left", [None, OLDER])
def test_a_push_that_docker_calls_done_is_not_believed(left: Manifest | None) -> None:
    with pytest.raises(NotReadyError, match="Push reg:5000/team/mine:1: not done after 5 s"):
        changed(pushing(FakeRegistry({"1": left} if left else {})))
