"""`ray` in a block: it is connected to the block's cluster, or refuses to start.

Otherwise the first `.remote()` of a program starts a Ray of its own on this machine, and trains
there.
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
from trainyard.dispatch.runs import ray_of
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, PrerequisiteError, RequestError

_LOOPBACK = "127.0.0.1"
_ADDRESS = "RAY_ADDRESS"
_CLUSTER = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_MODE = "RAY_AUTH_MODE"
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 (the name of a variable)
_TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105
# What workers print takes as long to arrive; Sematic waits for it, too.
LAST_LINES_SECONDS = 1.0
_DISPATCH = "Dispatch the work: cluster.dispatch(job)"


@contextmanager
def refused(cluster: str, *, is_reached: bool) -> Iterator[None]:
    """Give Ray an address that no Ray has: it fails at once, and its error says what to do."""
    text = f"ray does not reach cluster {cluster} from this program: use cluster.dispatch(job)"
    if is_reached:
        text = f"ray is not connected to cluster {cluster}: call cluster.ray() first"
    with _variables({_ADDRESS: text}):
        yield


@contextmanager
def connected(
    endpoint: Endpoint, *, runtime_env: Mapping[str, Any], forward_logs: bool
) -> Iterator[None]:
    """Connect `ray` to a cluster: to its GCS if that is on this machine, else by Ray Client.

    Raises PrerequisiteError where this program has no Ray, OutsideError where the cluster's does
    not answer, and RequestError where `ray` is connected already, where Ray refuses this program's
    version of Ray or Python, and for a cluster that programs of this machine do not reach.
    """
    refuse_connected()
    ray = _imported()
    if endpoint.ray_address is None:
        what = f"programs of this machine do not reach the Ray of cluster {endpoint.cluster}"
        raise RequestError(what, hint=_DISPATCH)

    with ExitStack() as inside:
        # Last of all, once the variables are back.
        inside.callback(_read_variables_again)
        inside.enter_context(_access(endpoint.token))
        inside.enter_context(_loopback_kept())
        _read_variables_again()
        inside.callback(ray.shutdown)
        settings = {"runtime_env": dict(runtime_env) or None, "log_to_driver": forward_logs}
        address = endpoint.ray_address()
        _connect(ray, address, settings)
        _refuse_another(ray, endpoint)
        # Also for subprocesses, Ray's state API, and a program that calls ray.shutdown() and
        # connects again.
        inside.enter_context(_variables({_ADDRESS: address}))

        if forward_logs:
            inside.callback(time.sleep, LAST_LINES_SECONDS)

        yield


def refuse_connected() -> None:
    """Raise RequestError where `ray` is connected already: what a block starts would run there."""
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
def _access(token: str | None) -> Iterator[None]:
    """Set the variables that let a program in; take away those with another cluster's token."""
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
    # Ray would look for this machine's other address; Ray Client has no node here, and "auto" knows
    # its own.
    if address.startswith(_LOOPBACK):
        node = {"_node_ip_address": _LOOPBACK}
    else:
        node = {}
    try:
        ray.init(address, logging_level="WARNING", **settings, **node)
    except RuntimeError as error:
        # Ray compares its own version and Python's.
        what = f"this program's Ray cannot connect to the cluster: {str(error).strip()}"
        raise RequestError(what, where=address, hint=_DISPATCH) from error
    except (ConnectionError, ValueError) as error:
        raise OutsideError(f"Ray does not connect: {error}", where=address) from error


def _refuse_another(ray: ModuleType, endpoint: Endpoint) -> None:
    """Raise OutsideError where an address led to another Ray than that whose dashboard answers."""
    here = {node["NodeID"] for node in ray.nodes()}
    with ray_of(endpoint) as dashboard:
        there = {node.node_id for node in dashboard.nodes()}
    if not here & there:
        what = f"ray is connected to another Ray than cluster {endpoint.cluster}"
        raise OutsideError(what, where=endpoint.address, hint=_DISPATCH)


@contextmanager
def _variables(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of this process, or take them away (None), and put them back."""
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
    """Let Ray leave loopback addresses as they are.

    Otherwise it replaces them by another address of this machine, where a cluster of this machine
    does not listen. It is RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 for a program that has imported Ray
    already (ray/_private/services.py).
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        # For programs that this one starts.
        with _variables({_CLUSTER: "0"}):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _read_variables_again() -> None:
    """Let Ray read its variables, which it otherwise does only once, when it is imported."""
    raylet = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
