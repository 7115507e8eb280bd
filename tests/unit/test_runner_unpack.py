"""An archive that a task wrote cannot reach outside the directory it is unpacked into."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from trainyard_runner.unpack import unpack as extract


def member(name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def unpack(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> tuple[Path, list[str]]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    packed.seek(0)
    target = tmp_path / "target"
    target.mkdir()
    return target, [str(item) for item in extract(packed, target)]


def everything_below(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_files_directories_links_and_modes_come_back(tmp_path: Path) -> None:
    target, left_out = unpack(
        tmp_path,
        (member(".", kind=tarfile.DIRTYPE), b""),
        (member("empty", kind=tarfile.DIRTYPE), b""),
        (member("runs/a/model.bin"), b"\x00\xff"),
        (member("run.sh", mode=0o4777), b"#!"),
        (member("latest", kind=tarfile.SYMTYPE, link="runs/a"), b""),
    )
    assert left_out == []
    assert everything_below(target) == {"empty", "runs", "runs/a", "runs/a/model.bin", "run.sh", "latest"}
    assert (target / "latest" / "model.bin").read_bytes() == b"\x00\xff"
    assert (target / "run.sh").stat().st_mode & 0o7777 == 0o755


HOSTILE = {
    "an absolute path": (member("/etc/evil"), "an absolute path"),
    "a path upwards": (member("a/../../evil"), "a path that leads upwards"),
    "a device": (member("null", kind=tarfile.CHRTYPE), "a device or pipe"),
    "a pipe": (member("pipe", kind=tarfile.FIFOTYPE), "a device or pipe"),
    "a link to an absolute path": (
        member("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        "a link that leads outside (/etc/passwd)",
    ),
    "a link upwards": (member("link", kind=tarfile.SYMTYPE, link="../x"), "a link that leads outside (../x)"),
    "a hard link": (member("link", kind=tarfile.LNKTYPE, link="good"), "a hard link"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_reaches_outside_is_left_out_and_named(tmp_path: Path, case: str) -> None:
    hostile, reason = HOSTILE[case]
    (tmp_path / "secret").write_text("s")
    target, left_out = unpack(tmp_path, (member("good"), b"g"), (hostile, b""))
    assert left_out == [f"{hostile.name}: {reason}"]
    assert everything_below(target) - {"a"} == {"good"}
    assert everything_below(tmp_path) - {"target", "target/good", "target/a"} == {"secret"}


def test_a_file_behind_a_link_is_not_written_through_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target, left_out = unpack(
        tmp_path, (member("door", kind=tarfile.SYMTYPE, link=str(outside)), b""), (member("door/evil"), b"x")
    )
    assert list(outside.iterdir()) == []
    assert (target / "door" / "evil").read_bytes() == b"x"
    assert left_out == [f"door: a link that leads outside ({outside})"]


def test_a_link_that_leaves_through_another_link_is_left_out(tmp_path: Path) -> None:
    target, left_out = unpack(
        tmp_path,
        (member("a/b/file"), b"x"),
        (member("a/b/up", kind=tarfile.SYMTYPE, link="../.."), b""),
        (member("out", kind=tarfile.SYMTYPE, link="a/b/up/.."), b""),
    )
    assert left_out == ["out: a link that leads outside (a/b/up/..)"]
    assert (target / "a" / "b" / "up").resolve() == target.resolve()
    assert not os.path.lexists(target / "out")


def test_a_link_is_not_made_behind_another_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "door").symlink_to(outside)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(member("door/link", kind=tarfile.SYMTYPE, link="x"))
    content.seek(0)
    assert extract(content, target) == []
    assert list(outside.iterdir()) == []
    assert (target / "door" / "link").readlink() == Path("x")


def test_an_archive_goes_over_what_is_there_file_by_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "was-directory" / "deep").mkdir(parents=True)
    (target / "locked").mkdir(mode=0)
    for name in ("was-file", "other", "again"):
        (target / name).write_text("old")
    (target / "was-link").symlink_to("other")
    before = (target / "again").open()
    new = [member("was-directory"), member("locked/a"), member("was-file/a"), member("was-link"), member("again")]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for info in new:
            info.size = 3
            archive.addfile(info, io.BytesIO(b"new"))
    assert extract([content.getvalue()], target) == []
    assert {name: (target / name).read_text() for name in (info.name for info in new)} == {
        info.name: "new" for info in new
    }
    assert (target / "other").read_text() == before.read() == "old"
    assert everything_below(target) == {info.name for info in new} | {"locked", "was-file", "other"}


def test_a_directory_is_usable_whatever_its_mode_was(tmp_path: Path) -> None:
    target, left_out = unpack(
        tmp_path, (member("d", kind=tarfile.DIRTYPE, mode=0o2000), b""), (member("d/f", mode=0), b"x")
    )
    assert left_out == []
    assert (target / "d").stat().st_mode & 0o7777 == 0o700
    assert (target / "d" / "f").read_text() == "x"


def test_a_member_that_cannot_be_written_costs_only_itself(tmp_path: Path) -> None:
    target, left_out = unpack(tmp_path, (member("n" * 300), b"x"), (member("whole"), b"x"))
    assert left_out == ["n" * 200 + ": File name too long"]
    assert everything_below(target) == {"whole"}


def test_a_broken_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(tarfile.TarError):
        extract(io.BytesIO(b"not a tar" * 100), tmp_path)
    sparse = tarfile.TarInfo("sparse")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "no number"}
    with pytest.raises(tarfile.TarError):
        extract(io.BytesIO(sparse.tobuf(tarfile.PAX_FORMAT) + bytes(2048)), tmp_path)
