"""SSH addresses of a lab's hosts, as cluster files on this machine named them.

A node's annotation says where its host is, and a kubelet may change the annotations of its own
node: by itself it could choose where this machine logs in, sends the password of sudo, and runs
commands as root.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from trainyard.backends.contract import Site
from trainyard.backends.shared.record import read_json, write_private


def file(site: Site) -> Path:
    """Return the file of the addresses; it outlives the cluster, as kubeconfig and lab do."""
    return site.state.with_name(f"{site.state.name}.hosts")


def known(site: Site) -> frozenset[str]:
    """Return the addresses that were written down."""
    return frozenset(read_json(file(site)) or ())


def write(site: Site, addresses: Iterable[str]) -> None:
    """Write addresses down, with those from before."""
    path = file(site)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps(sorted({*known(site), *addresses})))
