"""An archive that a task wrote cannot reach outside the directory it is unpacked into."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from trainyard_runner.wire.unpack import unpack as extract


def member(
    name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, kind=tarfile.SYMTYPE, link=target), b""


def unpack(target: Path, *members: tuple[tarfile.TarInfo, bytes]) -> list[str]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return [str(item) for item in extract([packed.getvalue()], target)]


def everything_below(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (member("/etc/evil"), "an absolute path"),
        (member("a/../../evil"), "a path that leads upwards"),
        (member("null", kind=tarfile.CHRTYPE), "a device or pipe"),
        (symlink("link", "/etc/passwd")[0], "a link that leads outside (/etc/passwd)"),
        (symlink("link", "../x")[0], "a link that leads outside (../x)"),
        (member("link", kind=tarfile.LNKTYPE, link="good"), "a hard link"),
        (member("n" * 300), "File name too long"),
    ],
)
def test_a_hostile_or_unwritable_member_is_left_out_and_reported(
    tmp_path: Path, hostile: tarfile.TarInfo, reason: str
) -> None:
    (tmp_path / "secret").write_text("s")
    left_out = unpack(tmp_path / "target", (member("good"), b"g"), (hostile, b""))
    assert left_out == [f"{hostile.name[:200]}: {reason}"]
    assert everything_below(tmp_path) - {"target/a"} == {"secret", "target", "target/good"}


def test_nothing_is_written_or_linked_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    target = tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "old").symlink_to(outside)
    door, link = symlink("door", str(outside)), symlink("old/link", "x")
    assert unpack(target, door, (member("door/evil"), b"x"), link) == [
        f"door: a link that leads outside ({outside})"
    ]
    assert list(outside.iterdir()) == []
    assert (target / "door" / "evil").read_bytes() == b"x"
    assert (target / "old" / "link").readlink() == Path("x")


def test_a_link_that_leaves_through_another_link_is_left_out(tmp_path: Path) -> None:
    target = tmp_path / "target"
    left_out = unpack(
        target, (member("a/b/file"), b"x"), symlink("a/b/up", "../.."), symlink("out", "a/b/up/..")
    )
    assert left_out == ["out: a link that leads outside (a/b/up/..)"]
    assert (target / "a" / "b" / "up").resolve() == target.resolve()
    assert not os.path.lexists(target / "out")


def test_an_archive_replaces_existing_files_one_by_one(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "was-directory" / "deep").mkdir(parents=True)
    (target / "locked").mkdir(mode=0)
    for name in ("was-file", "other", "again"):
        (target / name).write_text("old")
    (target / "was-link").symlink_to("other")
    before = (target / "again").open()
    new = ["was-directory", "locked/a", "was-file/a", "was-link", "again"]
    assert unpack(target, *((member(name), b"new") for name in new)) == []
    assert [(target / name).read_text() for name in new] == ["new"] * 5
    assert (target / "other").read_text() == before.read() == "old"
    assert everything_below(target) == {*new, "locked", "was-file", "other"}


def test_a_directory_is_usable_whatever_its_mode_was(tmp_path: Path) -> None:
    directory = member("d", kind=tarfile.DIRTYPE, mode=0o2000)
    assert unpack(tmp_path, (directory, b""), (member("d/f", mode=0), b"x")) == []
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o700
    assert (tmp_path / "d" / "f").read_text() == "x"


def test_a_broken_archive_is_an_error(tmp_path: Path) -> None:
    sparse = tarfile.TarInfo("sparse")
    sparse.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": "no number",
    }
    for content in (b"not a tar" * 100, sparse.tobuf(tarfile.PAX_FORMAT) + bytes(2048)):
        with pytest.raises(tarfile.TarError):
            extract(io.BytesIO(content), tmp_path)


MEMBER = member("file").tobuf()
BLOCK = bytes(512)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MEMBER, "empty header"),
        (MEMBER + BLOCK, "within its end mark"),
        (MEMBER + b"x" * 512 + 2 * BLOCK, "bad checksum|invalid header"),
        (MEMBER + 2 * BLOCK + MEMBER + 2 * BLOCK, "follows the archive's end mark"),
    ],
)
def test_an_archive_that_seems_to_end_early_is_an_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(tarfile.ReadError, match=message):
        extract([content], tmp_path)
