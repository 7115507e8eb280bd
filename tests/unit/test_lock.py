"""One command at a time may change a cluster."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trainyard import lock
from trainyard.errors import NotReadyError, PrerequisiteError


def _never() -> None:
    raise AssertionError("nobody else holds it")


@pytest.mark.parametrize("keep", [False, True])
def test_a_free_lock_or_one_of_a_dead_command_is_taken_at_once_and_stays_while_the_cluster_does(
    tmp_path: Path, keep: bool
) -> None:
    path = tmp_path / "lab.lock"
    path.touch()
    with lock.held(path, waiting=_never, keep=lambda: keep):
        assert path.exists()
    assert path.exists() == keep


def test_the_second_waits_until_the_first_has_removed_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    order: list[str] = []
    waiting, entered = threading.Event(), threading.Event()

    def second() -> None:
        with lock.held(path, waiting=waiting.set, keep=lambda: False):
            order.append("second")
            entered.set()

    thread = threading.Thread(target=second)
    with lock.held(path, waiting=_never, keep=lambda: False):
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    assert entered.wait(10)
    thread.join()
    assert order == ["first", "second"]
    assert os.listdir(tmp_path) == []


def test_a_directory_of_another_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    path = tmp_path / "trainyard" / "registries" / "reg.lock"
    with pytest.raises(PrerequisiteError) as caught, lock.held(path, waiting=_never, keep=lambda: False):
        pass
    assert caught.value.lines() == [
        f"this user may not use {tmp_path}/trainyard/registries: Permission denied",
        '  -> Did an earlier command run as root? Give it back: sudo chown -R "$USER" '
        f"{tmp_path}/trainyard; or choose another place: XDG_STATE_HOME",
    ]


def test_what_is_still_being_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "WAIT_SECONDS", -1.0)
    path = tmp_path / "reg.lock"
    with (
        lock.held(path, waiting=_never, keep=lambda: False),
        pytest.raises(NotReadyError) as caught,
        lock.held(path, waiting=lambda: None, keep=lambda: False, what="registry"),
    ):
        pass
    assert caught.value.what == "another command is still changing this registry"
