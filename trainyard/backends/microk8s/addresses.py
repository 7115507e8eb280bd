"""A lab's SSH addresses that cluster files on this machine have named.

A node's annotation has the host's SSH address, but the host's kubelet may
change annotations. With a false address, a host could choose where this machine
logs in, sends the sudo password, and runs commands as root. So only the
addresses in this record are trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from trainyard.backends.contract import Site
from trainyard.backends.shared.record import read_json, write_private


def file(site: Site) -> Path:
    """Return the file of addresses, which stays until the lab is removed."""
    return site.state.with_name(f"{site.state.name}.hosts")


def known(site: Site) -> frozenset[str]:
    return frozenset(read_json(file(site)) or ())


def write(site: Site, addresses: Iterable[str]) -> None:
    path = file(site)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps(sorted({*known(site), *addresses})))
