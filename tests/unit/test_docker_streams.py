"""What an engine sends bit by bit: how long it may be silent, and what is said when it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import requests
from urllib3.exceptions import ReadTimeoutError

from trainyard.errors import OutsideError
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.errors import GoneError


class FakeAnswer:
    """An answer that sends these chunks, then breaks as told."""

    def __init__(self, *chunks: bytes, status: int = 200, broken: Exception | None = None) -> None:
        self.chunks, self.status_code, self.broken = chunks, status, broken
        self.text = chunks[0].decode(errors="replace") if chunks else ""

    def __enter__(self) -> FakeAnswer:
        return self

    def __exit__(self, *how: object) -> None:
        pass

    def iter_content(self, size: int) -> Iterator[bytes]:
        yield from self.chunks
        if self.broken:
            raise self.broken

    def iter_lines(self, chunk_size: int | None) -> Iterator[bytes]:
        yield from self.iter_content(0)


class FakeApi:
    """An engine with one answer; it keeps how long it may be silent."""

    base_url, api_version = "http+docker://localhost", "1.41"

    def __init__(self, answer: FakeAnswer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []

    def inspect_image(self, image_id: str) -> dict[str, Any]:
        return {"RootFS": {"Layers": ["sha256:a"]}}

    def get(self, url: str, *, stream: bool, timeout: Any) -> FakeAnswer:
        self.asked.append((url, timeout))
        return self.answer

    def post(self, url: str, **how: Any) -> FakeAnswer:
        return self.answer


def engine(answer: FakeAnswer) -> tuple[Engine, FakeApi]:
    api = FakeApi(answer)
    return Engine("unix:///x.sock", cast("Any", api), {}), api


# What requests makes of it: before the answer, and in the middle of one.
SILENCE = ReadTimeoutError(cast("Any", None), "/push", "Read timed out.")


@pytest.mark.parametrize(
    "error", [requests.exceptions.ReadTimeout(SILENCE), requests.exceptions.ConnectionError(SILENCE)]
)
def test_a_push_in_which_nothing_happens_any_more_is_ended(error: Exception) -> None:
    there, _ = engine(FakeAnswer(b'{"status":"Preparing","id":"a"}', broken=error))
    with pytest.raises(GoneError) as caught:
        docker_push.push(there, "reg:5000/mine:1", login=None)
    assert caught.value.lines() == [
        "registry reg:5000 takes nothing more",
        "  at push reg:5000/mine:1: nothing happened for 300 s",
        "  -> Repeat the command: layers that are there are not sent again.",
    ]


def test_a_connection_to_docker_that_breaks_is_not_silence() -> None:
    there, _ = engine(FakeAnswer(broken=requests.exceptions.ConnectionError("Connection aborted.")))
    with pytest.raises(OutsideError) as caught:
        docker_push.push(there, "reg:5000/mine:1", login=None)
    assert "takes nothing more" not in caught.value.what
