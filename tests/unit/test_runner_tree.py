"""Trees of any depth, with any names, are walked and removed, and nothing outside them is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trainyard_runner import tree

from tests.unit.trees import few_descriptors, make_deep


def test_a_tree_deeper_than_any_path_or_limit_is_removed(deep_path: Path) -> None:
    make_deep(deep_path / "a", name="n" * 200)
    with few_descriptors():
        tree.remove(str(deep_path / "a"))
    assert not (deep_path / "a").exists()


def test_what_links_lead_to_stays(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    inside.mkdir()
    (inside / "door").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    tree.remove(str(inside))
    tree.remove(str(tmp_path / "link"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "outside"]


def test_many_files_odd_names_and_locked_directories_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "a"
    (root / "locked" / "more").mkdir(parents=True)
    for name in [b"\xff\xfe", b"new\nline", b" ", b"-rf", *(b"%d" % number for number in range(1000))]:
        Path(os.fsdecode(os.path.join(os.fsencode(root), name))).touch()
    os.mkfifo(root / "pipe")
    (root / "locked" / "more").chmod(0)
    (root / "locked").chmod(0)
    root.chmod(0)
    tree.remove(str(root))
    tree.remove(str(root))
    assert list(tmp_path.iterdir()) == []


def test_a_cursor_does_not_go_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with tree.Cursor(str(tmp_path)) as cursor, pytest.raises(NotADirectoryError):
        cursor.to("link")
    with pytest.raises(NotADirectoryError):
        tree.Cursor(str(tmp_path / "link"))


def test_a_cursor_finds_its_way_back_out_of_a_directory_that_was_moved(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "elsewhere").mkdir()
    with tree.Cursor(str(tmp_path)) as cursor:
        cursor.to("a/b/c")
        (tmp_path / "a" / "b" / "c").rename(tmp_path / "elsewhere" / "c")
        (tmp_path / "a" / "b" / "c").mkdir()
        cursor.up()
        assert sorted(os.listdir(cursor.to("a"))) == ["b", "file"]
