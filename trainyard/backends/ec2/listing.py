"""Find Trainyard's clusters on EC2 by tag, in known or in all regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trainyard.backends.contract import Discovered, FoundCluster, Site
from trainyard.backends.ec2 import disks, naming, nodes, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.preflight_questions import HOME
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared.record import read_json
from trainyard.errors import TrainyardError, in_a_line
from trainyard.seams.aws import Aws
from trainyard.seams.threads import side_by_side
from trainyard.spec.cluster import ClusterSpec
from trainyard.wording import counted, named

AT_ONCE = 16
# These resources end with their instance, but AWS may list their tags some time longer. Alone they
# do not count as a cluster.
_OF_INSTANCES = {"instance", "volume", "network-interface"}


class Account(NamedTuple):
    """A region of a profile's account; the profile None is the default one."""

    profile: str | None
    region: str


# The clusters of a region, with a remark about kept disks; or an error if AWS does not answer.
Answer = tuple[list[FoundCluster], str] | TrainyardError


def discover(
    clusters: Sequence[tuple[ClusterSpec, Site]],
    states: Sequence[Path],
    environ: Mapping[str, str],
    *,
    region: str | None = None,
) -> Discovered:
    """Ask AWS for tagged clusters in the regions of these clusters and records.

    `region` adds a region; "all" adds every enabled one. Returns where the
    given clusters are, and the other tagged clusters.
    """
    places, problems = _places(clusters)
    default = environ.get("AWS_PROFILE")
    accounts = dict.fromkeys(places.values())
    for state in states:
        record = read_json(state / "cluster.json")
        # Another command may have removed the cluster and its record since.
        if record is not None:
            accounts[Account(record["profile"] or default, record["region"])] = None

    remarks: list[str] = []
    if region:
        profiles = [account.profile for account in accounts] + [default]
        accounts |= dict.fromkeys(_everywhere(environ, profiles, region, remarks))

    others = []
    texts = {name: place.region for name, place in places.items()}
    for account, answer in _answers(environ, list(accounts)):
        if isinstance(answer, TrainyardError):
            there = [name for name, place in places.items() if place == account]
            problems |= dict.fromkeys(there, in_a_line(answer))
            # If clusters are in this region, their rows already show the problem.
            if not there:
                remarks.append(f"EC2 in {account.region}: {in_a_line(answer)}")
            continue

        found, kept = answer
        for cluster in found:
            if places.get(cluster.name) == account:
                texts[cluster.name] = cluster.location
            else:
                others.append(cluster)
        if kept:
            remarks.append(kept)

    return Discovered(texts, problems, tuple(others), tuple(remarks))


def _places(
    clusters: Sequence[tuple[ClusterSpec, Site]],
) -> tuple[dict[str, Account], dict[str, str]]:
    """Return each cluster's account, or why it is unknown, by cluster name."""
    places: dict[str, Account] = {}
    problems: dict[str, str] = {}
    for spec, site in clusters:
        try:
            aws = locations.find(spec, site).aws
            places[spec.name] = Account(aws.profile, aws.region)
        except TrainyardError as error:
            problems[spec.name] = in_a_line(error)
    return places, problems


def _answers(
    environ: Mapping[str, str], accounts: Sequence[Account]
) -> list[tuple[Account, Answer]]:
    sessions = {}
    for account in accounts:
        if account.profile not in sessions:
            sessions[account.profile] = Aws(environ, region=HOME, profile=account.profile)

    answers = side_by_side(
        lambda account: _ask(sessions[account.profile], account.region),
        accounts,
        at_once=AT_ONCE,
    )
    return list(zip(accounts, answers, strict=True))


def _everywhere(
    environ: Mapping[str, str], profiles: Sequence[str | None], region: str, remarks: list[str]
) -> Iterator[Account]:
    """Yield each profile with the region; "all" means every enabled region.

    If two profiles belong to one account, only the first is used. An account
    that does not answer adds a line to `remarks`.
    """
    seen: set[str] = set()
    for profile in dict.fromkeys(profiles):
        aws = Aws(environ, region=HOME if region == "all" else region, profile=profile)
        try:
            account_id = aws.caller["Account"]
            regions = [region]
            if region == "all":
                regions = [described["RegionName"] for described in aws.described("regions")]
        except TrainyardError as error:
            remarks.append(f"EC2: {in_a_line(error)}")
            continue

        if account_id not in seen:
            for name in regions:
                yield Account(profile, name)
        seen.add(account_id)


def _ask(aws: Aws, region: str) -> Answer:
    try:
        kept = disks.tagged(aws, naming.KEPT, "*", region=region)
        remark = f"{region}: {disks.remark(aws, kept, region)}" if kept else ""
        return list(_clusters(aws, region)), remark
    except TrainyardError as error:
        return error


def _clusters(aws: Aws, region: str) -> Iterator[FoundCluster]:
    """Yield each cluster whose tag AWS lists in a region.

    A cluster without instances counts if other resources are left, as a leash
    ends only instances.
    """
    tags = aws.described("tags", {"key": [naming.CLUSTER]}, region=region)
    if not tags:
        return

    instances: dict[str, list[Instance]] = {}
    for instance in snapshot.instances(aws, {naming.CLUSTER: "*"}, region=region):
        if instance.exists:
            instances.setdefault(instance.tags[naming.CLUSTER], []).append(instance)

    resource_types: dict[str, set[str]] = {}
    for tag in tags:
        resource_types.setdefault(tag["Value"], set()).add(tag["ResourceType"])

    flags = f"--set ec2.region={region}"
    if aws.profile:
        flags += f" --set ec2.profile={aws.profile}"

    for name, types in resource_types.items():
        existing = instances.get(name, [])
        staying = types - _OF_INSTANCES
        if existing:
            text = _described(aws, region, existing)
        elif staying:
            text = f"no instance; left: {named(sorted(staying))}"
        else:
            continue
        is_up = any(each.is_head and each.runs for each in existing)
        yield FoundCluster(name, f"{region}: {text}", is_up, flags)


def _described(aws: Aws, region: str, instances: Sequence[Instance]) -> str:
    oldest = min(instances, key=lambda instance: instance.launched)
    types = [instance.type for instance in instances]
    has_spot = any(instance.is_spot for instance in instances)
    cost = nodes.cost(aws, region, types, at_most=has_spot)
    return ", ".join(filter(None, (counted(len(instances), "instance"), nodes.age(oldest), cost)))
