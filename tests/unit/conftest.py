"""Fixtures of the unit tests."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import urllib3.util.connection  # noqa: F401 (it opens a socket when it is imported, to see whether IPv6 works)

from tests.unit.fake_ray import FakeRay

PROCESSES = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
_running: list[bool] = []


@pytest.fixture(autouse=True)
def inside() -> Iterator[None]:
    """Let no unit test start a process or open a socket."""
    _running.append(True)
    yield
    _running.clear()


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Return the Ray that answers at every address."""
    fake = FakeRay()
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", fake.answer)
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
