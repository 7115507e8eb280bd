"""What a cluster has in the account besides instances: a key pair, a security group, a role; made
here, and tagged.

Ray would make its own, and leave them: a role with every right over EC2 and S3, a security group
that lets SSH in from everywhere, and a key in the user's ~/.ssh.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from trainyard.backends.ec2 import desired, naming, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.location import Location
from trainyard.backends.shared.record import write_private
from trainyard.errors import PrerequisiteError
from trainyard.seams.aws import Aws
from trainyard.seams.ssh import keys
from trainyard.spec.ec2 import Ec2Section
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import named

_TRUST = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": '
    '"ec2.amazonaws.com"}, '
    '"Action": "sts:AssumeRole"}]}'
)


def steps(location: Location, sources: list[str]) -> list[Step]:
    """Return the steps after which there is all that the file does not name; `sources` are who may
    use SSH.
    """
    made = _Objects(location)
    section = location.section
    found = []

    if not section.instance_profile:
        # First: EC2 learns of it only after some seconds.
        found.append(Step("role", "Make a role for the nodes", made.has_role, made.make_role))

    if not section.key_name:
        found.append(Step("key-pair", "Make a key pair", made.has_key, made.make_key))

    if not section.security_group:
        title = f"Let SSH in from {', '.join(sources)} alone"
        group = Step("security-group", "Make a security group", made.has_group, made.make_group)
        rules = Step(
            "ssh-rules",
            title,
            lambda: made.has_rules(sources),
            lambda: made.set_rules(sources),
            after=group.id,
        )

        found += [group, rules]

    return found


def refuse_foreign(location: Location, *, adopt: bool = False) -> None:
    """Raise RequestError if an instance, or an object of the cluster's name, is none of ours; asks
    AWS.

    With `adopt` instances may be of nobody.
    """
    aws = location.aws
    name = location.name
    existing = [instance.tags for instance in snapshot.of_cluster(location) if instance.exists]
    found = [tags for tags in existing if naming.CLUSTER in tags or not adopt]
    described: list[Mapping[str, Any]] = [*security_groups(aws, name)]
    described += aws.find("ec2", "describe_key_pairs", KeyNames=[naming.resource(name)]).get(
        "KeyPairs", ()
    )
    if not location.section.instance_profile and (own := role(aws, naming.role(name, aws.region))):
        described.append(own)
    for tags in (*found, *(naming.read(each.get("Tags")) for each in described)):
        locations.refuse_foreign(location, tags)


def security_groups(aws: Aws, name: str) -> list[dict[str, Any]]:
    """Return our groups."""
    return aws.described("security_groups", {f"tag:{naming.CLUSTER}": [name]})


def security_group(location: Location) -> str | None:
    """Return the id of the group that the file names, or of ours, if it is made."""
    ours = (group["GroupId"] for group in security_groups(location.aws, location.name))
    return location.section.security_group or next(ours, None)


def vpc(aws: Aws, section: Ec2Section) -> dict[str, Any]:
    """Return the VPC of the subnet that the file names, else the default one. Raises
    PrerequisiteError without any.
    """
    only = {"is-default": ["true"]}
    if section.subnet:
        only = {
            "vpc-id": [
                each["VpcId"] for each in aws.described("subnets", {"subnet-id": [section.subnet]})
            ]
        }
    for found in aws.described("vpcs", only):
        return found
    hint = "Name a subnet of one: `ec2: {subnet: subnet-...}`."
    raise PrerequisiteError(f"region {aws.region} has no default VPC", hint=hint)


def role(aws: Aws, name: str) -> Mapping[str, Any]:
    """Return a role, {} if there is none of that name."""
    found: Mapping[str, Any] = aws.find("iam", "get_role", RoleName=name).get("Role", {})
    return found


def profile(aws: Aws, name: str) -> Mapping[str, Any]:
    """Return an instance profile, {} if there is none of that name."""
    found: Mapping[str, Any] = aws.find(
        "iam", "get_instance_profile", InstanceProfileName=name
    ).get("InstanceProfile", {})
    return found


class _Objects:
    """The objects of one cluster: whether each is there, and what makes it."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.aws = location.aws
        self.own_name = naming.resource(location.name)
        self.role_name = location.profile
        self.tags = {
            **location.section.tags,
            naming.CLUSTER: location.name,
            naming.OWNER: location.owner,
        }

    def has_key(self) -> Answer:
        public = keys.public_key(self.location.key_file)
        if public is None:
            return no("there is no private key here")
        found = self.aws.find(
            "ec2", "describe_key_pairs", KeyNames=[self.own_name], IncludePublicKey=True
        )
        known = [pair.get("PublicKey", "").split()[:2] for pair in found.get("KeyPairs", ())]
        if public.split() in known:
            return YES
        return no("AWS does not have it")

    def make_key(self) -> None:
        file = self.location.key_file
        if keys.public_key(file) is None:
            write_private(file, keys.new())

        # One whose private part is lost.
        self.aws.call("ec2", "delete_key_pair", KeyName=self.own_name)
        public = str(keys.public_key(file)).encode()
        tags = self._specifications("key-pair")

        self.aws.call(
            "ec2",
            "import_key_pair",
            KeyName=self.own_name,
            PublicKeyMaterial=public,
            TagSpecifications=tags,
        )

    def has_group(self) -> Answer:
        if security_groups(self.aws, self.location.name):
            return YES
        return no("it is not there")

    def make_group(self) -> None:
        self.aws.call(
            "ec2",
            "create_security_group",
            GroupName=self.own_name,
            Description=f"Nodes of the Trainyard cluster {self.location.name}",
            VpcId=vpc(self.aws, self.location.section)["VpcId"],
            TagSpecifications=self._specifications("security-group"),
        )

    def has_rules(self, sources: list[str]) -> Answer:
        group, rules = self._rules()
        if group and rules.keys() == {group, *sources}:
            return YES
        return no(f"it lets in {named([*rules])}" if rules else "it lets nobody in")

    def set_rules(self, sources: list[str]) -> None:
        group, rules = self._rules()
        ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
        desired = {source: ssh | {"IpRanges": [{"CidrIp": source}]} for source in sources}
        desired[group] = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
        # Those who are to come in first: a failure in between locks nobody out.
        if missing := [rule for who, rule in desired.items() if who not in rules]:
            self.aws.call(
                "ec2", "authorize_security_group_ingress", GroupId=group, IpPermissions=missing
            )
        if stale := [rules[who] for who in rules.keys() - desired]:
            self.aws.call(
                "ec2", "revoke_security_group_ingress", GroupId=group, SecurityGroupRuleIds=stale
            )

    def _rules(self) -> tuple[str, dict[str, str]]:
        """Return our security group, "" if it is not seen yet, and the ids of its rules, by whom
        each lets in.
        """
        group = next(
            (str(each["GroupId"]) for each in security_groups(self.aws, self.location.name)), ""
        )
        rules: dict[str, str] = {}

        for rule in (
            self.aws.described("security_group_rules", {"group-id": [group]}) if group else ()
        ):
            name = rule["SecurityGroupRuleId"]
            if not rule["IsEgress"]:
                rules[
                    rule.get("CidrIpv4")
                    or rule.get("ReferencedGroupInfo", {}).get("GroupId")
                    or name
                ] = name

        return group, rules

    def has_role(self) -> Answer:
        name = self.role_name
        arn = next((role["Arn"] for role in profile(self.aws, name).get("Roles", ())), None)
        if arn is None:
            return no("it is not there")
        allowed = self.aws.find("iam", "get_role_policy", RoleName=name, PolicyName=name).get(
            "PolicyDocument"
        )
        if allowed == json.loads(desired.policy(self.location.name, arn)):
            return YES
        return no("it may do something else")

    def make_role(self) -> None:
        """Make the role, what it may do, and the instance profile by which instances have it."""
        iam = partial(self.aws.call, "iam")
        name = self.role_name
        tags = naming.pairs(self.tags)
        own = role(self.aws, name)
        if not own:
            own = iam("create_role", RoleName=name, AssumeRolePolicyDocument=_TRUST, Tags=tags)[
                "Role"
            ]

        document = desired.policy(self.location.name, own["Arn"])
        iam("put_role_policy", RoleName=name, PolicyName=name, PolicyDocument=document)
        if not profile(self.aws, name):
            iam("create_instance_profile", InstanceProfileName=name, Tags=tags)

        if not profile(self.aws, name).get("Roles"):
            iam("add_role_to_instance_profile", InstanceProfileName=name, RoleName=name)

    def _specifications(self, kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": naming.pairs(self.tags)}]
