"""Connect `ray` to a `with` block's cluster, or make `ray.init` fail there.

Otherwise, a program's first `.remote()` would start a local Ray and train on
this machine.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from trainyard import versions
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.seams.ray_api import ray_of

_LOOPBACK = "127.0.0.1"
_ADDRESS = "RAY_ADDRESS"
_CLUSTER = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_MODE = "RAY_AUTH_MODE"
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 (the name of a variable)
_TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105
# Seconds to wait for the workers' last output at the end of a block; Sematic waits as long.
LAST_LINES_SECONDS = 1.0
_DISPATCH = "Dispatch the work: cluster.dispatch(job)"


@contextmanager
def refused(cluster: str, *, is_reached: bool) -> Iterator[None]:
    """Make `ray.init` fail at once; its error shows RAY_ADDRESS, a message."""
    text = f"ray does not reach cluster {cluster} from this program: use cluster.dispatch(job)"
    if is_reached:
        text = f"ray is not connected to cluster {cluster}: call cluster.ray() first"
    with _variables({_ADDRESS: text}):
        yield


@contextmanager
def connected(
    endpoint: Endpoint, *, runtime_env: Mapping[str, Any], forward_logs: bool
) -> Iterator[None]:
    """Connect `ray` to a cluster: directly to a GCS here, else by Ray Client.

    Raises PrerequisiteError if this program has no Ray, and OutsideError if the
    cluster's Ray does not answer. Raises RequestError if `ray` is connected
    already, if Ray rejects this program's version of Ray or Python, and if
    programs on this machine cannot reach the cluster's Ray.
    """
    refuse_connected()
    ray = _imported()
    if endpoint.ray_address is None:
        what = f"programs of this machine do not reach the Ray of cluster {endpoint.cluster}"
        raise RequestError(what, hint=_DISPATCH)

    with ExitStack() as inside:
        # This callback runs last, after the variables of token and loopback are restored.
        inside.callback(_let_ray_read_variables)
        inside.enter_context(_token_variables(endpoint.token))
        inside.enter_context(_loopback_kept())
        _let_ray_read_variables()
        inside.callback(ray.shutdown)
        settings = {"runtime_env": dict(runtime_env) or None, "log_to_driver": forward_logs}
        address = endpoint.ray_address()
        _connect(ray, address, settings)
        _refuse_other_cluster(ray, endpoint)
        # RAY_ADDRESS is for subprocesses, Ray's state API, and programs that call ray.shutdown()
        # and connect again.
        inside.enter_context(_variables({_ADDRESS: address}))

        if forward_logs:
            inside.callback(time.sleep, LAST_LINES_SECONDS)

        yield


def refuse_connected() -> None:
    """Raise RequestError if `ray` is already connected, to another cluster."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        hint = "Call ray.shutdown() before the block."
        raise RequestError(
            "ray is connected already, to another cluster", where="this program", hint=hint
        )


def _imported() -> ModuleType:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        hint = f"Install it: pip install 'ray[default]=={versions.RAY}'"
        raise PrerequisiteError("this program has no Ray", hint=hint) from error


@contextmanager
def _token_variables(token: str | None) -> Iterator[None]:
    """Set Ray's variables for a token; for None, turn authentication off.

    Variables that hold another token are unset.
    """
    nothing = {_TOKEN: None, _TOKEN_FILE: None}
    if token is None:
        with _variables({**nothing, _MODE: "disabled"}):
            yield
        return

    with tempfile.NamedTemporaryFile("w", prefix="trainyard-") as file:
        file.write(token)
        file.flush()
        with _variables({**nothing, _MODE: "token", _TOKEN_FILE: file.name}):
            yield


def _connect(ray: ModuleType, address: str, settings: Mapping[str, Any]) -> None:
    # For a GCS on loopback, Ray would look for a node at this machine's other address. Ray Client
    # needs no node on this machine, and "auto" finds the address itself.
    if address.startswith(_LOOPBACK):
        node = {"_node_ip_address": _LOOPBACK}
    else:
        node = {}
    try:
        ray.init(address, logging_level="WARNING", **settings, **node)
    except RuntimeError as error:
        # For example, the cluster has another version of Ray or Python.
        what = f"this program's Ray cannot connect to the cluster: {str(error).strip()}"
        raise RequestError(what, where=address, hint=_DISPATCH) from error
    except (ConnectionError, ValueError) as error:
        raise OutsideError(f"Ray does not connect: {error}", where=address) from error


def _refuse_other_cluster(ray: ModuleType, endpoint: Endpoint) -> None:
    here = {node["NodeID"] for node in ray.nodes()}
    with ray_of(endpoint) as dashboard:
        there = {node.node_id for node in dashboard.nodes()}
    if not here & there:
        what = f"ray is connected to another cluster than {endpoint.cluster}"
        raise OutsideError(what, where=endpoint.address, hint=_DISPATCH)


@contextmanager
def _variables(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set or remove (None) environment variables; restore them at the end."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _loopback_kept() -> Iterator[None]:
    """Make Ray leave loopback addresses as they are.

    Otherwise Ray replaces 127.0.0.1 by another address of this machine, at
    which a local cluster does not listen. RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
    does the same, but is read only when Ray is imported
    (ray/_private/services.py). Therefore this function changes Ray's constant.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        # Subprocesses read the environment variable.
        with _variables({_CLUSTER: "0"}):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _let_ray_read_variables() -> None:
    """Make Ray read its variables again: it reads them only on import."""
    raylet = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
