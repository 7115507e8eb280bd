"""One command at a time may change a cluster."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from trainyard import lock


def _never() -> None:
    raise AssertionError("nobody else holds it")


def test_a_free_lock_is_taken_at_once_and_removed_after(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    with lock.held(path, waiting=_never, keep=lambda: False):
        assert path.exists()
    assert not path.exists()


def test_the_file_stays_while_the_cluster_does(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    with lock.held(path, waiting=_never, keep=lambda: True):
        pass
    assert path.exists()


def test_a_lock_of_a_dead_command_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    path.touch()
    with lock.held(path, waiting=_never, keep=lambda: False):
        pass


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
