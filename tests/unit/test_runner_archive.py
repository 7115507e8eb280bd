"""Archives: everything that was there, nothing from outside, whole or not at all."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from trainyard_runner import archive
from trainyard_runner.unpack import unpack


def members(entries: archive.Entries) -> dict[str, tarfile.TarInfo]:
    content = b"".join(archive.parts(entries.values())) + bytes(1024)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: member for member in tar}


def test_a_directory_comes_back_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "deep" / "größe.bin").write_bytes(bytes(range(256)) * 9000)
    (source / "none").write_bytes(b"")
    (source / "run.sh").write_text("#!/bin/sh")
    (source / "run.sh").chmod(0o755)
    (source / "latest").symlink_to("deep")
    entries, left_out = archive.scan(str(source))
    target.mkdir()
    unpack(iter([*archive.parts(entries.values()), bytes(1024)]), target)
    assert left_out == []
    assert (target / "deep" / "größe.bin").read_bytes() == bytes(range(256)) * 9000
    assert (target / "deep" / "empty").is_dir()
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (target / "latest").readlink() == Path("deep")
    assert (target / "none").read_bytes() == b""


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "deep/../../outside"])
def test_a_link_that_leads_outside_is_left_out(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    found, left_out = archive.scan(str(tmp_path))
    assert found == {}
    assert left_out == [archive.LeftOut("link", f"a link that leads outside ({target})", is_lost=False)]


def test_a_link_with_the_full_path_of_something_inside_becomes_relative(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "model").write_text("m")
    (tmp_path / "deep" / "latest").symlink_to(tmp_path / "model")
    found = members(archive.scan(str(tmp_path))[0])
    assert found["deep/latest"].linkname == "../model"


def test_the_content_behind_a_linked_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "alias").symlink_to("real")
    assert sorted(archive.scan(str(tmp_path))[0]) == ["alias", "real", "real/file"]


def test_a_declared_file_is_found_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("m")
    assert list(archive.scan_one(str(tmp_path / "model.pt"), "out/model.pt")[0]) == ["out/model.pt"]
    assert archive.scan_one(str(tmp_path / "absent"), "absent") == ({}, [])


def test_a_file_that_changes_while_it_is_read_spoils_the_archive(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("before")
    entries, _ = archive.scan(str(tmp_path))
    file.write_text("after it")
    with pytest.raises(archive.ChangedError, match="model"):
        list(archive.parts(entries.values()))


def test_a_file_that_was_exchanged_for_a_link_is_not_followed(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("before")
    entries, _ = archive.scan(str(tmp_path))
    file.unlink()
    file.symlink_to("/etc/hostname")
    with pytest.raises(archive.ChangedError):
        list(archive.parts(entries.values()))


def test_an_arriving_archive_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "t.tar"
    incoming = archive.Incoming(path)
    incoming.write(b"x" * 512)
    assert not path.exists()
    incoming.abandon()
    assert list(path.parent.iterdir()) == []


def test_files_that_were_being_written_are_carried_over_from_the_archive_before(tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "t.tar"
    source.mkdir()
    (source / "log").write_text("old log")
    (source / "model").write_text("old model")
    receive(path, archive.scan(str(source))[0], carry=[])
    (source / "model").write_text("new model")
    (source / "log").unlink()
    receive(path, archive.scan(str(source))[0], carry=["log"])
    target = tmp_path / "target"
    target.mkdir()
    unpack(iter([path.read_bytes()]), target)
    assert {file.name: file.read_text() for file in target.iterdir()} == {"log": "old log", "model": "new model"}


def receive(path: Path, entries: archive.Entries, *, carry: list[str]) -> None:
    incoming = archive.Incoming(path)
    for part in archive.parts(entries.values()):
        incoming.write(part)
    incoming.finish(carry=carry)
