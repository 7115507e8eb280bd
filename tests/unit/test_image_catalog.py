"""Which images can be built, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard import paths, versions
from trainyard.errors import RequestError
from trainyard.images import catalog
from trainyard.tasks.command import Call
from trainyard.tasks.image import _cluster


def write(directory: Path, text: str = "base: debian:12\n") -> Path:
    directory.mkdir(parents=True)
    (directory / "image.yaml").write_text(text)
    return directory


@pytest.mark.parametrize("name", ["ray-cpu", "schola", "isaac-lab", "torch"])
def test_shipped_images_end_with_a_user_kubernetes_can_tell_from_root(name: str) -> None:
    image = catalog.find(name, directory=Path("/nowhere"))
    lines = (image.directory / "Dockerfile").read_text().splitlines()
    assert (image.file.user, [line for line in lines if line.startswith("USER ")][-1]) == (
        "non-root",
        "USER 1000",
    )


def test_a_users_image_takes_precedence_over_a_shipped_one(tmp_path: Path) -> None:
    assert (
        catalog.find("ray-cpu", directory=tmp_path).directory == paths.shipped("images") / "ray-cpu"
    )
    own = write(tmp_path / "images" / "ray-cpu")
    assert catalog.find("ray-cpu", directory=tmp_path).directory == own
    assert catalog.find("images/ray-cpu/", directory=tmp_path).directory == own


def test_a_path_is_an_image_too(tmp_path: Path) -> None:
    own = write(tmp_path / "elsewhere" / "robots")
    image = catalog.find("elsewhere/robots", directory=tmp_path)
    assert (image.name, image.directory, image.repository) == ("robots", own, "trainyard/robots")


def test_the_base_can_be_replaced(tmp_path: Path) -> None:
    write(tmp_path / "images" / "mine", "base: rayproject/ray:{ray}-py310\n")
    assert catalog.find("mine", directory=tmp_path).base == f"rayproject/ray:{versions.RAY}-py310"
    assert (
        catalog.find("mine", directory=tmp_path, base="mirror:5000/ray").base == "mirror:5000/ray"
    )


def test_build_arguments_join_those_of_the_file_and_of_trainyard(tmp_path: Path) -> None:
    write(tmp_path / "images" / "mine", 'base: debian:12\narguments: {WHEEL: "ray-{ray}.whl"}\n')
    assert catalog.find("mine", directory=tmp_path).arguments == {
        "BASE": "debian:12",
        "RAY_VERSION": versions.RAY,
        "WHEEL": f"ray-{versions.RAY}.whl",
    }


def test_an_unknown_image_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as raised:
        catalog.find("scola", directory=tmp_path)
    assert str(raised.value) == (
        "no such image: scola\n"
        "  - IMAGE: 'scola' is neither a directory with an image.yaml nor one of: isaac-lab, "
        "isaac-ray, ray-cpu, "
        "schola, torch; did you mean 'schola'?"
    )


def test_a_directory_whose_name_no_registry_takes_is_refused(tmp_path: Path) -> None:
    own = write(tmp_path / "images" / "ScholaExamples")
    with pytest.raises(
        RequestError, match=f"{own}: 'ScholaExamples' cannot be the name of an image: lower-case "
    ):
        catalog.find("ScholaExamples", directory=tmp_path)


def test_a_name_is_told_from_a_reference(tmp_path: Path) -> None:
    write(tmp_path / "images" / "mine")
    names = (
        "schola",
        "images/mine",
        "rayproject/ray:2.60.0",
        "ubuntu:24.04",
        "r:5000/a@sha256:" + "0" * 64,
    )
    assert [name for name in names if not catalog.is_reference(name, directory=tmp_path)] == [
        "schola",
        "images/mine",
    ]


def test_the_dockerfiles_we_ship_fetch_no_frontend() -> None:
    # A syntax line would have every build fetch one from Docker Hub.
    assert not [
        path
        for path in paths.shipped("images").glob("*/Dockerfile")
        if "# syntax" in path.read_text()
    ]


def test_flags_win_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yard.yaml").write_text(
        "name: yard\nbackend: local\nbuild: {base: 'debian:11', network: host}\n"
    )
    call = Call("image.build", "", file="./yard.yaml")
    spec = _cluster(call, "mine", base="debian:12").spec
    assert (spec.image, spec.build.base, spec.build.network) == ("mine", "debian:12", "host")
    assert _cluster(call).spec.build.base == "debian:11"

    with pytest.raises(RequestError) as raised:
        _cluster(call, base="Debian:12", platform="arm64")

    assert [problem.where for problem in raised.value.problems] == [
        "--set build.base",
        "--set build.platform",
    ]
