"""What of a task's outputs is sent, when, and that applying it gives the same directory: a clock in the test's hand."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

from trainyard_runner import archive
from trainyard_runner.checkpoint import CheckpointWatch
from trainyard_runner.outputs import OutputWatch, apply
from trainyard_runner.transfers import Transfers

END = bytes(1024)


class Scene:
    """A task's outputs, and the same ones at home."""

    def __init__(self, directory: Path, *, limit: int = 10**9, held: int | None = None) -> None:
        self.task, self.home = directory / "task", directory / "home"
        for path in (self.task, self.home):
            path.mkdir(exist_ok=True)
        self.now = 0.0
        self.wall = 10**18
        self.writes = 0
        self.watch = OutputWatch(
            lambda: archive.scan(str(self.task)),
            every=30,
            limit=limit,
            held=held,
            clock=lambda: self.now,
            wall_ns=lambda: self.wall,
        )

    def write(self, name: str, text: str) -> None:
        path = self.task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.settle(path)

    def settle(self, *paths: Path) -> None:
        """Give each write a time of its own: a test is quicker than the kernel's clock."""
        for path in (*paths, *(path for path in [self.task, *self.task.rglob("*")] if path.is_dir())):
            self.writes += 1
            os.utime(path, ns=(self.writes * 10**9, self.writes * 10**9))

    def sync(self) -> dict[str, Any] | None:
        """Look, and bring home what was sent; return what was said of it."""
        messages = list(self.watch.look())
        if not messages:
            return None
        said: dict[str, Any] = messages.pop()[1]
        pieces = [part for _, part in messages]
        apply([*pieces, END], self.home, removed=said["removed"])
        return {**said, "names": names(b"".join(pieces))}

    def at_home(self) -> dict[str, str]:
        return {str(p.relative_to(self.home)): p.read_text() for p in self.home.rglob("*") if p.is_file()}


def names(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content + END)) as tar:
        return [member.name for member in tar if member.isfile()]


def test_nothing_is_sent_where_nothing_is(tmp_path: Path) -> None:
    assert Scene(tmp_path).sync() is None


def test_only_what_changed_is_sent_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("a.csv", "1\n")
    scene.write("b.csv", "1\n")
    first = scene.sync()
    assert first and first["whole"] and first["files"] == 2
    assert scene.sync() is None
    scene.write("a.csv", "1\n2\n")
    second = scene.sync()
    assert second and not second["whole"] and second["names"] == ["a.csv"]
    assert scene.at_home() == {"a.csv": "1\n2\n", "b.csv": "1\n"}


def test_curves_are_sent_first(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("a.bin", "large")
    scene.write("z/events.out.tfevents.1.host", "curve")
    said = scene.sync()
    assert said and said["names"] == ["z/events.out.tfevents.1.host", "a.bin"]


def test_a_file_written_in_the_moment_of_the_look_is_sent_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("log", "a")
    written = (scene.task / "log").stat().st_mtime_ns
    scene.wall = written + 1_000_000
    scene.sync()
    # The kernel's clock stands still for milliseconds: the same size and time need not be the same content.
    (scene.task / "log").write_text("b")
    os.utime(scene.task / "log", ns=(written, written))
    scene.wall = written + 30 * 10**9
    scene.sync()
    assert scene.at_home() == {"log": "b"}
    assert scene.sync() is None


def test_what_went_goes_at_home_and_a_file_may_become_a_directory(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("old/deep.txt", "x")
    scene.write("place", "file")
    scene.write("kept", "k")
    scene.sync()
    (scene.task / "old" / "deep.txt").unlink()
    (scene.task / "old").rmdir()
    (scene.task / "place").unlink()
    scene.write("place/inner", "i")
    said = scene.sync()
    assert said and set(said["removed"]) == {"old", "old/deep.txt", "place"}
    assert scene.at_home() == {"kept": "k", "place/inner": "i"}
    assert not (scene.home / "old").exists()


def test_names_that_lead_outside_remove_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "treasure").write_text("x")
    (tmp_path / "home" / "link").symlink_to("..")
    apply([END], tmp_path / "home", removed=["../treasure", str(tmp_path / "treasure"), "link/treasure", "", "."])
    assert (tmp_path / "treasure").exists()


def test_what_was_restored_is_not_sent_again_and_what_the_head_holds_counts(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "metrics.csv").write_text("1\n" * 100)
    scene = Scene(tmp_path, held=0)
    assert scene.sync() is None
    scene.write("metrics.csv", "1\n" * 200)
    said = scene.sync()
    assert said and not said["whole"]


def test_everything_is_sent_again_once_the_changes_are_more_than_twice_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("unchanged", "u")
    said = []
    for size in (40_000, 40_001, 40_002, 40_003, 40_004):
        scene.write("growing", "x" * size)
        said.append(scene.sync())
    assert [one and one["whole"] for one in said] == [True, False, False, False, True]
    assert said[4] and said[4]["names"] == ["growing", "unchanged"]


def test_what_cannot_be_read_for_a_while_is_not_taken_for_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("locked/a", "a")
    scene.write("b", "b")
    scene.sync()
    lost = [archive.LeftOut("locked", "it cannot be read: Permission denied", is_lost=True)]
    seen = archive.scan(str(scene.task))[0]
    scene.watch._scan = lambda: ({"b": seen["b"]}, list(lost))
    assert scene.sync() is None
    assert [str(item) for item in scene.watch.left_out] == ["locked: it cannot be read: Permission denied"]
    assert scene.at_home() == {"locked/a": "a", "b": "b"}


def test_what_does_not_fit_into_the_limit_is_left_out_the_largest_first(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit=100_000)
    scene.write("large.bin", "x" * 200_000)
    scene.write("metrics.csv", "1\n")
    said = scene.sync()
    assert scene.at_home() == {"metrics.csv": "1\n"}
    assert said and said["left_out"] == [
        "large.bin: 0.191 MiB of outputs are more than the job's outputs_limit of 0.0954 MiB"
    ]
    assert scene.watch.left_out[0].is_lost


def test_what_takes_long_is_done_less_often(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("a", "a")
    for _ in scene.watch.look():
        scene.now += 50.0
    assert scene.watch.due() == 100.0 + 200.0


def test_transfers_give_one_part_at_a_time_so_that_nothing_waits_for_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    checkpoint = CheckpointWatch(tmp_path / "checkpoint", set, limit=10**9)
    (tmp_path / "checkpoint" / "model").write_bytes(bytes(10))
    (scene.task / "large").write_bytes(os.urandom(3 * 1024 * 1024))
    scene.now = 30.0
    transfers = Transfers(checkpoint, scene.watch, clock=lambda: scene.now)
    assert transfers.step(begin=False) == []
    assert [kind for kind, _ in transfers.step(begin=True)] == ["outputs-part"]
    assert transfers.due() == 0.0
    rest = [kind for batch in transfers.last() for kind, _ in batch]
    assert rest == ["checkpoint-part", "checkpoint", "outputs-part", "outputs-part", "outputs"]
