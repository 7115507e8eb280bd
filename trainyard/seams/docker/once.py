"""Run one short command in a container that is gone afterwards, whatever happens."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import requests
from docker.errors import DockerException

from trainyard.seams.docker.engine import Engine, refusals

LABEL = "io.trainyard.once"


@dataclass(frozen=True)
class Once:
    """How a short container ended. `code` is None if it was still running after its time."""

    code: int | None
    stdout: str
    stderr: str


def run_once(
    engine: Engine,
    reference: str,
    command: Sequence[str],
    *,
    entrypoint: Sequence[str] | None = None,
    seconds: float = 60.0,
) -> Once:
    """Run a command in a container of an image; the image's own entry point runs it unless one is given.

    The container is removed in any case, also on Ctrl-C. Raises OutsideError when the engine cannot start it, which is
    also how it reports that a program does not exist.
    """
    # Named here, so that it can be removed even if Ctrl-C comes before the engine's answer.
    name = f"trainyard-once-{secrets.token_hex(6)}"
    try:
        with refusals(f"run {' '.join(command)[:60]} in {reference}"):
            engine.api.create_container(
                reference,
                list(command),
                name=name,
                entrypoint=list(entrypoint) if entrypoint is not None else None,
                labels={LABEL: "true"},
                host_config=engine.api.create_host_config(network_mode="none"),
            )
            engine.api.start(name)
            code = _wait(engine, name, seconds)
            stdout, stderr = engine.api.logs(name, stderr=False), engine.api.logs(name, stdout=False)
            return Once(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    finally:
        with suppress(DockerException, requests.RequestException):
            engine.api.remove_container(name, v=True, force=True)


def _wait(engine: Engine, name: str, seconds: float) -> int | None:
    # urllib3 reports a time-out of a Unix socket in either way; an engine that is gone fails the next call.
    with suppress(requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError):
        return int(engine.api.wait(name, timeout=math.ceil(seconds))["StatusCode"])
    return None
