"""What is wrong before anything is made on EC2, from facts alone: AWS's answers as it gives them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainyard.backends.ec2.preflight import problems, refuse, remarks
from trainyard.backends.ec2.preflight_facts import Facts, quota_of
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.spec.cluster import ClusterSpec

GIB = 2**30
AMI, ARM, UBUNTU, OWN = (f"ami-0000000000000000{number}" for number in range(4))
SUBNET, OTHER, GROUP = "subnet-00000000", "subnet-11111111", "sg-00000000"


def instance_type(vcpus: int, gpus: int = 0, architecture: str = "x86_64", *, spot: bool = True) -> dict[str, Any]:
    has = {"GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": gpus}]}} if gpus else {}
    return {
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "ProcessorInfo": {"SupportedArchitectures": [architecture]},
        "SupportedUsageClasses": ["on-demand", "spot"] if spot else ["on-demand"],
        **has,
    }


def ami(name: str, architecture: str = "x86_64", size: int = 75, **more: Any) -> dict[str, Any]:
    root = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": size}}
    disk = {"RootDeviceType": "ebs", "RootDeviceName": "/dev/sda1", "BlockDeviceMappings": [root]}
    return {"Name": name, "Architecture": architecture, "State": "available", **disk, **more}


def subnet(name: str, zone: str = "us-west-2a", free: int = 250, *, public: bool = True) -> dict[str, Any]:
    place = {"SubnetId": name, "VpcId": "vpc-1", "AvailabilityZone": zone}
    return {**place, "AvailableIpAddressCount": free, "MapPublicIpOnLaunch": public}


def table(way: str, *subnets: str) -> dict[str, Any]:
    gateway = {"internet": {"GatewayId": "igw-1"}, "nat": {"NatGatewayId": "nat-1"}}.get(way)
    default = [{"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **gateway}] if gateway else []
    local = {"DestinationCidrBlock": "172.31.0.0/16", "State": "active", "GatewayId": "local"}
    belongs = [{"Main": False, "SubnetId": name} for name in subnets] or [{"Main": True}]
    return {"VpcId": "vpc-1", "Associations": belongs, "Routes": [local, *default]}


def lets(*rules: tuple[str, int, int]) -> dict[str, Any]:
    ours = [
        {"IpProtocol": protocol, "FromPort": first, "ToPort": last, "UserIdGroupPairs": [{"GroupId": GROUP}]}
        for protocol, first, last in rules
    ]
    return {"VpcId": "vpc-1", "IpPermissions": ours}


GOOD = Facts(
    "us-west-2",
    regions={name: {"OptInStatus": "opt-in-not-required"} for name in ("us-west-2", "eu-west-1")}
    | {"ap-east-1": {"OptInStatus": "not-opted-in"}},
    zones={f"us-west-2{letter}": {"State": "available"} for letter in "abc"},
    types={
        "m5.large": instance_type(2),
        "g5.xlarge": instance_type(4, 1),
        "m7g.large": instance_type(2, architecture="arm64"),
        "u-6tb1.metal": instance_type(448, spot=False),
    },
    offers=[
        {"InstanceType": name, "Location": f"us-west-2{letter}"}
        for name in ("m5.large", "g5.xlarge", "m7g.large", "u-6tb1.metal")
        for letter in "ab"
    ],
    quotas={"L-DB2E81BA": {"QuotaName": "Running On-Demand G and VT instances", "Value": 16.0}},
    amis={
        AMI: ami("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)"),
        ARM: ami("arm", "arm64"),
        UBUNTU: ami("ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20260101"),
        OWN: ami("team-base"),
    },
    vpcs={"vpc-1": {"VpcId": "vpc-1"}},
    subnets={SUBNET: subnet(SUBNET)},
    routes={"rtb-1": table("internet")},
    security_groups={GROUP: lets(("tcp", 22, 22), ("-1", 0, 0))},
    key_pairs={"lab": {"PublicKey": "ssh-rsa AAAA lab"}},
    public_key="ssh-rsa AAAA",
    profile={"Roles": [{"Arn": "arn:aws:iam::123456789012:role/ray"}]},
)


def spec(section: dict[str, Any] | None = None, gpu: dict[str, Any] | None = None, **more: Any) -> ClusterSpec:
    """Return a cluster of a head, and of GPU nodes if those are described."""
    ec2 = {"ami": AMI, **(section or {})}
    if gpu is not None:
        more["workers"] = [{"name": "gpu", "count": 2, "gpus": 1, **gpu}]
        ec2["groups"] = {"gpu": {"instance_type": "g5.xlarge"}, **ec2.get("groups", {})}
    return ClusterSpec.model_validate({"name": "lab", "backend": "ec2", "ec2": ec2, **more})


def found(spec: ClusterSpec, **changed: Any) -> list[str]:
    return [": ".join(problem) for problem in problems(spec, replace(GOOD, **changed))]


def test_a_cluster_that_can_be_made_has_nothing_wrong() -> None:
    section = {"subnet": SUBNET, "security_group": GROUP, "key_name": "lab", "instance_profile": "ray"}
    assert found(spec(section, {})) == []
    assert found(spec(gpu={})) == []


def test_what_is_not_known_is_not_wrong() -> None:
    section = {"subnet": SUBNET, "security_group": GROUP, "key_name": "lab", "instance_profile": "ray", "spot": True}
    assert list(problems(spec(section, {}), Facts("us-west-2"))) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"programs": ["ssh"]}, "this machine: has no rsync, which `ray up` needs: sudo apt-get install rsync"),
        ({"region": "us-wst-2"}, "region us-wst-2: is no region of AWS; did you mean 'us-west-2'?"),
        (
            {"region": "ap-east-1"},
            "region ap-east-1: is not enabled for this account: aws account enable-region --region-name ap-east-1",
        ),
        (
            {"elsewhere": {"eu-west-1": 3}},
            "cluster lab: exists in eu-west-1 (3 instances): give this one another name, or remove that: invoke "
            "cluster.down --set ec2.region=eu-west-1",
        ),
        (
            {"has_spot_role": False},
            "AWS account: has no role for spot instances yet: aws iam create-service-linked-role --aws-service-name "
            "spot.amazonaws.com",
        ),
        ({"vpcs": {}, "subnets": {}}, "default VPC: has no subnet in us-west-2: name one, `ec2.subnet`"),
        (
            {"subnets": {SUBNET: subnet(SUBNET, public=False)}},
            "default VPC vpc-1: has no subnet that gives nodes public addresses: `use_internal_ips: true` if this "
            "machine reaches the VPC's private addresses, such as by a VPN; else name a public subnet, `ec2.subnet`",
        ),
    ],
)
def test_what_is_wrong_with_the_account_is_said_with_what_helps(changed: dict[str, Any], message: str) -> None:
    assert found(spec(), **changed) == [message]


@pytest.mark.parametrize(
    ("section", "messages"),
    [
        (
            {"zones": ["us-west-2x"]},
            ["zone us-west-2x: is not in us-west-2: that has us-west-2a, us-west-2b, us-west-2c"],
        ),
        ({"instance_type": "p99.mega"}, ["group head: p99.mega is no instance type of us-west-2"]),
        (
            {"instance_type": "u-6tb1.metal", "spot": True},
            ["group head: u-6tb1.metal is not to be had as spot instances: spot: false"],
        ),
        ({"ami": "ami-99999999"}, ["AMI ami-99999999: does not exist in us-west-2, or not for this account"]),
        ({"ami": ARM}, [f"group head: m5.large is x86_64, and AMI {ARM} is arm64"]),
        (
            {"ami": UBUNTU, "instance_type": "g5.xlarge"},
            [
                f"group head: AMI {UBUNTU} (ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20260101) has no "
                "NVIDIA driver: leave `ami` out, name one that has, or install it in ec2.ray.initialization_commands"
            ],
        ),
        ({"disk": "60GiB"}, ["group head: a disk of 60 GiB is too small: the AMI takes 75 GiB: disk: 75GiB"]),
        ({"subnet": OTHER}, [f"subnet {OTHER}: does not exist in us-west-2"]),
        ({"security_group": "sg-99999999"}, ["security group sg-99999999: does not exist in us-west-2"]),
        (
            {"key_name": "team", "key_file": "/keys/team"},
            ["key pair team: does not exist in us-west-2: leave `key_name` out, and one is made"],
        ),
    ],
)
def test_what_is_wrong_with_the_file_is_said_with_what_helps(section: dict[str, Any], messages: list[str]) -> None:
    assert found(spec(section)) == messages


def test_an_instance_has_what_its_node_is_given() -> None:
    assert found(spec(gpu={"gpus": 2, "cpus": 8})) == [
        "group gpu: g5.xlarge has 1 NVIDIA GPU, and `gpus` is 2",
        "group gpu: g5.xlarge has 4 vCPUs, and `cpus` is 8",
    ]


def test_a_type_is_offered_where_the_subnet_is() -> None:
    section = {"subnet": SUBNET, "groups": {"gpu": {"instance_type": "g5.xlarge"}}}
    assert found(spec(section, {}), subnets={SUBNET: subnet(SUBNET, "us-west-2c")}) == [
        "group head: m5.large is not offered in us-west-2c, only in us-west-2a, us-west-2b",
        "group gpu: g5.xlarge is not offered in us-west-2c, only in us-west-2a, us-west-2b",
    ]


def test_a_quota_is_for_all_groups_at_their_largest_and_for_what_others_run() -> None:
    growing = spec(gpu={"count": None, "min": 0, "max": 4})
    assert found(growing) == []
    assert found(growing, used={"L-DB2E81BA": 4}) == [
        'quota "Running On-Demand G and VT instances": is 16 vCPUs in us-west-2; other instances have 4, and the '
        "cluster at its largest has 16 (gpu 16): aws service-quotas request-service-quota-increase --service-code ec2 "
        "--quota-code L-DB2E81BA --desired-value 20 --region us-west-2"
    ]


@pytest.mark.parametrize(
    ("name", "spot", "code"),
    [
        ("m5.large", False, "L-1216C47A"),
        ("im4gn.large", True, "L-34B43A08"),
        ("gr6.4xlarge", True, "L-3819A6DF"),
        ("p5.48xlarge", False, "L-417A185B"),
        ("inf2.xlarge", False, "L-1945791B"),
        ("mac2.metal", False, None),
    ],
)
def test_families_count_against_quotas(name: str, spot: bool, code: str | None) -> None:
    assert quota_of(name, spot=spot) == code


def test_an_image_fits_three_times_beside_what_the_ami_holds() -> None:
    assert found(spec({"disk": "100GiB"}), image=12 * GIB) == [
        "group head: a disk of 100 GiB is too small: the AMI takes 75 GiB, and 3 times the image's 12 GiB must fit "
        "beside it: disk: 111GiB"
    ]


def test_an_amis_driver_may_be_unknown_or_installed() -> None:
    silent = spec({"ami": OWN, "instance_type": "g5.xlarge"})
    assert found(silent) == []
    assert remarks(silent, GOOD) == [f"whether AMI {OWN} has NVIDIA's driver, which its name does not say"]
    installs = {"ami": UBUNTU, "instance_type": "g5.xlarge", "ray": {"initialization_commands": ["sudo ./driver"]}}
    assert (found(spec(installs)), remarks(spec(installs), GOOD)) == ([], [])


INTERNAL = {"subnet": SUBNET, "use_internal_ips": True}


@pytest.mark.parametrize(
    ("section", "public", "way", "message"),
    [
        (
            {"subnet": SUBNET},
            False,
            "nat",
            "gives nodes no public addresses: `use_internal_ips: true` if this machine reaches the VPC's private "
            "addresses, such as by a VPN; else name a public subnet, `ec2.subnet`",
        ),
        (
            {"subnet": SUBNET},
            True,
            "nat",
            "has no route to an internet gateway, and nobody reaches its public addresses: `use_internal_ips: true` if "
            "this machine reaches the VPC's private addresses, such as by a VPN",
        ),
        (
            INTERNAL,
            False,
            "internet",
            "is routed to an internet gateway, and nodes without public addresses get nowhere: name a private one",
        ),
        (
            INTERNAL,
            False,
            "",
            "has no route out of its VPC, and nodes must reach AWS: route it to a NAT gateway, or name another",
        ),
        (INTERNAL, False, "nat", None),
        (INTERNAL, True, "internet", None),
    ],
)
def test_a_subnet_lets_nodes_out_and_us_in(
    section: dict[str, Any], public: bool, way: str, message: str | None
) -> None:
    changed = {"subnets": {SUBNET: subnet(SUBNET, public=public)}, "routes": {"rtb-1": table(way)}}
    assert found(spec(section), **changed) == ([f"subnet {SUBNET}: {message}"] if message else [])


def test_an_endpoint_of_ec2_is_a_way_to_aws() -> None:
    endpoint = {"VpcId": "vpc-1", "ServiceName": "com.amazonaws.us-west-2.ec2"}
    assert found(spec(INTERNAL), routes={"rtb-1": table("")}, endpoints={"vpce-1": endpoint}) == []


def test_chance_does_not_choose_between_public_and_private_subnets() -> None:
    both = {SUBNET: subnet(SUBNET), OTHER: subnet(OTHER, "us-west-2b", public=False)}
    routes = {"rtb-1": table("internet"), "rtb-2": table("nat", OTHER)}
    assert found(spec({"use_internal_ips": True}), subnets=both, routes=routes) == [
        f"default VPC vpc-1: has subnets of different kinds, and chance would choose (private: {OTHER}; public: "
        f"{SUBNET}): name one, `ec2.subnet`"
    ]
    # Without public addresses there is no chance that the private one is chosen.
    assert found(spec(), subnets=both, routes=routes) == []


def test_a_subnet_has_addresses_for_all_nodes() -> None:
    assert found(spec(gpu={}), subnets={SUBNET: subnet(SUBNET, free=2)}) == [
        "default VPC vpc-1: has 2 addresses left, and the cluster 3 nodes at its largest: name another one"
    ]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (
            {**lets(("-1", 0, 0)), "VpcId": "vpc-2"},
            f"is in VPC vpc-2, and subnet {SUBNET} in vpc-1: name two of one VPC",
        ),
        (
            lets(("tcp", 1024, 65535), ("udp", 0, 65535)),
            f"lets nobody in by SSH: aws ec2 authorize-security-group-ingress --group-id {GROUP} --protocol tcp --port "
            "22 --cidr YOUR-ADDRESS/32",
        ),
        (
            lets(("tcp", 22, 22)),
            f"keeps its own nodes from each other: aws ec2 authorize-security-group-ingress --group-id {GROUP} "
            f"--protocol all --source-group {GROUP}",
        ),
    ],
)
def test_a_security_group_is_in_the_vpc_and_lets_in_who_must(group: dict[str, Any], message: str) -> None:
    section = {"subnet": SUBNET, "security_group": GROUP}
    assert found(spec(section), security_groups={GROUP: group})[0] == f"security group {GROUP}: {message}"


@pytest.mark.parametrize(
    ("public_key", "messages"),
    [
        ("", ["key pair lab: its private key is not on this machine, in /keys/lab: write where it is, `key_file`"]),
        ("ssh-rsa BBBB", ["key pair lab: is another key than /keys/lab: instances would not let us in"]),
        (None, []),
    ],
)
def test_the_private_key_is_here_and_is_that_of_the_pair(public_key: str | None, messages: list[str]) -> None:
    assert found(spec({"key_name": "lab", "key_file": "/keys/lab"}), public_key=public_key) == messages


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"profile": {}}, "does not exist: leave `instance_profile` out, and one is made"),
        ({"profile": {"Roles": []}}, "has no role: aws iam add-role-to-instance-profile"),
        (
            {"denied_to_nodes": ["ec2:RunInstances", "ec2:CreateTags"]},
            "its role may not ec2:RunInstances, ec2:CreateTags, and no worker would come: allow it",
        ),
    ],
)
def test_an_instance_profile_can_be_given_and_may_what_the_head_does(changed: dict[str, Any], message: str) -> None:
    assert found(spec({"instance_profile": "ray"}), **changed) == [f"instance profile ray: {message}"]


def test_who_may_not_make_a_role_names_one() -> None:
    denied = ["ec2:RunInstances", "iam:CreateRole", "iam:PassRole"]
    assert found(spec(), denied=denied) == [
        "this user: may not ec2:RunInstances: whoever administers the account can allow it",
        "this user: may not iam:CreateRole, iam:PassRole, by which instances get a role: have it allowed, or name an "
        "instance profile that exists, `ec2.instance_profile`",
    ]
    assert found(spec({"instance_profile": "ray"}), denied=["iam:PassRole"]) == [
        "this user: may not iam:PassRole, by which instances get a role: have it allowed"
    ]


def test_everything_is_refused_at_once_causes_first() -> None:
    refusal = OutsideError("AWS does not allow this user to ec2:DescribeVpcs", hint="Ask.")
    with pytest.raises(PrerequisiteError) as refused:
        refuse(spec({"ami": ARM, "disk": "1GiB"}), replace(GOOD, programs=[], errors=(refusal,)))
    assert refused.value.lines() == [
        "cluster lab cannot be made in us-west-2 as things are",
        "  - this machine: has no rsync, which `ray up` needs: sudo apt-get install rsync",
        "  - this machine: has no ssh, which `ray up` needs: sudo apt-get install openssh-client",
        f"  - group head: m5.large is x86_64, and AMI {ARM} is arm64",
        "  - group head: a disk of 1 GiB is too small: the AMI takes 75 GiB: disk: 75GiB",
        "  - AWS: AWS does not allow this user to ec2:DescribeVpcs: Ask.",
        "  -> Nothing was made. Mend them, and repeat the same command.",
    ]


def test_a_refusal_alone_keeps_its_words() -> None:
    refusal = PrerequisiteError("the AWS session of this user has expired", hint="Log in again.")
    with pytest.raises(PrerequisiteError) as refused:
        refuse(spec(), Facts("us-west-2", errors=(refusal,)))
    assert refused.value is refusal
