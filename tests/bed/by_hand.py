"""Clusters that somebody plays with: each lives until it is taken down, and test runs leave it alone."""

from __future__ import annotations

from tests.bed import bed, hosts, kubernetes
from tests.bed.kubernetes import KubeBed
from tests.bed.places import RUN, run

# Those that `publish` puts where the hosts can pull them.
IMAGES = ("trainyard-bed/base:1", "trainyard-bed/ray:1", "trainyard-bed/ray-gpu:1")


def up(count: int, name: str) -> KubeBed:
    """Start a cluster of that many hosts, in place of the one of that name."""
    bed.start(kept=True)
    down(name)
    home = RUN / "by-hand" / name
    home.mkdir(parents=True, mode=0o700)
    return kubernetes.start(bed.SHARED, home, count=count, owner=hosts.by_hand(name))


def down(name: str) -> None:
    """Remove it; the engine goes on running, for it may serve others."""
    if bed.SHARED.pid is not None:
        hosts.remove_owned(bed.SHARED, hosts.by_hand(name))
    run(["rm", "-rf", str(RUN / "by-hand" / name)])
