"""Room on Kubernetes for the nodes of a cluster, and the reason when there is none; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.backends.kuberay.capacity import amounts, packing
from trainyard.backends.kuberay.capacity.demands import Demand
from trainyard.backends.kuberay.capacity.hosts import Host
from trainyard.backends.kuberay.capacity.packing import Packing
from trainyard.backends.wording import named


@dataclass(frozen=True)
class Shortage:
    """What is missing, a sentence a group. Not `proven`: there may be a way to place the nodes that was not tried."""

    said: tuple[str, ...]
    proven: bool


def shortage(wanted: Sequence[Demand], there: Sequence[Host]) -> Shortage:
    """Say for each group without room what is missing, how much of it, and where; nothing if there is room for all."""
    found = packing.pack(wanted, there)
    groups = dict.fromkeys(one.group for one in found.missing)
    return Shortage(tuple(_of_group(group, wanted, found, there) for group in groups), found.proven)


def has_resource(there: Sequence[Host], resource: str) -> bool:
    """Say whether any Kubernetes node offers a resource, such as nvidia.com/gpu."""
    return any(host.has.get(resource, 0) for host in there)


def _of_group(group: str, wanted: Sequence[Demand], found: Packing, there: Sequence[Host]) -> str:
    lacking = [one for one in found.missing if one.group == group]
    of = sum(1 for one in wanted if one.group == group)
    share = f"{len(lacking)} of {of} nodes" if of > 1 else "it"
    likely = "" if found.proven else "probably "
    return f"{group}: {likely}no Kubernetes node has room for {share}: {'; '.join(_why(lacking[0], found.left, there))}"


def _why(demand: Demand, left: Sequence[Host], there: Sequence[Host]) -> Iterator[str]:
    """Yield what is missing on the hosts that may run it, then why the others may not."""
    out = {host.name: why for host in left if (why := packing.may_run(demand, host))}
    open_ = [host for host in left if host.name not in out]
    if open_:
        lacking = [
            name
            for name, amount in demand.requests.items()
            if amount and all(one.free.get(name, 0) < amount for one in open_)
        ]
        yield from (_missing(name, demand, open_, there) for name in sorted(lacking, key=_order))
        if not lacking:
            yield f"no one of them has enough of everything: {named([_partly(demand, host) for host in open_])}"
    if not left:
        yield "there is no Kubernetes node"
    for why in dict.fromkeys(out.values()):
        yield f"{named([name for name, one in out.items() if one == why])}: {why}"


def _missing(name: str, demand: Demand, open_: Sequence[Host], there: Sequence[Host]) -> str:
    wants = f"{name}: {amounts.shown(name, demand.requests[name])} wanted"
    most = max(one.free.get(name, 0) for one in open_)
    where = [one.name for one in open_ if one.free.get(name, 0) == most]
    if "/" not in name:
        return f"{wants}, at most {amounts.shown(name, most)} free ({named(where)})"
    has = [one for one in there if one.has.get(name, 0)]
    if not has:
        return f"{wants}, no Kubernetes node has any"
    return f"{wants}, {_free(name, most, where)} ({', '.join(_held(name, one) for one in has[:3])})"


def _free(name: str, most: int, where: Sequence[str]) -> str:
    return (
        f"{amounts.shown(name, most)} free on {named(where)}" if most <= 0 else f"at most {amounts.shown(name, most)}"
    )


def _held(name: str, host: Host) -> str:
    users = host.users.get(name, ())
    by = f", used by {named(users)}" if users else ""
    return f"{host.name} has {amounts.shown(name, host.has[name])}{by}"


def _partly(demand: Demand, host: Host) -> str:
    lacking = [name for name, amount in demand.requests.items() if host.free.get(name, 0) < amount]
    return f"{host.name} lacks {' and '.join(_lack(name, demand, host) for name in sorted(lacking, key=_order))}"


def _lack(name: str, demand: Demand, host: Host) -> str:
    has, wants = amounts.shown(name, host.free.get(name, 0)), amounts.shown(name, demand.requests[name])
    return f"{name} ({has} of {wants})"


def _order(name: str) -> tuple[int, str]:
    known = ("cpu", "memory", amounts.PODS)
    return known.index(name) if name in known else len(known), name
