"""The backends: every way to have a cluster, and the one table that says which there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

from trainyard.backends.contract import Backend

_MODULES = {
    "local": "trainyard.backends.local",
    "compose": "trainyard.backends.compose",
    "kuberay": "trainyard.backends.kuberay",
    "existing": "trainyard.backends.existing",
}


class _Backends(Mapping[str, Backend]):
    """The table, with each module imported when it is asked for: who uses one does not pay for Docker's client."""

    def __getitem__(self, name: str) -> Backend:
        return cast(Backend, import_module(_MODULES[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


BACKENDS: Mapping[str, Backend] = _Backends()
