"""Fixtures of the unit tests."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import urllib3.util.connection  # noqa: F401 (it opens a socket when it is imported, to see whether IPv6 works)

from tests.unit.fake_helm import FakeHelm
from tests.unit.fake_kube import KUBECONFIG, FakeKube
from tests.unit.fake_programs import FakePrograms
from tests.unit.fake_ray import FakeRay
from trainyard.backends.kuberay import operator
from trainyard.seams import programs
from trainyard.seams.kube import api

PROCESSES = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
_running: list[bool] = []


@pytest.fixture(autouse=True)
def inside() -> Iterator[None]:
    """Let no unit test start a process or open a socket."""
    _running.append(True)
    yield
    _running.clear()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pause between two tries take time."""
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """Return the Ray that answers at every address."""
    fake = FakeRay()
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", fake.answer)
    yield fake
    assert fake.unprepared == []


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeKube:
    """Return the Kubernetes to which the kubeconfig in this user's home leads."""
    fake = FakeKube()
    monkeypatch.setattr(api, "connect", lambda access: fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(KUBECONFIG)
    return fake


@pytest.fixture
def helm(monkeypatch: pytest.MonkeyPatch) -> FakeHelm:
    """Return the Helm that is found; a test gives it its Kubernetes."""
    fake = FakeHelm(FakeKube())
    monkeypatch.setattr(operator, "Helm", lambda *_: fake)
    return fake


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Return the programs that are started, with the answers that a test prepares."""
    fake = FakePrograms()
    monkeypatch.setattr(programs, "run", fake.run)
    return fake


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if not _running:
        return
    if event in PROCESSES:
        pytest.fail(f"a unit test starts a process: {event} {args!r:.200}")
    if event == "socket.__new__" and args[1] in (socket.AF_INET, socket.AF_INET6):
        pytest.fail("a unit test opens a socket")


# Python calls this for whatever code does (PEP 578); such a hook stays until the process ends.
sys.addaudithook(_refuse)
