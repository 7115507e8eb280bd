"""The backends: every way to have a cluster, each a module of this package that has the name of its backend."""

from __future__ import annotations

import json
from importlib import import_module
from typing import cast
from urllib.parse import urlsplit

from trainyard.backends.contract import Backend


def named(backend: str) -> Backend:
    """Return a backend, imported when it is asked for: who uses one does not pay for Docker's client."""
    return cast(Backend, import_module(f"{__name__}.{backend}"))


def file_for_address(name: str, address: str) -> str:
    """Return a cluster file for a cluster that somebody else runs; without a token only this machine may reach it."""
    host = urlsplit(address).hostname or ""
    is_loopback = host == "localhost" or host.startswith("127.")
    head = f"name: {name}\nbackend: existing\n" + ("auth: none\n" if is_loopback else "")
    token = "" if is_loopback else "  token_env: RAY_AUTH_TOKEN\n"
    return f"{head}existing:\n  address: {json.dumps(address)}\n{token}"
