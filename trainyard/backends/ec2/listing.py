"""Clusters of ours on EC2, by their tag: in the accounts and regions that files and records of this machine name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.backends.contract import Discovered, FoundCluster, Tools
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2 import naming, nodes, snapshot
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.record import read_json
from trainyard.errors import TrainyardError, in_a_line
from trainyard.seams.aws import Aws
from trainyard.spec.cluster import ClusterSpec
from trainyard.wording import counted

Account = tuple[str | None, str]


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]], states: Sequence[Path], environ: Mapping[str, str]
) -> Discovered:
    """Return where these clusters are, and the instances with our tag that are of none of them."""
    places: dict[str, Account] = {}
    problems: dict[str, str] = {}
    for spec, tools in clusters:
        try:
            aws = locations.find(spec, tools).aws
            places[spec.name] = aws.profile, aws.region
        except TrainyardError as error:
            problems[spec.name] = in_a_line(error)
    recorded: list[dict[str, Any]] = [read_json(state / "cluster.json") for state in states]
    others, remarks = [], []
    for account in dict.fromkeys([*places.values(), *((record["profile"], record["region"]) for record in recorded)]):
        try:
            found = snapshot.instances(Aws(environ, region=account[1], profile=account[0]), {naming.CLUSTER: "*"})
        except TrainyardError as error:
            remarks.append(f"EC2 in {account[1]}: {in_a_line(error)}")
            problems |= {name: in_a_line(error) for name, place in places.items() if place == account}
            continue
        names = dict.fromkeys(each.tags[naming.CLUSTER] for each in found if each.exists)
        unknown = [name for name in names if places.get(name) != account]
        others += [_found(name, account, [each for each in found if each.exists]) for name in unknown]
    return Discovered({name: region for name, (_, region) in places.items()}, problems, tuple(others), tuple(remarks))


def _found(name: str, account: Account, found: Sequence[Instance]) -> FoundCluster:
    profile, region = account
    ours = [each for each in found if each.tags[naming.CLUSTER] == name]
    oldest = min(ours, key=lambda each: str(each.launched))
    is_up = any(each.is_head and each.runs for each in ours)
    flags = f"--set ec2.region={region}" + (f" --set ec2.profile={profile}" if profile else "")
    return FoundCluster(name, f"{region}: {counted(len(ours), 'instance')}, {nodes.age(oldest)}", is_up, flags)
