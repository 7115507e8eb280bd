"""Trees and archives: any depth and any name; nothing from outside; whole or not at all."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from trainyard_runner.wire import archive, outputs, tree
from trainyard_runner.wire.unpack import unpack

END = bytes(1024)


def there_and_back(source: Path, target: Path) -> list[archive.LeftOut]:
    entries, left_out = archive.scan(str(source))
    pieces = list(archive.parts(entries.values(), left_out))
    return left_out + unpack([*pieces, END], target)


def members(
    entries: archive.Entries, left_out: list[archive.LeftOut] | None = None
) -> dict[str, tarfile.TarInfo]:
    content = b"".join(archive.parts(entries.values(), left_out)) + END
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: member for member in tar}


def lost(name: str, reason: str) -> archive.LeftOut:
    return archive.LeftOut(name, reason, is_lost=True)


def test_a_directory_comes_back_as_it_was(tmp_path: Path) -> None:
    source = tmp_path / "a"
    target = tmp_path / "b"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "deep" / "größe.bin").write_bytes(bytes(range(256)) * 9000)
    (source / "none").write_bytes(b"")
    (source / "run.sh").write_text("#!/bin/sh")
    (source / "run.sh").chmod(0o4755)
    (source / "latest").symlink_to("deep")
    (source / "deep" / "full").symlink_to(source / "none")
    assert there_and_back(source, target) == []
    assert (target / "deep" / "größe.bin").read_bytes() == bytes(range(256)) * 9000
    assert (target / "deep" / "empty").is_dir()
    assert (target / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (target / "latest").readlink() == Path("deep")
    assert (target / "deep" / "full").readlink() == Path("../none")
    assert (target / "none").read_bytes() == b""


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "deep/../../outside"])
def test_a_link_that_leads_outside_is_left_out(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    entries, left_out = archive.scan(str(tmp_path))
    assert entries == {}
    assert left_out == [
        archive.LeftOut("link", f"a link that leads outside ({target})", is_lost=False)
    ]


def test_a_link_to_an_output_through_linked_directories_is_kept(tmp_path: Path) -> None:
    (tmp_path / "runs" / "2024").mkdir(parents=True)
    (tmp_path / "runs" / "2024" / "c.pt").touch()
    (tmp_path / "runs" / "current").symlink_to("newest")
    (tmp_path / "runs" / "newest").symlink_to("2024")
    (tmp_path / "latest.pt").symlink_to("runs/current/c.pt")
    (tmp_path / "latest").symlink_to("runs/current")
    (tmp_path / "circle").symlink_to("circle/x")
    entries, left_out = archive.scan(str(tmp_path))
    assert archive.without_loose_links(entries, left_out) == entries

    del entries["runs/2024/c.pt"]
    assert "latest.pt" not in archive.without_loose_links(entries, left_out)
    assert left_out == [lost("latest.pt", "a link to runs/current/c.pt, which is no output")]


def test_a_declared_file_is_found_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("m")
    assert list(archive.scan_one(str(tmp_path / "model.pt"), "out/model.pt")[0]) == ["out/model.pt"]
    assert archive.scan_one(str(tmp_path / "absent"), "absent") == ({}, [])


@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_that_changes_while_it_is_read_spoils_the_archive(
    tmp_path: Path, is_link: bool
) -> None:
    file = tmp_path / "model"
    file.write_text("before")
    entries, _ = archive.scan(str(tmp_path))
    file.unlink()
    if is_link:
        file.symlink_to("/etc/hostname")
    else:
        file.write_text("after it")
    with pytest.raises(archive.ChangedError, match="model"):
        list(archive.parts(entries.values()))


@pytest.mark.parametrize("name", ["sparse", os.fsdecode(b"\xff\n") + "s" * 200])
def test_a_sparse_file_stays_sparse(tmp_path: Path, name: str) -> None:
    source = tmp_path / "a"
    source.mkdir()

    with (source / name).open("wb") as file:
        for at in (0, 1 << 30, 3 << 30):
            file.seek(at)
            file.write(b"data")
        file.truncate(1 << 40)

    (source / "t").write_text("after it")
    entries, _ = archive.scan(str(source))
    assert entries[name].size == 1 << 40
    assert entries[name].data_bytes < 1 << 20
    assert sum(map(len, archive.parts(entries.values()))) < 1 << 20
    assert there_and_back(source, tmp_path / "b") == []
    back = tmp_path / "b" / name
    assert (back.stat().st_size, back.stat().st_blocks * 512 < 1 << 20) == (1 << 40, True)

    with back.open("rb") as file:
        file.seek((3 << 30) - 2)
        assert file.read(8) == b"\0\0data\0\0"

    assert (tmp_path / "b" / "t").read_text() == "after it"


def test_8_gib_of_data_in_a_sparse_file_leave_later_files_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a"
    source.mkdir()
    with (source / "data").open("wb") as file:
        file.truncate(40 << 30)
    (source / "later").write_text("after it")
    entries, _ = archive.scan(str(source))
    later = b"".join(archive.parts([entries["later"]])) + END
    monkeypatch.setattr(archive, "_segments", lambda *_: [(0, 9 << 30)])
    first = next(archive.parts([entries["data"]]))

    # The data between is a hole, which `tarfile` skips.
    packed = tmp_path / "packed.tar"
    with packed.open("wb") as file:
        file.write(first)
        file.seek((9 << 30) - archive.PART, os.SEEK_CUR)
        file.write(later)

    with tarfile.open(packed) as tar:
        sizes = {member.name: member.size for member in tar}
    assert sizes == {"data": 40 << 30, "later": 8}


def test_a_file_that_shrinks_while_it_is_read_costs_only_itself(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.mkdir()
    (source / "big").write_bytes(b"x" * 3 * archive.PART)
    (source / "small").write_text("whole")
    left_out: list[archive.LeftOut] = []
    sending = archive.parts(archive.scan(str(source))[0].values(), left_out)
    first = next(sending)
    (source / "big").write_bytes(b"x" * 10)
    unpack([first, *sending, END], tmp_path / "b")
    assert (tmp_path / "b" / "small").read_text() == "whole"
    assert (tmp_path / "b" / "big").stat().st_size == 3 * archive.PART
    assert [item.name for item in left_out] == ["big"]


def test_a_file_that_became_a_pipe_a_link_or_nothing_costs_only_itself(tmp_path: Path) -> None:
    for name in ("gone", "link", "pipe", "whole"):
        (tmp_path / name).write_text(name)
    entries, left_out = archive.scan(str(tmp_path))
    for name in ("gone", "link", "pipe"):
        (tmp_path / name).unlink()
    (tmp_path / "link").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe")
    assert list(members(entries, left_out)) == ["whole"]
    assert [item.name for item in left_out] == ["link", "pipe"]
    assert archive.LeftOut("pipe", "a pipe", is_lost=False) in archive.scan(str(tmp_path))[1]
    assert archive.scan_one(str(tmp_path / "pipe"), "pipe")[1] == [lost("pipe", "a pipe")]


def test_a_root_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "output").symlink_to("/etc")
    assert archive.scan(str(tmp_path / "output"), "out") == (
        {},
        [lost("out", "a link or file took its place")],
    )
    assert archive.scan(str(tmp_path / "absent")) == ({}, [])


def test_an_arriving_archive_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "t.tar"
    incoming = archive.Incoming(path)
    incoming.write(b"x" * 512)
    assert not path.exists()
    incoming.abandon()
    assert list(path.parent.iterdir()) == []


def test_files_being_written_are_carried_over_from_the_former_archive(tmp_path: Path) -> None:
    source = tmp_path / "source"
    path = tmp_path / "t.tar"
    source.mkdir()
    (source / "log").write_text("old log")
    for content, carry in (("old model", []), ("new model", ["log"])):
        (source / "model").write_text(content)
        incoming = archive.Incoming(path)
        for part in archive.parts(archive.scan(str(source))[0].values()):
            incoming.write(part)
        incoming.finish(carry=carry)
        (source / "log").unlink(missing_ok=True)
    unpack(iter([path.read_bytes()]), tmp_path / "target")
    at_home = {file.name: file.read_text() for file in (tmp_path / "target").iterdir()}
    assert at_home == {"log": "old log", "model": "new model"}


def test_removal_of_a_link_keeps_its_target(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    for directory in (outside, inside):
        directory.mkdir()
    (outside / "file").write_text("kept")
    (inside / "door").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    tree.remove(str(inside))
    tree.remove(str(tmp_path / "link"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "outside"]


def test_many_files_odd_names_and_locked_directories_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "a"
    (root / "locked" / "more").mkdir(parents=True)

    for name in [
        b"\xff\xfe",
        b"new\nline",
        b" ",
        b"-rf",
        *(b"%d" % number for number in range(1000)),
    ]:
        Path(os.fsdecode(os.path.join(os.fsencode(root), name))).touch()

    os.mkfifo(root / "pipe")
    for directory in (root / "locked" / "more", root / "locked", root):
        directory.chmod(0)

    tree.remove(str(root))
    tree.remove(str(root))
    assert list(tmp_path.iterdir()) == []


def deep(root: Path) -> None:
    """Make directories whose paths are longer than the system opens."""
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=descriptor)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)


def test_a_path_that_is_too_long_is_left_out_by_name_and_the_rest_arrives(tmp_path: Path) -> None:
    source = tmp_path / "a"
    target = tmp_path / "b"
    source.mkdir()
    (source / "file").write_text("home")
    deep(source)
    (left_out,) = there_and_back(source, target)
    assert left_out.is_lost
    assert left_out.reason == "it cannot be read: File name too long"
    assert (target / "file").read_text() == "home"


@pytest.mark.parametrize("name", ["", ".", "..", "/etc", "a/../..", "door/file", "a//b"])
def test_a_file_that_a_worker_calls_removed_is_inside(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    directory = tmp_path / "outputs"
    for each in (outside, directory / "a"):
        each.mkdir(parents=True)
    (outside / "file").touch()
    (directory / "door").symlink_to(outside)
    before = sorted(tmp_path.rglob("*"))

    assert outputs.apply([END], directory, removed=[name]) == []
    assert sorted(tmp_path.rglob("*")) == before


def test_a_tree_too_deep_for_a_path_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "a"
    root.mkdir()
    deep(root)
    tree.empty(str(root))
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("count", "text"), [(1 << 20, "1 MiB"), (3 << 29, "1.5 GiB"), (1500 << 30, "1500 GiB")]
)
def test_a_size_is_shown_without_an_exponent(count: int, text: str) -> None:
    assert outputs.sized(count) == text
