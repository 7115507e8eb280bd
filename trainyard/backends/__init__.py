"""The backends: every way to have a cluster, and the one table that says which there are."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.backends import existing, local
from trainyard.backends.contract import Backend

BACKENDS: Mapping[str, Backend] = {
    "local": local,
    "existing": existing,
}
