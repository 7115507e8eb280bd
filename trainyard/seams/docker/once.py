"""Run one short command in a container that is gone afterwards, whatever happens."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import requests
from docker.errors import DockerException
from docker.types import DeviceRequest, LogConfig, Mount

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
    environ: Mapping[str, str] | None = None,
    gpu_ids: Sequence[str] = (),
    binds: Mapping[str, str] | None = None,
    seconds: float = 60.0,
) -> Once:
    """Run a command in a container of an image; the image's own entry point runs it unless one is given.

    `binds` maps paths inside to paths of the engine's host, which it only reads. The container is removed in any case,
    also on Ctrl-C. Raises OutsideError when the engine cannot start it, which is also how it reports that a program
    does not exist.
    """
    # Named here, so that it can be removed even if Ctrl-C comes before the engine's answer.
    name = f"trainyard-once-{secrets.token_hex(6)}"
    gpus = [DeviceRequest(driver="nvidia", device_ids=list(gpu_ids), capabilities=[["gpu"]])] if gpu_ids else None
    try:
        with refusals(f"run {' '.join(command)[:60]} in {reference}"):
            engine.api.create_container(
                reference,
                list(command),
                name=name,
                entrypoint=list(entrypoint) if entrypoint is not None else None,
                environment=dict(environ or {}),
                labels={LABEL: "true"},
                host_config=engine.api.create_host_config(
                    network_mode="none",
                    device_requests=gpus,
                    mounts=[Mount(inside, path, "bind", read_only=True) for inside, path in (binds or {}).items()],
                    # The engine's own choice may be one that cannot be read back, such as syslog or none.
                    log_config=LogConfig(type=LogConfig.types.JSON),
                ),
            )
            engine.api.start(name)
            code = _wait(engine, name, seconds)
            stdout, stderr = (
                engine.api.logs(name, stdout=stream == "stdout", stderr=stream == "stderr").decode(errors="replace")
                for stream in ("stdout", "stderr")
            )
            return Once(code, stdout, stderr)
    finally:
        with suppress(DockerException, requests.RequestException):
            engine.api.remove_container(name, v=True, force=True)


def _wait(engine: Engine, name: str, seconds: float) -> int | None:
    try:
        return int(engine.api.wait(name, timeout=math.ceil(seconds))["StatusCode"])
    except (requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError):
        # urllib3 reports a time-out of a Unix socket in either way; an engine that is gone fails the next call.
        return None
