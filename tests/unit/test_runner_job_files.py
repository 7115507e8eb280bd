"""The job's files on a node: each attempt has copies of its own, of what was sent."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from trainyard_runner.node import job_files
from trainyard_runner.node.job_files import JobFiles

SENT = {
    "train.py": "print()\n",
    "model/weights.txt": "0",
    "model/deep/er/a.txt": "a",
    "run.sh": "#!/bin/sh\n",
}


def zipped(files: dict[str, str]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as bundle:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3
            entry.external_attr = (0o100755 if name.endswith(".sh") else 0o100644) << 16
            bundle.writestr(entry, text)
    return whole.getvalue()


def text_of(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def node(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path / "packages", "_ray_pkg_1.zip", lambda: zipped(SENT))


@pytest.fixture
def attempt(tmp_path: Path, node: JobFiles) -> Callable[[str], Path]:
    """Return what gives an attempt its files, and returns its directory."""

    def begun(name: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        node.copy(directory)
        return directory

    return begun


def overwrite(directory: Path) -> None:
    (directory / "train.py").write_text("changed")


def append(directory: Path) -> None:
    with (directory / "model/weights.txt").open("a") as file:
        file.write("1")


def replace(directory: Path) -> None:
    (directory / "new").write_text("new")
    (directory / "new").replace(directory / "model/deep/er/a.txt")


def empty(directory: Path) -> None:
    shutil.rmtree(directory / "model")


def make_executable(directory: Path) -> None:
    (directory / "train.py").chmod(0o777)


@pytest.mark.parametrize("does", [overwrite, append, replace, empty, make_executable])
def test_changes_of_one_attempt_to_its_files_do_not_reach_the_next(
    attempt: Callable[[str], Path], does: Callable[[Path], None]
) -> None:
    first = attempt("first")
    does(first)
    second = attempt("second")
    assert text_of(second) == SENT
    assert [(second / name).stat().st_mode & 0o111 > 0 for name in ("train.py", "run.sh")] == [
        False,
        True,
    ]


def test_no_name_of_a_file_leads_out_of_the_attempts_directory(
    attempt: Callable[[str], Path],
) -> None:
    directory = attempt("first")
    assert all(path.resolve() == path for path in directory.rglob("*"))


@pytest.mark.parametrize("does", [overwrite, append, replace, empty, make_executable])
def test_a_modified_package_is_unpacked_again(
    tmp_path: Path, attempt: Callable[[str], Path], does: Callable[[Path], None]
) -> None:
    attempt("first")
    does(tmp_path / "packages/_ray_pkg_1/files")
    assert text_of(attempt("second")) == SENT
    assert [path.name for path in (tmp_path / "packages").iterdir()] == ["_ray_pkg_1"]


def test_existing_files_are_kept_and_missing_ones_are_added(tmp_path: Path, node: JobFiles) -> None:
    directory = tmp_path / "job"
    (directory / "model").mkdir(parents=True)
    (directory / "model/weights.txt").write_text("100")
    (directory / "train.py").symlink_to("model")
    node.copy(directory)
    assert (directory / "train.py").is_symlink()
    assert text_of(directory / "model") == {"weights.txt": "100", "deep/er/a.txt": "a"}


def test_a_large_file_is_copied_to_its_last_byte(tmp_path: Path) -> None:
    content = os.urandom(1_500_000).hex()
    node = JobFiles(tmp_path / "packages", "_ray_pkg_1.zip", lambda: zipped({"large.bin": content}))
    (tmp_path / "job").mkdir()
    node.copy(tmp_path / "job")
    assert (tmp_path / "job/large.bin").read_text() == content


def test_files_that_are_written_outside_the_declared_outputs_are_named(
    tmp_path: Path, node: JobFiles
) -> None:
    directory = tmp_path / "job"
    directory.mkdir()
    copied = node.copy(directory)
    declared = ["model/", "out/last.pt"]
    assert job_files.changed(directory, copied, declared=declared) == []
    overwrite(directory)
    append(directory)

    for name in ("out/last.pt", "out/first.pt", "__pycache__/train.pyc"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).touch()

    (directory / "link").symlink_to("model")
    assert job_files.changed(directory, copied, declared=declared) == [
        "link",
        "out/first.pt",
        "train.py",
    ]

    assert job_files.changed(directory, copied, declared=["."]) == []


def test_a_failed_unpack_leaves_nothing_and_succeeds_once_there_is_room(tmp_path: Path) -> None:
    whole = zipped(SENT)
    torn = bytearray(whole)
    torn[whole.index(b"print()")] ^= 1  # its checksum is wrong
    answers = iter([bytes(torn), whole])
    node = JobFiles(tmp_path / "packages", "_ray_pkg_1.zip", lambda: next(answers))
    (tmp_path / "attempt").mkdir()
    with pytest.raises(zipfile.BadZipFile):
        node.copy(tmp_path / "attempt")
    assert list((tmp_path / "packages").iterdir()) == []
    node.copy(tmp_path / "attempt")
    assert text_of(tmp_path / "attempt") == SENT
