"""Whether nodes of a cluster find room on Kubernetes, all of them at once; pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.backends.kuberay.capacity import amounts, hosts
from trainyard.backends.kuberay.capacity.demands import Demand
from trainyard.backends.kuberay.capacity.hosts import Host

# So many ways are tried before a shortage is only a supposition; small clusters need far fewer.
TRIES = 20_000
# Of more nodes than that, no other way than the quick one is tried.
SEARCHED = 200


@dataclass(frozen=True)
class Packing:
    """Who found no room, and how the hosts are once all others did. Not `proven`: there may be a way nobody tried."""

    missing: tuple[Demand, ...]
    left: tuple[Host, ...]
    proven: bool = True


def pack(wanted: Sequence[Demand], there: Sequence[Host], *, tries: int = TRIES) -> Packing:
    """Find room for every demand: the quick way first, and every other one before a shortage is claimed."""
    ordered = sorted(wanted, key=_size, reverse=True)
    missing: list[Demand] = []
    left = tuple(there)
    for one in ordered:
        after = next(_placed(one, left), None)
        if after is None:
            missing.append(one)
        else:
            left = after
    if not missing:
        return Packing((), left)
    if _never_fits(wanted, there):
        return Packing(tuple(missing), left)
    search = _Search(tries if len(ordered) <= SEARCHED else 0)
    if search.finds(ordered, tuple(there)):
        return Packing((), ())
    return Packing(tuple(missing), left, proven=search.tries > 0)


def may_run(demand: Demand, host: Host) -> str:
    """Return why a demand can never be met on a host, whatever is free there; "" if it can."""
    why = hosts.keeps_out(host, selector=demand.selector, tolerations=demand.tolerations)
    if not why and (any(host.ours) or (demand.alone and host.ours)):
        return "a node of the cluster is there already (spread: required)"
    return why


def _never_fits(wanted: Sequence[Demand], there: Sequence[Host]) -> bool:
    """Say whether demands of one kind are more than the hosts could take if nobody else wanted anything."""
    kinds: list[tuple[Demand, int]] = []
    for one in wanted:
        at = next((at for at, (kind, _) in enumerate(kinds) if kind == one), len(kinds))
        kinds[at : at + 1] = [(one, kinds[at][1] + 1 if at < len(kinds) else 1)]
    return any(sum(_most(kind, host) for host in there) < count for kind, count in kinds)


def _most(demand: Demand, host: Host) -> int:
    """Return how many equal demands a host takes, alone with them."""
    if may_run(demand, host):
        return 0
    wants = [(name, amount) for name, amount in demand.requests.items() if amount > 0]
    fitting = min((max(host.free.get(name, 0), 0) // amount for name, amount in wants), default=sys.maxsize)
    return min(fitting, 1) if demand.alone else fitting


class _Search:
    """Every way to place the demands, one after the other, until one is found or the tries are used up."""

    def __init__(self, tries: int) -> None:
        self.tries = tries

    def finds(self, demands: Sequence[Demand], there: tuple[Host, ...]) -> bool:
        if not demands:
            return True
        if self.tries <= 0:
            return False
        for after in _placed(demands[0], there, rest=demands):
            self.tries -= 1
            if self.tries <= 0:
                return False
            if self.finds(demands[1:], after):
                return True
        return False


def _placed(demand: Demand, there: tuple[Host, ...], *, rest: Sequence[Demand] = ()) -> Iterator[tuple[Host, ...]]:
    """Yield the hosts with the demand on one of them, the fullest first; those alike to `rest` are tried once."""
    # Every host has a label of its own: only those that somebody selects by tell hosts apart.
    selected = {key for one in rest for key in one.selector}
    seen: list[tuple[object, ...]] = []
    for index in sorted(range(len(there)), key=lambda at: _free(there[at])):
        host = there[index]
        labels = {key: host.labels.get(key) for key in selected}
        like = (host.free, labels, host.taints, host.ours, host.refuses)
        if like in seen or may_run(demand, host) or not amounts.fits(demand.requests, host.free):
            continue
        seen.append(like)
        yield (*there[:index], host.with_pod(demand.requests, alone=demand.alone), *there[index + 1 :])


def _size(demand: Demand) -> tuple[int, int, int]:
    devices = sum(amount for name, amount in demand.requests.items() if "/" in name)
    return devices, demand.requests.get("cpu", 0), demand.requests.get("memory", 0)


def _free(host: Host) -> tuple[int, int, int]:
    devices = sum(amount for name, amount in host.free.items() if "/" in name)
    return devices, host.free.get("cpu", 0), host.free.get("memory", 0)
