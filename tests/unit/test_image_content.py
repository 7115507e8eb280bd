"""The hash of an image, and the stream that its builder gets."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.images import catalog, content
from trainyard.images.catalog import Image

BASE_ID = "sha256:" + "a" * 64


def write_image(directory: Path, *, file: str = "base: debian:12\n") -> Path:
    image = directory / "images" / "mine"
    (image / "files").mkdir(parents=True)
    (image / "image.yaml").write_text(file)
    (image / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY files/ /\n")
    (image / "files" / "run.sh").write_text("#!/bin/sh\n")
    (image / "README.md").write_text("about\n")
    (image / ".dockerignore").write_text("# what is not content\nREADME.md\n**/__pycache__\n")
    return image


def image_in(directory: Path) -> Image:
    return catalog.find("mine", directory=directory)


def hashed(directory: Path, *, base_id: str | None = BASE_ID, platform: str | None = None) -> str:
    image = image_in(directory)
    source = content.source_hash(
        image, {"XDG_CACHE_HOME": str(directory / "cache")}, platform=platform
    )
    return content.tag(source, base=base_id or image.base)


def streamed(image: Image) -> bytes:
    target = io.BytesIO()
    content.write(image, target)
    return target.getvalue()


def archived(image: Image) -> dict[str, tuple[str, int]]:
    with tarfile.open(fileobj=io.BytesIO(streamed(image))) as archive:
        return {entry.name: (entry.linkname, entry.mode) for entry in archive}


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file": lambda image: (image / "files" / "run.sh").write_text("#!/bin/bash\n"),
    "one more file": lambda image: (image / "files" / "more").write_text(""),
    "an empty directory": lambda image: (image / "files" / "empty").mkdir(),
    "a file that can be executed now": lambda image: (image / "files" / "run.sh").chmod(0o755),
    "a link": lambda image: (image / "files" / "link").symlink_to("run.sh"),
    "the Dockerfile": lambda image: (image / "Dockerfile").write_text(
        "ARG BASE\nFROM ${BASE}\nUSER 1\n"
    ),
    "an argument": lambda image: (image / "image.yaml").write_text(
        "base: debian:12\narguments: {A: b}\n"
    ),
}
NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "a file that is ignored": lambda image: (image / "README.md").write_text("more about\n"),
    "what lint must find": lambda image: (image / "image.yaml").write_text(
        "base: debian:12\nuser: root\n"
    ),
    "another umask": lambda image: (image / "files" / "run.sh").chmod(0o600),
    "the same content, written again": lambda image: (image / "files" / "run.sh").write_text(
        "#!/bin/sh\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_content_makes_another_image(tmp_path: Path, change: str) -> None:
    image = write_image(tmp_path)
    before = hashed(tmp_path)
    CHANGES[change](image)
    assert hashed(tmp_path) != before


@pytest.mark.parametrize("change", NO_CHANGES)
def test_a_change_of_no_content_keeps_the_image(tmp_path: Path, change: str) -> None:
    image = write_image(tmp_path)
    before, stream = hashed(tmp_path), streamed(image_in(tmp_path))
    NO_CHANGES[change](image)
    assert hashed(tmp_path) == before
    assert streamed(image_in(tmp_path)) == stream


def test_a_base_whose_tag_moved_and_another_platform_make_another_image(tmp_path: Path) -> None:
    write_image(tmp_path)
    tags = [
        hashed(tmp_path),
        hashed(tmp_path, base_id="sha256:" + "b" * 64),
        hashed(tmp_path, base_id=None),
    ]
    tags.append(hashed(tmp_path, platform="linux/arm64"))
    assert all(re.fullmatch(r"[0-9a-f]{12}", tag) for tag in tags)
    assert len(set(tags)) == len(tags)


def test_the_stream_has_every_file_with_modes_that_git_knows(tmp_path: Path) -> None:
    image = write_image(tmp_path)
    (image / "files" / "run.sh").chmod(0o700)
    (image / "files" / "link").symlink_to("run.sh")
    assert archived(image_in(tmp_path)) == {
        "Dockerfile": ("", 0o644),
        "files": ("", 0o755),
        "files/link": ("run.sh", 0o777),
        "files/run.sh": ("", 0o755),
    }


def test_files_outside_the_image_directory_are_content_too(tmp_path: Path) -> None:
    write_image(
        tmp_path, file="base: debian:12\ncontents: {unreal: ../../build, one.txt: ../../one.txt}\n"
    )
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "Game.sh").write_text("")
    (tmp_path / "one.txt").write_text("")
    before = hashed(tmp_path)
    assert {"unreal", "unreal/Game.sh", "one.txt"} <= set(archived(image_in(tmp_path)))
    (tmp_path / "build" / "Game.sh").write_text("changed")
    assert hashed(tmp_path) != before


def test_content_that_is_not_there_is_named(tmp_path: Path) -> None:
    image = write_image(tmp_path, file="base: debian:12\ncontents: {unreal: ../../build}\n")
    with pytest.raises(RequestError) as raised:
        hashed(tmp_path)
    assert str(raised.value) == (
        "image mine lacks a part of its content\n"
        f"  - {image}/image.yaml: contents.unreal: {tmp_path}/build does not exist"
    )


def test_a_large_file_is_read_once(tmp_path: Path) -> None:
    game = write_image(tmp_path) / "files" / "game.pak"
    with game.open("wb") as stream:
        stream.truncate(content.LARGE)

    first = hashed(tmp_path)
    (kept,) = (tmp_path / "cache").rglob("digests/*")
    kept.write_text("from the cache")
    assert hashed(tmp_path) != first
    kept.unlink()
    assert hashed(tmp_path) == first
    kept.write_text("from the cache")

    with game.open("r+b") as stream:
        stream.write(b"x")

    assert hashed(tmp_path) != first
    assert len([*(tmp_path / "cache").rglob("digests/*")]) == 2


def test_an_unreadable_part_is_named_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    image = write_image(tmp_path)
    os.mkfifo(image / "files" / "pipe")

    with pytest.raises(RequestError) as raised:
        hashed(tmp_path)

    assert raised.value.lines() == [
        "a part of image mine cannot be read",
        f"  at {image}/files/pipe is no file, link or directory",
        "  -> Make it readable for you, or name it in the image's .dockerignore.",
    ]

    (image / ".dockerignore").write_text("files/pipe\n")
    assert hashed(tmp_path)
    (image / "Dockerfile").unlink()

    with pytest.raises(RequestError, match="No such file or directory"):
        hashed(tmp_path)


def test_a_dockerfile_that_ignores_the_base_is_refused(tmp_path: Path) -> None:
    image = write_image(tmp_path)
    (image / "Dockerfile").write_text("# on ${BASE}\nFROM debian:11\n")
    with pytest.raises(RequestError) as raised:
        content.dockerfile(image_in(tmp_path))
    assert str(raised.value) == (
        "the base of image mine has no effect: its Dockerfile does not use it\n"
        f"  at {image}/Dockerfile; debian:12 is the base that image.yaml, build.base or --base "
        "names\n"
        "  -> Begin the Dockerfile with these two lines: ARG BASE, FROM ${BASE}"
    )
