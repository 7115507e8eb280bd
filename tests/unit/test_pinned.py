"""Which image a cluster runs, asked of an engine that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from docker.errors import APIError, ImageNotFound

from trainyard.errors import PrerequisiteError
from trainyard.images import build, catalog
from trainyard.images.pinned import PinnedImage, pinned
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry_refusals import CertificateError, LoginError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import BuildSection

ID, DIGEST, OLD = (f"sha256:{letter * 64}" for letter in "adc")
DEFAULT = "127.0.0.1:32000/mine"
REFUSED = "Get http://127.0.0.1:32000/v2/: dial tcp 127.0.0.1:32000: connect: connection refused"
MISSING = "manifest unknown: manifest unknown"


class FakeApi:
    """An engine: its images by name, and what registries answer it; text is a refusal."""

    def __init__(self, images: dict[str, list[str]], registries: dict[str, str], *, image_id: str = ID) -> None:
        self.images, self.registries, self.image_id = images, registries, image_id

    def inspect_image(self, reference: str) -> dict[str, Any]:
        if reference not in self.images:
            raise ImageNotFound(f"No such image: {reference}")
        return {"Id": self.image_id, "RepoDigests": self.images[reference], "Os": "linux", "Architecture": "amd64"}

    def inspect_distribution(self, reference: str, *, auth_config: dict[str, str]) -> dict[str, Any]:
        said = self.registries.get(reference, REFUSED)
        if not said.startswith("sha256:"):
            raise APIError("500", requests.Response(), explanation=said)
        return {"Descriptor": {"digest": said}}


def pin(tmp_path: Path, api: FakeApi, image: str = "mine") -> PinnedImage:
    directory = tmp_path / "images" / "mine"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "image.yaml").write_text("base: debian:12\n")
    (directory / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    environ = {"HOME": str(tmp_path)}
    engine = Engine("unix:///x.sock", api, environ)  # type: ignore[arg-type]
    spec = ClusterSpec(name="yard", backend="compose", image=image)
    # The engine has no base: its name counts.
    what = build.Building(catalog.find("mine", directory=tmp_path), engine, BuildSection())
    tag = what.reference.rpartition(":")[2]
    api.images = {name.replace("CONTENT", tag): value for name, value in api.images.items()}
    api.registries = {name.replace("CONTENT", tag): value for name, value in api.registries.items()}
    return pinned(spec, environ, engine, directory=tmp_path)


BUILT = "trainyard/mine:CONTENT"
PUSHED = f"{DEFAULT}:CONTENT"


def test_without_a_registry_section_what_was_pushed_to_the_default_one_runs_by_its_digest(tmp_path: Path) -> None:
    found = pin(tmp_path, FakeApi({BUILT: []}, {PUSHED: DIGEST}))
    assert found == PinnedImage("mine", f"{DEFAULT}@{DIGEST}", DIGEST)


@pytest.mark.parametrize("answer", [{}, {PUSHED: MISSING}])
def test_a_default_registry_that_does_not_answer_leaves_what_was_pushed_to_it(
    tmp_path: Path, answer: dict[str, str]
) -> None:
    found = pin(tmp_path, FakeApi({BUILT: [f"{DEFAULT}@{DIGEST}"]}, answer))
    assert found == PinnedImage("mine", f"{DEFAULT}@{DIGEST}", DIGEST)


@pytest.mark.parametrize("answer", [{}, {PUSHED: MISSING}, {PUSHED: "unauthorized"}, {PUSHED: "no registry at all"}])
def test_what_was_only_built_runs_by_its_id(tmp_path: Path, answer: dict[str, str]) -> None:
    assert pin(tmp_path, FakeApi({BUILT: []}, answer)) == PinnedImage("mine", ID, None)


def test_what_was_never_built_is_to_be_built(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        pin(tmp_path, FakeApi({}, {}))
    assert caught.value.what == "image mine is not on the Docker engine (here) as it is now"
    assert caught.value.hint == "Build it: invoke image.build mine"


def test_a_default_registry_that_refuses_is_not_an_image_that_was_never_built(tmp_path: Path) -> None:
    with pytest.raises(LoginError):
        pin(tmp_path, FakeApi({}, {PUSHED: "unauthorized: authentication required"}))


OTHERS = "reg:5000/team/robots:1"
HELD = {OTHERS: [f"reg:5000/team/robots@{OLD}"]}


def test_a_moved_tag_of_others_is_looked_up(tmp_path: Path) -> None:
    assert pin(tmp_path, FakeApi(HELD, {OTHERS: DIGEST}), OTHERS).digest == DIGEST


@pytest.mark.parametrize("said", [REFUSED, "received unexpected HTTP status: 503 Service Unavailable"])
def test_what_was_pulled_runs_while_its_registry_is_away(tmp_path: Path, said: str) -> None:
    assert pin(tmp_path, FakeApi(HELD, {OTHERS: said}), OTHERS).digest == OLD


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("unauthorized: authentication required", LoginError),
        ("x509: certificate signed by unknown authority", CertificateError),
    ],
)
def test_a_registry_that_refuses_is_told_although_an_older_image_is_here(
    tmp_path: Path, said: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        pin(tmp_path, FakeApi(HELD, {OTHERS: said}), OTHERS)


DENIED = "denied: requested access to the resource is denied"


@pytest.mark.parametrize("noted", [[], [f"other/name@{OLD}"], [f"mine/robots@{ID}"]])
def test_what_was_built_here_needs_no_hub_whatever_the_engine_noted(tmp_path: Path, noted: list[str]) -> None:
    api = FakeApi({"mine/robots:1": noted}, {"mine/robots:1": DENIED})
    assert pin(tmp_path, api, "mine/robots:1") == PinnedImage("mine/robots:1", ID, None)


@pytest.mark.parametrize("image_id", [ID, DIGEST])
def test_what_was_pulled_from_the_hub_runs_by_its_digest(tmp_path: Path, image_id: str) -> None:
    api = FakeApi({"team/robots:1": [f"team/robots@{DIGEST}"]}, {"team/robots:1": DIGEST}, image_id=image_id)
    assert pin(tmp_path, api, "team/robots:1").reference == f"team/robots@{DIGEST}"
