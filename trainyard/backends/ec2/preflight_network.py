"""What is wrong with zones, subnets and security groups: where nodes would be, and who reaches them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from trainyard.backends.ec2.preflight_facts import Facts, Found, Object, groups
from trainyard.spec.cluster import ClusterSpec
from trainyard.wording import named

INTERNET = "0.0.0.0/0"
# How nodes get out: by addresses of their own, by somebody else's, to AWS alone, or not at all.
WayOut = Literal["public", "private", "endpoint", "none"]
VPN = "`use_internal_ips: true` if this machine reaches the VPC's private addresses, such as by a VPN"
NAME_ONE = "name one, `ec2.subnet`"


def zones(spec: ClusterSpec, facts: Facts) -> set[str]:
    """Return where nodes may be; nothing if that is not known."""
    return {subnet["AvailabilityZone"] for subnet in _subnets(spec, facts)}


def zone_problems(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    """Yield which zones of the file there are not, or not now."""
    for name in spec.ec2.zones if facts.zones else ():
        zone = (facts.zones or {}).get(name)
        if zone is None:
            yield f"zone {name}", f"is not in {facts.region}: that has {named(sorted(facts.zones or ()), most=9)}"
        elif zone["State"] != "available":
            yield f"zone {name}", f"is {zone['State']}, says AWS: name another one"


def subnet_problems(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    """Yield what is wrong with the file's subnet; without one, with those of the default VPC."""
    subnets = _subnets(spec, facts)
    if facts.subnets is None or facts.vpcs is None or (not subnets and [*zone_problems(spec, facts)]):
        return
    usable = [subnet for subnet in subnets if spec.ec2.use_internal_ips or subnet["MapPublicIpOnLaunch"]]
    subject = f"subnet {spec.ec2.subnet}" if spec.ec2.subnet else f"default VPC {named([*facts.vpcs])}".rstrip()
    if not subnets:
        missing = f"has no subnet in {named(spec.ec2.zones or [facts.region], most=9)}: {NAME_ONE}"
        yield subject, f"does not exist in {facts.region}" if spec.ec2.subnet else missing
    elif not usable:
        gives = "gives nodes no" if spec.ec2.subnet else "has no subnet that gives nodes"
        yield subject, f"{gives} public addresses: {VPN}; else name a public subnet, `ec2.subnet`"
    else:
        yield from _ways_out(subject, usable, spec, facts)
        free = sum(subnet["AvailableIpAddressCount"] for subnet in usable)
        if free < (nodes := sum(group.most for group in groups(spec))):
            yield subject, f"has {free} addresses left, and the cluster {nodes} nodes at its largest: name another one"


def security_group_problems(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    """Yield what is wrong with the file's security group: it is elsewhere, or keeps out who must come in."""
    if not spec.ec2.security_group or facts.security_groups is None:
        return
    name, group = spec.ec2.security_group, facts.security_groups.get(spec.ec2.security_group)
    if group is None:
        yield f"security group {name}", f"does not exist in {facts.region}"
        return
    if (vpcs := {subnet["VpcId"] for subnet in _subnets(spec, facts)}) and group["VpcId"] not in vpcs:
        nodes = (
            f"subnet {spec.ec2.subnet} in" if spec.ec2.subnet else "without `ec2.subnet` nodes are in the default VPC,"
        )
        yield (
            f"security group {name}",
            f"is in VPC {group['VpcId']}, and {nodes} {named(sorted(vpcs))}: name two of one VPC",
        )
    allow = f"aws ec2 authorize-security-group-ingress --group-id {name} --protocol"
    if not any(_opens(rule, 22, 22) for rule in group["IpPermissions"]):
        yield f"security group {name}", f"lets nobody in by SSH: {allow} tcp --port 22 --cidr YOUR-ADDRESS/32"
    if not any(_opens(rule, 0, 65535) for rule in group["IpPermissions"]):
        yield f"security group {name}", f"keeps its own nodes from each other: {allow} all --source-group {name}"


def _subnets(spec: ClusterSpec, facts: Facts) -> list[Object]:
    """Return the subnet of the file, else those of the default VPC in the zones of the file."""
    found = [*(facts.subnets or {}).values()]
    if spec.ec2.subnet:
        return [subnet for subnet in found if subnet["SubnetId"] == spec.ec2.subnet]
    ours = [subnet for subnet in found if subnet["VpcId"] in (facts.vpcs or {})]
    return [subnet for subnet in ours if not spec.ec2.zones or subnet["AvailabilityZone"] in spec.ec2.zones]


def _ways_out(subject: str, subnets: Sequence[Object], spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    """Yield why nodes would not get out, or nobody to them; of several subnets, that it would be a matter of chance."""
    by_way: dict[WayOut, list[str]] = {}
    for subnet in subnets if facts.routes else ():
        by_way.setdefault(_way_out(subnet, facts), []).append(subnet["SubnetId"])
    gives_addresses = any(subnet["MapPublicIpOnLaunch"] for subnet in subnets)
    if len(by_way) > 1:
        ways = "; ".join(f"{way}: {named(sorted(names), most=9)}" for way, names in sorted(by_way.items()))
        yield subject, f"has subnets of different kinds, and chance would choose ({ways}): {NAME_ONE}"
    elif "none" in by_way:
        yield (
            subject,
            "has no route out of its VPC, and nodes must reach AWS: route it to a NAT gateway, or name another",
        )
    elif by_way and "public" not in by_way and not spec.ec2.use_internal_ips:
        yield subject, f"has no route to an internet gateway, and nobody reaches its public addresses: {VPN}"
    elif "public" in by_way and not gives_addresses:
        yield (
            subject,
            "is routed to an internet gateway, and nodes without public addresses get nowhere: name a private one",
        )


def _way_out(subnet: Object, facts: Facts) -> WayOut:
    tables = [table for table in facts.routes.values() if table["VpcId"] == subnet["VpcId"]]
    own = [
        table for table in tables if any(each.get("SubnetId") == subnet["SubnetId"] for each in table["Associations"])
    ]
    main = [table for table in tables if any(each.get("Main") for each in table["Associations"])]
    for route in (route for table in own or main for route in table["Routes"]):
        if route.get("DestinationCidrBlock") == INTERNET and route.get("State") == "active":
            return "public" if route.get("GatewayId", "").startswith("igw-") else "private"
    endpoints = (each["ServiceName"] for each in facts.endpoints.values() if each["VpcId"] == subnet["VpcId"])
    return "endpoint" if any(service.endswith(".ec2") for service in endpoints) else "none"


def _opens(rule: Object, first: int, last: int) -> bool:
    """Say whether a rule lets anybody in at these ports."""
    sources = rule.get("IpRanges") or rule.get("UserIdGroupPairs") or rule.get("PrefixListIds")
    ports = rule["IpProtocol"] == "tcp" and rule.get("FromPort", 0) <= first and last <= rule.get("ToPort", 65535)
    return bool(sources) and (rule["IpProtocol"] == "-1" or ports)
