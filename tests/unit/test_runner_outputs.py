"""The outputs and checkpoints that are sent, and when, by the test's own clock and open files."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.node.attempt import Attempt
from trainyard_runner.node.checkpoint import CheckpointWatch
from trainyard_runner.node.outputs import Message, OutputWatch
from trainyard_runner.node.transfers import Transfers
from trainyard_runner.node.workspace import Spare
from trainyard_runner.wire import archive
from trainyard_runner.wire.outputs import apply

END = bytes(1024)


class Outputs:
    """A task's outputs, and the same ones at home."""

    def __init__(self, directory: Path, *, limit: int = 10**9, held: int | None = None) -> None:
        self.task, self.home = directory / "task", directory / "home"
        for path in (self.task, self.home):
            path.mkdir(exist_ok=True)

        self.now = 0.0
        self.wall = 10**18
        self.writes = 0
        self.unreadable = ""

        self.watch = OutputWatch(
            self._scan,
            every=30,
            limit=limit,
            held=held,
            clock=lambda: self.now,
            wall_ns=lambda: self.wall,
        )

    def _scan(self) -> tuple[archive.Entries, list[archive.LeftOut]]:
        found, left_out = archive.scan(str(self.task))
        if not self.unreadable:
            return found, left_out
        readable = {
            name: entry for name, entry in found.items() if not name.startswith(self.unreadable)
        }
        return readable, [
            archive.LeftOut(self.unreadable, "it cannot be read: Permission denied", is_lost=True)
        ]

    def write(self, name: str, text: str) -> None:
        path = self.task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Each write at a time of its own: a test is quicker than the kernel's clock.
        for changed in (
            path,
            *(path for path in [self.task, *self.task.rglob("*")] if path.is_dir()),
        ):
            self.writes += 1
            os.utime(changed, ns=(self.writes * 10**9, self.writes * 10**9))

    def sync(self) -> dict[str, Any] | None:
        """Look, and bring home what was sent; return what was said of it."""
        messages = list(self.watch.look())
        if not messages:
            return None
        said: dict[str, Any] = messages.pop()[1]
        content = b"".join(part for _, part in messages) + END
        apply([content], self.home, removed=said["removed"])
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            return {**said, "names": [member.name for member in tar if member.isfile()]}

    def at_home(self) -> dict[str, str]:
        return {
            str(p.relative_to(self.home)): p.read_text()
            for p in self.home.rglob("*")
            if p.is_file()
        }


