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


class FakeApi:
    """An engine that answers a push with one line, then breaks."""

    base_url, api_version, status_code = "http+docker://localhost", "1.41", 200

    def __init__(self, broken: Exception) -> None:
        self.broken = broken

    def post(self, url: str, **how: Any) -> FakeApi:
        return self

    def __enter__(self) -> FakeApi:
        return self

    def __exit__(self, *ended: object) -> None:
        pass

    def iter_lines(self, chunk_size: int | None) -> Iterator[bytes]:
        yield b'{"status":"Preparing","id":"a"}'
        raise self.broken


# What requests makes of it: before the answer, and in the middle of one.
SILENCE = ReadTimeoutError(cast("Any", None), "/push", "Read timed out.")


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (requests.exceptions.ReadTimeout(SILENCE), "registry reg:5000 takes nothing more"),
        (requests.exceptions.ConnectionError(SILENCE), "registry reg:5000 takes nothing more"),
        (
            requests.exceptions.ConnectionError("aborted."),
            "registry reg:5000 or Docker refused to push reg:5000/mine:1",
        ),
    ],
)
def test_a_push_in_which_nothing_happens_any_more_is_ended_and_a_broken_one_is_told(
    error: Exception, what: str
) -> None:
    with pytest.raises(OutsideError) as caught:
        docker_push.push(Engine("unix:///x.sock", cast("Any", FakeApi(error)), {}), "reg:5000/mine:1", login=None)
    assert caught.value.what == what
