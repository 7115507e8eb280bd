"""`ray` in a block: it is connected to the block's cluster, or to none.

Otherwise the first `.remote()` of a program starts a Ray of its own on this machine, and trains there.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from trainyard.backends.contract import ClusterStatus
from trainyard.errors import OutsideError, RequestError

_LOOPBACK = "127.0.0.1"
_ADDRESS, _MODE, _TOKEN = "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"


class Connection:
    """Variables of this process that say which cluster `ray` means; `close` puts them back."""

    def __init__(self, variables: Mapping[str, str | None]) -> None:
        self._before = {name: os.environ.get(name) for name in variables}
        self._is_open = False
        _set(variables)

    def open(self, ray: Any, address: str, *, forward_logs: bool) -> None:
        """Connect to the GCS at `address`. Raises OutsideError, and RequestError where Ray refuses this program's."""
        _read_again()
        try:
            ray.init(address, _node_ip_address=_LOOPBACK, log_to_driver=forward_logs, logging_level="WARNING")
        except RuntimeError as error:
            # Ray compares its own version and Python's.
            what = f"this program's Ray cannot connect to the cluster: {str(error).strip()}"
            raise RequestError(what, where=address) from error
        except (ConnectionError, ValueError) as error:
            raise OutsideError(f"Ray does not connect: {error}", where=address) from error
        self._is_open = True

    def close(self) -> None:
        """Disconnect, and put the variables back."""
        ray = sys.modules.get("ray")
        if self._is_open and ray is not None:
            ray.shutdown()
        self._is_open = False
        _set(self._before)
        _read_again()


def connect(now: ClusterStatus, *, forward_logs: bool) -> Connection:
    """Connect `ray` to a cluster whose nodes are processes of this machine.

    Raises RequestError where `ray` is connected already, and for a cluster that programs of this machine do not reach.
    """
    import ray

    if ray.is_initialized():
        hint = "Call ray.shutdown() before the block."
        raise RequestError("ray is connected already, to another cluster", where="this program", hint=hint)
    if now.gcs is None:
        hint = "Dispatch the work: cluster.dispatch(job)"
        raise RequestError(f"programs of this machine do not reach the Ray of a {now.backend} cluster", hint=hint)

    token = str(now.token_file) if now.token_file else None
    mode = "token" if token else "disabled"
    connection = Connection({_ADDRESS: None, _MODE: mode, _TOKEN: None, f"{_TOKEN}_PATH": token})
    try:
        connection.open(ray, now.gcs, forward_logs=forward_logs)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse(now: ClusterStatus) -> Connection:
    """Let Ray refuse to start, or to connect, with a text that says what to do instead."""
    text = f"ray does not reach the {now.backend} cluster {now.name} from this program: use cluster.dispatch(job)"
    return Connection({_ADDRESS: text})


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _read_again() -> None:
    """Let Ray read its variables again: it keeps what it found when it was imported."""
    if "ray" in sys.modules:
        raylet = importlib.import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
