"""`ray` in a block, where Ray refuses to connect: one error, and the old variables come back."""

from __future__ import annotations

import os
from typing import Any

import pytest
import ray

from trainyard.api.connection import connected
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, RequestError, TrainyardError

OTHER_PYTHON = (
    "Version mismatch: The cluster was started with Python 3.11.2; this process with 3.13.1"
)


@pytest.mark.parametrize(
    ("raised", "error", "said"),
    [
        (
            RuntimeError(OTHER_PYTHON),
            RequestError,
            f"this program's Ray cannot connect to the cluster: {OTHER_PYTHON}",
        ),
        (
            ConnectionError("ray client connection timeout"),
            OutsideError,
            "Ray does not connect: ray client connection",
        ),
    ],
)
def test_a_client_that_ray_refuses_is_one_error_before_the_block(
    raised: Exception, error: type[TrainyardError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: Any, **settings: Any) -> None:
        raise raised

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    endpoint = Endpoint(
        "lab", "http://127.0.0.1:1", "token", ray_address=lambda: "ray://127.0.0.1:2"
    )
    before = dict(os.environ)

    with pytest.raises(error) as caught, connected(endpoint, runtime_env={}, forward_logs=True):
        pytest.fail("the block was entered")

    assert caught.value.what.startswith(said)
    assert caught.value.where == "ray://127.0.0.1:2"
    assert dict(os.environ) == before
