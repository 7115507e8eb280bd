"""The files of a job directory that are sent, and their names."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.job_directories import sent, write
from trainyard.dispatch import package
from trainyard.dispatch.package import listing, pack
from trainyard.errors import RequestError


def left_out(root: Path) -> dict[str, str]:
    return {one.name: one.by for one in listing(root).left_out}


def test_the_same_content_has_the_same_name_whatever_times_and_order(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"a.py": "1", "b/c.py": "2", "z.txt": "3"})
    two = write(tmp_path / "two", {"z.txt": "3", "b/c.py": "2", "a.py": "1"})
    os.utime(two / "a.py", (1, 1))
    first, second = pack(listing(one)), pack(listing(two))
    assert (first.name, first.parts) == (second.name, second.parts)
    assert first.read(0) == second.read(0)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a.py").write_text("2"),
        lambda root: (root / "a.py").rename(root / "b.py"),
        lambda root: (root / "a.py").chmod(0o755),
    ],
)
def test_another_content_name_or_mode_has_another_name(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    root = write(tmp_path, {"a.py": "1"})
    before = pack(listing(root)).name
    change(root)
    assert pack(listing(root)).name != before


def test_a_big_package_travels_in_parts_that_make_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "PART_LIMIT", 1000)
    (tmp_path / "big.bin").write_bytes(os.urandom(3500))
    packed = pack(listing(tmp_path))
    assert len(packed.parts) == 4
    whole = b"".join(map(packed.read, range(4)))
    assert len(whole) == packed.size
    (tmp_path / "whole.zip").write_bytes(whole)
    assert zipfile.ZipFile(tmp_path / "whole.zip").testzip() is None


def test_too_big_a_directory_names_its_biggest_files(tmp_path: Path) -> None:
    with (tmp_path / "weights.bin").open("wb") as sparse:
        sparse.truncate(600 * 1024 * 1024)
    (tmp_path / "train.py").write_text("x")
    with pytest.raises(RequestError) as caught:
        pack(listing(tmp_path))
    assert str(caught.value).splitlines() == [
        "the job directory is too big for Ray: 600.0 MiB of at most 500.0 MiB",
        f"  at {tmp_path.resolve()}",
        "  - weights.bin: 600.0 MiB",
        "  - train.py: 1 B",
        "  -> Name in .rayignore what the job does not need, or let it read from a shared place.",
    ]


@pytest.mark.parametrize("line", ["!", "\\", "foo\\", "[z-a]", "[a-\\d]"])
def test_an_ignore_file_s_invalid_line_ignores_nothing(tmp_path: Path, line: str) -> None:
    write(tmp_path, {".gitignore": f"*.log\n{line}\n*.tmp\n", "a": "", "x.log": "", "x.tmp": ""})
    assert sent(tmp_path) == [".gitignore", "a"]


def test_each_left_out_path_names_its_ignore_file(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            ".gitignore": "*.log\nbuild/\n",
            ".rayignore": "data/\n",
            "train.py": "",
            "x.log": "",
            "build/x": "",
            "data/x": "",
            "sub/.gitignore": "!keep.log\n/only_here\n",
            "sub/keep.log": "",
            "sub/only_here": "",
            "sub/deep/only_here": "",
            "__pycache__/a.pyc": "",
        },
    )

    ours = {".gitignore", ".rayignore", "sub/.gitignore"}
    assert set(sent(root)) - ours == {"sub/deep/only_here", "sub/keep.log", "train.py"}
    assert left_out(root) == {
        "__pycache__/": "always",
        "build/": ".gitignore",
        "data/": ".rayignore",
        "sub/only_here": "sub/.gitignore",
        "x.log": ".gitignore",
    }


@pytest.mark.parametrize(
    ("mode", "sent"),
    [
        (0o644, 0o644),
        (0o664, 0o644),
        (0o444, 0o644),
        (0o775, 0o755),
        (0o600, 0o600),
        (0o400, 0o600),
        (0o700, 0o700),
    ],
)
def test_a_mode_keeps_its_execute_bit_and_whether_only_the_owner_reads(
    tmp_path: Path, mode: int, sent: int
) -> None:
    root = write(tmp_path, {"key": "secret"})
    (root / "key").chmod(mode)
    with zipfile.ZipFile(io.BytesIO(pack(listing(root)).read(0))) as bundle:
        assert bundle.getinfo("key").external_attr >> 16 & 0o777 == sent


def test_an_ignore_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    root = write(tmp_path, {"build/a": "", "train.py": ""})
    (root / ".gitignore").write_text("/build/\n", encoding="utf-8-sig")
    assert {file.name for file in listing(root).files} == {".gitignore", "train.py"}


def test_rayignore_brings_back_what_gitignore_leaves_out(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {".gitignore": "*.onnx\n", ".rayignore": "!policy.onnx\n", "policy.onnx": "", "b.onnx": ""},
    )
    assert "policy.onnx" in sent(root)
    assert "b.onnx" not in sent(root)


def test_a_repository_s_ignore_files_count_but_cannot_hide_the_job_itself(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {".gitignore": "*.ckpt\nscratch/\n", "scratch/job/a.ckpt": "", "scratch/job/train.py": ""},
    )
    (root / ".git").mkdir()
    write(tmp_path, {"jobs/one/a.ckpt": "", "jobs/one/train.py": ""})
    assert sent(root / "jobs/one") == ["train.py"]
    assert sent(root / "scratch/job") == ["a.ckpt", "train.py"]


def test_links_are_followed_but_not_in_circles_and_not_to_nothing(tmp_path: Path) -> None:
    shared = write(tmp_path / "shared", {"lib/util.py": "u"})
    job = write(tmp_path / "job", {"train.py": "t"})
    (job / "lib").symlink_to(shared / "lib")
    (job / "again").symlink_to(job)
    (job / "gone").symlink_to(job / "nothing")
    os.mkfifo(job / "pipe")
    assert sent(job) == ["lib/util.py", "train.py"]
    assert left_out(job) == {
        "again/": "a circular link",
        "gone": "a broken link",
        "pipe": "not a regular file",
    }


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.py")).write_text("")
    with pytest.raises(RequestError, match="a file cannot be sent"):
        listing(tmp_path)