def test_only_what_changed_is_sent_again_and_nothing_where_nothing_is(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    assert outputs.sync() is None
    outputs.write("a.csv", "1\n")
    outputs.write("b.csv", "1\n")
    first = outputs.sync()
    assert first and first["whole"] and first["files"] == 2
    assert outputs.sync() is None
    outputs.write("a.csv", "1\n2\n")
    second = outputs.sync()
    assert second and not second["whole"] and second["names"] == ["a.csv"]
    assert outputs.at_home() == {"a.csv": "1\n2\n", "b.csv": "1\n"}


def test_curves_are_sent_first(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.write("a.bin", "large")
    outputs.write("z/events.out.tfevents.1.host", "curve")
    said = outputs.sync()
    assert said and said["names"] == ["z/events.out.tfevents.1.host", "a.bin"]


def test_a_file_written_in_the_moment_of_the_look_is_sent_again(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.write("log", "a")
    written = (outputs.task / "log").stat().st_mtime_ns
    outputs.wall = written + 1_000_000
    outputs.sync()
    # The kernel's clock stands still for milliseconds: the same size and time need not be the same
    # content.
    (outputs.task / "log").write_text("b")
    os.utime(outputs.task / "log", ns=(written, written))
    outputs.wall = written + 30 * 10**9
    outputs.sync()
    assert outputs.at_home() == {"log": "b"}
    assert outputs.sync() is None


def test_removed_outputs_go_at_home_and_a_file_may_become_a_directory(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    for name in ("old/deep.txt", "place", "kept"):
        outputs.write(name, "x")
    outputs.sync()
    (outputs.task / "old" / "deep.txt").unlink()
    (outputs.task / "old").rmdir()
    (outputs.task / "place").unlink()
    outputs.write("place/inner", "i")
    said = outputs.sync()
    assert said and set(said["removed"]) == {"old", "old/deep.txt", "place"}
    assert outputs.at_home() == {"kept": "x", "place/inner": "i"}
    assert not (outputs.home / "old").exists()


def test_many_removed_names_are_not_sent_with_a_whole_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard_runner.node.outputs._MOST_REMOVED", 10)
    outputs = Outputs(tmp_path)
    for number in range(11):
        outputs.write(f"{number}", "x")
    outputs.sync()
    for path in outputs.task.iterdir():
        path.unlink()
    outputs.write("kept", "x")
    said = outputs.sync()
    assert said and (said["whole"], said["removed"], said["names"]) == (True, [], ["kept"])


def test_many_removed_names_are_sent_in_parts_next_to_an_unreadable_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard_runner.node.outputs._MOST_OF_NAMES", 1000)
    outputs = Outputs(tmp_path)
    for name in ("locked/a", "turns", *(f"{number:0100d}" for number in range(25))):
        outputs.write(name, "x")

    outputs.sync()
    for path in [path for path in outputs.task.iterdir() if path.is_file()]:
        path.unlink()

    outputs.write("turns/inner", "i")
    outputs.unreadable = "locked"
    messages = list(outputs.watch.look())
    said = [content for kind, content in messages if kind == "outputs"]
    assert [len(message["removed"]) for message in said] == [10, 10, 6]
    assert said[0]["removed"][0] == "turns"
    content = b"".join(content for kind, content in messages if kind == "outputs-part") + END
    apply([content], outputs.home, removed=said[0]["removed"])

    for message in said[1:]:
        apply([END], outputs.home, removed=message["removed"])

    assert outputs.at_home() == {"locked/a": "x", "turns/inner": "i"}
    assert outputs.sync() is None


def test_names_that_lead_outside_remove_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "treasure").write_text("x")
    (tmp_path / "home" / "link").symlink_to("..")
    apply(
        [END],
        tmp_path / "home",
        removed=["../treasure", str(tmp_path / "treasure"), "link/treasure", "", "."],
    )
    assert (tmp_path / "treasure").exists()


def test_restored_files_are_not_sent_again_and_the_head_s_copy_counts(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "metrics.csv").write_text("1\n" * 100)
    outputs = Outputs(tmp_path, held=0)
    assert outputs.sync() is None
    outputs.write("metrics.csv", "1\n" * 200)
    said = outputs.sync()
    assert said and not said["whole"]


def test_everything_is_sent_again_once_changes_exceed_twice_its_size(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.write("unchanged", "u")
    said = []
    for size in range(40_000, 40_005):
        outputs.write("growing", "x" * size)
        said.append(outputs.sync() or {})
    assert [sent["whole"] for sent in said] == [True, False, False, False, True]
    assert said[4]["names"] == ["growing", "unchanged"]


def test_unreadable_outputs_are_reported_and_kept_at_home(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.write("locked/a", "a")
    outputs.write("b", "b")
    outputs.sync()
    outputs.unreadable = "locked"
    assert outputs.sync() is None
    assert [str(item) for item in outputs.watch.left_out] == [
        "locked: it cannot be read: Permission denied"
    ]
    assert outputs.at_home() == {"locked/a": "a", "b": "b"}


def test_an_output_larger_than_the_limit_is_left_out_and_smaller_are_sent(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path, limit=100_000)
    outputs.write("large.bin", "x" * 200_000)
    outputs.write("metrics.csv", "1\n")
    said = outputs.sync()
    assert outputs.at_home() == {"metrics.csv": "1\n"}
    reason = "0.191 MiB of outputs are more than the job's outputs_limit of 0.0954 MiB"
    assert said and said["left_out"] == [f"large.bin: {reason}"]
    assert outputs.watch.left_out[0].is_lost


def test_outputs_under_the_name_of_a_declared_output_count_as_lost(tmp_path: Path) -> None:
    order: Any = {"task": "t", "attempt": 1, "outputs": ["logs", "logs/deep", "model"]}
    attempt = Attempt(
        order, home=tmp_path, files=None, gpus=[], node="n", package=None, spare=Spare()
    )
    (root,) = (tmp_path / "work").iterdir()
    for name in [
        "job/logs/lib.log",
        "job/logs/curve.csv",
        "job/logs/deep/a",
        "job/model/part",
        "output/logs/metrics.csv",
        "output/logs/curve.csv",
        "output/model",
    ]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()

    entries, left_out = attempt._outputs()
    assert [str(item) for item in left_out if item.is_lost] == [
        "logs/curve.csv: a declared output has the same name",
        "model: a declared output has the same name",
    ]
    assert {"logs/lib.log", "logs/metrics.csv", "logs/deep/a", "model/part"} < set(entries)


def test_a_slow_look_at_outputs_delays_the_next_one(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.write("a", "a")
    for _ in outputs.watch.look():
        outputs.now += 50.0
    assert outputs.watch.due == 100.0 + 200.0


def test_transfers_give_one_part_at_a_time_so_that_nothing_waits_for_them(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    checkpoint = CheckpointWatch(tmp_path / "checkpoint", set, limit=10**9)
    (tmp_path / "checkpoint" / "model").write_bytes(bytes(10))
    (outputs.task / "large").write_bytes(os.urandom(3 * 1024 * 1024))
    outputs.now = 30.0
    transfers = Transfers(checkpoint, outputs.watch, clock=lambda: outputs.now)
    assert transfers.step(begin=False) == []
    assert [kind for kind, _ in transfers.step(begin=True)] == ["outputs-part"]
    assert transfers.due() == 0.0
    rest = [kind for batch in transfers.last() for kind, _ in batch]
    assert rest == ["checkpoint-part", "checkpoint", "outputs-part", "outputs-part", "outputs"]


class Checkpoint:
    """A checkpoint directory, a clock, and which files are open for writing."""

    def __init__(self, directory: Path, *, limit: int = 10**9) -> None:
        self.directory = directory
        self.now = 0.0
        self.open: set[str] = set()
        self.watch = CheckpointWatch(
            directory, lambda: self.open, limit=limit, clock=lambda: self.now
        )

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)
        moment = int(1e18) + int(self.now * 1e9) + len(text)
        os.utime(self.directory / name, ns=(moment, moment))

    def look(self, now: float) -> dict[str, str] | None:
        """Let time pass, look, and return the files of the snapshot that was sent."""
        self.now = now
        return sent(list(self.watch.look()))


def sent(messages: list[Message]) -> dict[str, str] | None:
    if not messages or messages[-1][0] != "checkpoint":
        return None
    content = b"".join(part for kind, part in messages if kind == "checkpoint-part") + END
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        carried = {f"carried {name}": "" for name in messages[-1][1]["carry"]}
        return {name: file.read().decode() for name, file in files.items() if file} | carried


def test_a_checkpoint_is_sent_once_it_is_quiet_and_closed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.look(0.5) is None
    checkpoint.write("model", "one")
    assert checkpoint.look(1.0) is None
    checkpoint.open = {str(tmp_path / "model")}
    assert checkpoint.look(1.4) is None
    checkpoint.open = set()
    assert checkpoint.look(1.6) == {"model": "one"}
    assert checkpoint.look(2.0) is None


def test_open_files_of_a_busy_directory_are_sent_once_they_are_closed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write("model", "one")
    checkpoint.write("log", "a")
    checkpoint.open = {str(tmp_path / "log")}
    assert checkpoint.look(1.0) is None
    assert checkpoint.look(3.1) == {"model": "one"}
    assert checkpoint.look(4.0) is None
    checkpoint.open = set()
    assert checkpoint.look(5.0) == {"model": "one", "log": "a"}


def test_a_file_that_was_whole_before_is_carried_over_while_it_is_open(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write("model", "one")
    checkpoint.write("log", "a")
    checkpoint.look(1.0)
    assert checkpoint.look(1.4) == {"model": "one", "log": "a"}
    checkpoint.write("model", "two")
    checkpoint.open = {str(tmp_path / "log")}
    checkpoint.look(2.0)
    assert checkpoint.look(4.1) == {"model": "two", "carried log": ""}


def test_the_last_state_is_sent_at_the_end_and_only_if_it_is_new(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("restored")
    checkpoint = Checkpoint(tmp_path)
    assert list(checkpoint.watch.last()) == []
    checkpoint.write("model", "one")
    assert sent(list(checkpoint.watch.last())) == {"model": "one"}
    assert list(checkpoint.watch.last()) == []


def test_a_checkpoint_beyond_the_limit_is_not_sent_and_that_is_said_once(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, limit=10_000)
    checkpoint.write("model", "x" * 20_000)
    ((kind, text),) = [*checkpoint.watch.last(), *checkpoint.watch.last()]
    assert kind == "note"
    assert "outputs_limit" in text


def test_a_link_that_leads_out_of_a_checkpoint_is_noted_once(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    (tmp_path / "last.pt").symlink_to("/elsewhere/x.pt")
    note = ("note", "not in the checkpoint: last.pt: a link that leads outside (/elsewhere/x.pt)")
    assert list(checkpoint.watch.last()) == [note]
    checkpoint.write("model", "one")
    messages = list(checkpoint.watch.last())
    assert [kind for kind, _ in messages] == ["checkpoint-part", "checkpoint"]


def test_a_checkpoint_directory_that_became_a_link_keeps_the_last_snapshot(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    checkpoint = Checkpoint(directory)
    checkpoint.write("model", "one")
    assert sent(list(checkpoint.watch.last())) == {"model": "one"}
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to("elsewhere")
    messages = []
    for now in (1.0, 1.4, 4.0):
        checkpoint.now = now
        messages += list(checkpoint.watch.look())
    messages += list(checkpoint.watch.last())
    assert messages == [("note", "not in the checkpoint: .: a link or file took its place")]
