"""One command at a time may change a cluster."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.unit.test_steps import Recorder
from trainyard import lock
from trainyard.errors import NotReadyError, PrerequisiteError

WAIT = "Wait for another command on this registry"


def held(
    path: Path, progress: Recorder | None = None, *, keep: bool = False
) -> AbstractContextManager[None]:
    return lock.alone(path, progress or Recorder(), keep=lambda: keep, what="registry")


@pytest.mark.parametrize("keep", [False, True])
def test_a_free_lock_or_one_of_a_dead_command_is_taken_at_once_and_stays(
    tmp_path: Path, keep: bool
) -> None:
    path = tmp_path / "lab.lock"
    progress = Recorder()
    path.touch()
    with held(path, progress, keep=keep):
        assert path.exists()
    assert (path.exists(), progress.lines) == (keep, [])


def test_the_second_waits_until_the_first_has_removed_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    waiting, entered = threading.Event(), threading.Event()

    class Waiting(Recorder):
        def started(self, title: str) -> None:
            super().started(title)
            waiting.set()

    second = Waiting()

    def enter() -> None:
        with held(path, second):
            entered.set()

    thread = threading.Thread(target=enter)
    with held(path):
        thread.start()
        assert waiting.wait(10)
        assert not entered.is_set()

    assert entered.wait(10)
    thread.join()
    assert second.lines == [f"started {WAIT}", f"finished {WAIT}"]
    assert os.listdir(tmp_path) == []


def test_a_directory_of_another_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(PrerequisiteError) as caught,
        held(tmp_path / "trainyard" / "registries" / "reg.lock"),
    ):
        pass

    assert caught.value.lines() == [
        f"this user may not use {tmp_path}/trainyard/registries: Permission denied",
        '  -> Did an earlier command run as root? Take the directory back: sudo chown -R "$USER" '
        f"{tmp_path}/trainyard; or choose another place: export XDG_STATE_HOME=DIR",
    ]


def test_a_held_lock_reports_that_the_registry_is_still_being_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT_SECONDS", -1.0)
    path = tmp_path / "reg.lock"
    with held(path), pytest.raises(NotReadyError) as caught, held(path):
        pass
    assert caught.value.what == "another command is still changing this registry"
