"""Clusters of ours on EC2, by their tag: in the accounts and regions that files and records here
name, or in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainyard.backends.contract import Discovered, FoundCluster, Tools
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

# A profile, and a region.
Account = tuple[str | None, str]
AT_ONCE = 16
# They end with it, their tags some time later.
_OF_INSTANCES = {"instance", "volume", "network-interface"}


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]],
    states: Sequence[Path],
    environ: Mapping[str, str],
    *,
    region: str | None = None,
) -> Discovered:
    """Return where these clusters are, and what carries our tag and is of none of them."""
    places: dict[str, Account] = {}
    problems: dict[str, str] = {}
    for spec, tools in clusters:
        try:
            aws = locations.find(spec, tools).aws
            places[spec.name] = aws.profile, aws.region
        except TrainyardError as error:
            problems[spec.name] = in_a_line(error)

    default = environ.get("AWS_PROFILE")
    records = [read_json(state / "cluster.json") for state in states]
    recorded = [(record["profile"] or default, record["region"]) for record in records]
    accounts = dict.fromkeys([*places.values(), *recorded])
    remarks: list[str] = []
    others = []
    shown = {name: place for name, (_, place) in places.items()}

    if region:
        everywhere = _everywhere(
            environ, [*(profile for profile, _ in accounts), default], region, remarks
        )
        accounts |= dict.fromkeys(everywhere)

    profiles = {profile: Aws(environ, region=HOME, profile=profile) for profile, _ in accounts}
    answers = side_by_side(
        lambda account: _ask(profiles[account[0]], account[1]), accounts, at_once=AT_ONCE
    )

    for account, answer in zip(accounts, answers, strict=True):
        if isinstance(answer, TrainyardError):
            there = [name for name, place in places.items() if place == account]
            problems |= dict.fromkeys(there, in_a_line(answer))
            # The rows of its clusters say so already.
            remarks += [] if there else [f"EC2 in {account[1]}: {in_a_line(answer)}"]
            continue

        found, kept = answer
        shown |= {each.name: each.location for each in found if places.get(each.name) == account}
        for each in found:
            if places.get(each.name) != account:
                others.append(each)

        remarks += [kept] if kept else []

    return Discovered(shown, problems, tuple(others), tuple(remarks))


def _everywhere(
    environ: Mapping[str, str], profiles: Sequence[str | None], region: str, remarks: list[str]
) -> Iterator[Account]:
    """Yield a region, or with "all" those that it may use, of each account that these profiles are
    of.
    """
    seen: set[str] = set()
    for profile in dict.fromkeys(profiles):
        aws = Aws(environ, region=HOME if region == "all" else region, profile=profile)
        try:
            account = aws.caller["Account"]
            if region == "all":
                regions = [each["RegionName"] for each in aws.described("regions")]
            else:
                regions = [region]
        except TrainyardError as error:
            remarks.append(f"EC2: {in_a_line(error)}")
            continue

        if account not in seen:
            for each in regions:
                yield (profile, each)

        seen.add(account)


def _ask(aws: Aws, region: str) -> tuple[list[FoundCluster], str] | TrainyardError:
    """Return the clusters, and what is to be said of disks that were kept."""
    try:
        kept = disks.tagged(aws, naming.KEPT, "*", region=region)
        if kept:
            words = f"{region}: {disks.remark(aws, kept, region)}"
        else:
            words = ""
        return list(_clusters(aws, region)), words
    except TrainyardError as error:
        return error


def _clusters(aws: Aws, region: str) -> Iterator[FoundCluster]:
    """Yield what carries our tag: instances, and what stays when a leash has ended them."""
    tags = aws.described("tags", {"key": [naming.CLUSTER]}, region=region)
    if tags:
        instances = snapshot.instances(aws, {naming.CLUSTER: "*"}, region=region)
    else:
        instances = []

    flags = f"--set ec2.region={region}" + (
        f" --set ec2.profile={aws.profile}" if aws.profile else ""
    )

    for name in dict.fromkeys(tag["Value"] for tag in tags):
        found = [each for each in instances if each.exists and each.tags[naming.CLUSTER] == name]
        kinds = {tag["ResourceType"] for tag in tags if tag["Value"] == name} - _OF_INSTANCES
        is_up = any(each.is_head and each.runs for each in found)
        if found:
            text = _shown(aws, region, found)
        else:
            text = f"no instance; left: {named(sorted(kinds))}"
        if found or kinds:
            yield FoundCluster(name, f"{region}: {text}", is_up, flags)


def _shown(aws: Aws, region: str, instances: Sequence[Instance]) -> str:
    oldest = min(instances, key=lambda each: str(each.launched))
    types = [each.type for each in instances]
    is_spot = any(each.is_spot for each in instances)
    cost = nodes.cost(aws, region, types, at_most=is_spot)
    return ", ".join(filter(None, (counted(len(instances), "instance"), nodes.age(oldest), cost)))
