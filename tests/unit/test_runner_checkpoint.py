"""When a checkpoint directory is sent, and what of it: a clock and a list of open files in the test's hand."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from trainyard_runner.checkpoint import CheckpointWatch, Message


class Scene:
    """A checkpoint directory, a clock, and which files are open for writing."""

    def __init__(self, directory: Path, *, limit: int = 10**9) -> None:
        self.directory = directory
        self.now = 0.0
        self.open: set[str] = set()
        self.watch = CheckpointWatch(directory, lambda: self.open, limit=limit, clock=lambda: self.now)

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)
        # Each write at a time of its own: a test is quicker than the kernel's clock.
        moment = int(1e18) + int(self.now * 1e9) + len(text)
        os.utime(self.directory / name, ns=(moment, moment))

    def look(self, now: float) -> dict[str, str] | None:
        """Let time pass, look, and return the files of the snapshot that was sent."""
        self.now = now
        return sent(list(self.watch.look()))


def sent(messages: list[Message]) -> dict[str, str] | None:
    if not messages or messages[-1][0] != "checkpoint":
        return None
    content = b"".join(part for kind, part in messages if kind == "checkpoint-part") + bytes(1024)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read().decode() for name, file in files.items() if file} | {
            f"carried {name}": "" for name in messages[-1][1]["carry"]
        }


def test_nothing_is_sent_while_nothing_changes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.look(1.0) is None
    assert scene.look(9.0) is None


def test_a_change_is_sent_once_it_is_quiet(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("model", "one")
    assert scene.look(1.0) is None
    assert scene.look(1.4) == {"model": "one"}
    assert scene.look(2.0) is None


def test_a_directory_with_an_open_file_waits(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("model", "half")
    scene.open = {str(tmp_path / "model")}
    assert scene.look(1.0) is None
    assert scene.look(2.0) is None
    scene.open = set()
    assert scene.look(2.2) == {"model": "half"}


def test_a_restless_directory_is_sent_without_the_files_that_are_open(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("model", "one")
    scene.write("log", "a")
    scene.open = {str(tmp_path / "log")}
    assert scene.look(1.0) is None
    assert scene.look(3.1) == {"model": "one"}


def test_a_file_that_was_whole_before_is_carried_over_while_it_is_open(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("model", "one")
    scene.write("log", "a")
    scene.look(1.0)
    assert scene.look(1.4) == {"model": "one", "log": "a"}
    scene.write("model", "two")
    scene.open = {str(tmp_path / "log")}
    scene.look(2.0)
    assert scene.look(4.1) == {"model": "two", "carried log": ""}


def test_a_file_that_was_left_out_is_sent_when_it_is_closed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("log", "a")
    scene.open = {str(tmp_path / "log")}
    scene.look(1.0)
    assert scene.look(3.1) == {}
    assert scene.look(4.0) is None
    scene.open = set()
    assert scene.look(5.0) == {"log": "a"}


def test_the_last_state_is_sent_at_the_end_and_only_if_it_is_new(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("model", "one")
    assert sent(list(scene.watch.last())) == {"model": "one"}
    assert list(scene.watch.last()) == []


def test_what_was_restored_is_not_sent_again(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("from before")
    scene = Scene(tmp_path)
    assert scene.look(1.0) is None
    assert list(scene.watch.last()) == []


def test_a_checkpoint_beyond_the_limit_is_not_sent_and_that_is_said_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit=10_000)
    scene.write("model", "x" * 20_000)
    messages = [*scene.watch.last(), *scene.watch.last()]
    assert [kind for kind, _ in messages] == ["note"]
    assert "outputs_limit" in messages[0][1]
