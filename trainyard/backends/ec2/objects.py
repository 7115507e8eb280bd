"""The key pair, security group and role that Trainyard makes for a cluster.

Without these objects, Ray would make others and never remove them: a role with
every right over EC2 and S3, a security group that allows SSH from everywhere,
and a key in the user's ~/.ssh.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

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
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", '
    '"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'
)


class _Rule(NamedTuple):
    """Traffic to let in: from a CIDR block or a group, to a range of ports.

    `protocol` -1 means every protocol, and has the ports -1, as in AWS's API.
    """

    source: str
    protocol: str
    first: int
    last: int

    def __str__(self) -> str:
        if self.protocol == "-1":
            return self.source
        ports = str(self.first)
        if self.last != self.first:
            ports += f"-{self.last}"
        return f"{self.source} ({self.protocol} {ports})"


def steps(location: Location, sources: list[str]) -> list[Step]:
    """Return the steps that make each object that the file does not name.

    `sources` are the CIDR blocks that may use SSH.
    """
    objects = _Objects(location)
    section = location.section
    steps = []

    if not section.instance_profile:
        # The role comes first, because EC2 accepts a new role only after some seconds.
        title = "Make a role for the nodes"
        steps.append(Step("role", title, objects.has_role, objects.make_role))

    if not section.key_name:
        steps.append(Step("key-pair", "Make a key pair", objects.has_key, objects.make_key))

    if not section.security_group:
        title = "Make a security group"
        steps.append(Step("security-group", title, objects.has_group, objects.make_group))
        title = f"Let SSH in from {', '.join(sources)} alone"
        has_rules = partial(objects.has_rules, sources)
        set_rules = partial(objects.set_rules, sources)
        steps.append(Step("ssh-rules", title, has_rules, set_rules, after="security-group"))

    return steps


def refuse_foreign(location: Location, *, adopt: bool) -> None:
    """Raise RequestError if another owner has instances or objects of the name.

    With `adopt`, instances without Trainyard's tag are accepted.
    """
    aws = location.aws
    name = location.name
    for instance in snapshot.of_cluster(location):
        is_adopted = adopt and naming.CLUSTER not in instance.tags
        if instance.exists and not is_adopted:
            locations.refuse_foreign(location, instance.tags)

    described: list[Mapping[str, Any]] = [*security_groups(aws, name)]
    pairs = aws.find("ec2", "describe_key_pairs", KeyNames=[naming.resource(name)])
    described += pairs.get("KeyPairs", ())
    if not location.section.instance_profile:
        own_role = role(aws, naming.role(name, aws.region))
        if own_role:
            described.append(own_role)

    for each in described:
        locations.refuse_foreign(location, naming.read(each.get("Tags")))


def security_groups(aws: Aws, name: str) -> list[dict[str, Any]]:
    return aws.described("security_groups", {f"tag:{naming.CLUSTER}": [name]})


def security_group(location: Location) -> str | None:
    """Return the id of the file's security group, else of the cluster's own."""
    made = (group["GroupId"] for group in security_groups(location.aws, location.name))
    return location.section.security_group or next(made, None)


def vpc(aws: Aws, section: Ec2Section) -> dict[str, Any]:
    """Ask AWS for the VPC of the file's subnet, else the default VPC.

    Raises PrerequisiteError without such a VPC.
    """
    filters = {"is-default": ["true"]}
    if section.subnet:
        subnets = aws.described("subnets", {"subnet-id": [section.subnet]})
        filters = {"vpc-id": [subnet["VpcId"] for subnet in subnets]}
    for described in aws.described("vpcs", filters):
        return described

    hint = "Name a subnet of one: `ec2: {subnet: subnet-...}`."
    raise PrerequisiteError(f"region {aws.region} has no default VPC", hint=hint)


def role(aws: Aws, name: str) -> Mapping[str, Any]:
    """Ask AWS for a role; {} if it does not exist."""
    answer = aws.find("iam", "get_role", RoleName=name)
    described: Mapping[str, Any] = answer.get("Role", {})
    return described


def profile(aws: Aws, name: str) -> Mapping[str, Any]:
    """Ask AWS for an instance profile; {} if it does not exist."""
    answer = aws.find("iam", "get_instance_profile", InstanceProfileName=name)
    described: Mapping[str, Any] = answer.get("InstanceProfile", {})
    return described


def _wanted(group: str, sources: list[str]) -> dict[_Rule, Mapping[str, Any]]:
    """Allow SSH from `sources`, and everything between nodes."""
    permissions: dict[_Rule, Mapping[str, Any]] = {}
    for source in sources:
        ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
        permissions[_Rule(source, "tcp", 22, 22)] = {**ssh, "IpRanges": [{"CidrIp": source}]}

    nodes = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    permissions[_Rule(group, "-1", -1, -1)] = nodes
    return permissions


class _Objects:
    """The `done` and `do` functions of the steps above."""

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
        return no("AWS does not have the key pair")

    def make_key(self) -> None:
        file = self.location.key_file
        if keys.public_key(file) is None:
            write_private(file, keys.new())

        # AWS may have a key pair of this name whose private key is lost.
        self.aws.call("ec2", "delete_key_pair", KeyName=self.own_name)
        self.aws.call(
            "ec2",
            "import_key_pair",
            KeyName=self.own_name,
            PublicKeyMaterial=str(keys.public_key(file)).encode(),
            TagSpecifications=self._specifications("key-pair"),
        )

    def has_group(self) -> Answer:
        if security_groups(self.aws, self.location.name):
            return YES
        return no("it does not exist")

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
        if group and rules.keys() == _wanted(group, sources).keys():
            return YES
        if rules:
            return no(f"it lets in {named([str(rule) for rule in rules])}")
        return no("it lets nothing in")

    def set_rules(self, sources: list[str]) -> None:
        group, rules = self._rules()
        wanted = _wanted(group, sources)

        # Missing rules are added before stale rules are revoked, so that a failure in between locks
        # no user out.
        missing = [permission for rule, permission in wanted.items() if rule not in rules]
        if missing:
            self.aws.call(
                "ec2", "authorize_security_group_ingress", GroupId=group, IpPermissions=missing
            )
        stale = [rules[rule] for rule in rules.keys() - wanted]
        if stale:
            self.aws.call(
                "ec2", "revoke_security_group_ingress", GroupId=group, SecurityGroupRuleIds=stale
            )

    def _rules(self) -> tuple[str, dict[_Rule, str]]:
        """Ask AWS for the security group, and for its ingress rules' ids.

        The security group is "" if there is none.
        """
        groups = security_groups(self.aws, self.location.name)
        if not groups:
            return "", {}

        group = str(groups[0]["GroupId"])
        rules: dict[_Rule, str] = {}
        for rule in self.aws.described("security_group_rules", {"group-id": [group]}):
            if rule["IsEgress"]:
                continue
            id = rule["SecurityGroupRuleId"]
            referenced = rule.get("ReferencedGroupInfo", {}).get("GroupId")
            source = rule.get("CidrIpv4") or referenced or id
            rules[_Rule(source, rule["IpProtocol"], rule["FromPort"], rule["ToPort"])] = id
        return group, rules

    def has_role(self) -> Answer:
        name = self.role_name
        roles = profile(self.aws, name).get("Roles")
        if not roles:
            return no("it does not exist")

        answer = self.aws.find("iam", "get_role_policy", RoleName=name, PolicyName=name)
        policy = desired.policy(self.location.name, roles[0]["Arn"])
        if answer.get("PolicyDocument") == json.loads(policy):
            return YES
        return no("its policy differs")

    def make_role(self) -> None:
        """Make the role, its policy and its instance profile.

        An existing policy is replaced; an existing role or profile is kept.
        """
        iam = partial(self.aws.call, "iam")
        name = self.role_name
        tags = naming.pairs(self.tags)
        described = role(self.aws, name)
        if not described:
            made = iam("create_role", RoleName=name, AssumeRolePolicyDocument=_TRUST, Tags=tags)
            described = made["Role"]

        document = desired.policy(self.location.name, described["Arn"])
        iam("put_role_policy", RoleName=name, PolicyName=name, PolicyDocument=document)
        if not profile(self.aws, name):
            iam("create_instance_profile", InstanceProfileName=name, Tags=tags)
        if not profile(self.aws, name).get("Roles"):
            iam("add_role_to_instance_profile", InstanceProfileName=name, RoleName=name)

    def _specifications(self, kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": naming.pairs(self.tags)}]
