"""The checks before anything is made on EC2, from facts alone: AWS's answers as it gives them."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.backends.ec2.desired import groups
from trainyard.backends.ec2.preflight import problems, refuse, remarks
from trainyard.backends.ec2.preflight_questions import Facts, quota
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.spec.cluster import ClusterSpec

GIB = 2**30
AMI, ARM, UBUNTU, OWN = (f"ami-0000000000000000{number}" for number in range(4))
SUBNET, OTHER, GROUP = "subnet-00000000", "subnet-11111111", "sg-00000000"


def instance_type(vcpus: int, gpus: int = 0, architecture: str = "x86_64") -> dict[str, Any]:
    has = {"GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": gpus}]}} if gpus else {}
    return {
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": 4096 * vcpus},
        "ProcessorInfo": {"SupportedArchitectures": [architecture]},
        **has,
    }


def ami(name: str, architecture: str = "x86_64") -> dict[str, Any]:
    root = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}
    return {
        "Name": name,
        "Architecture": architecture,
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [root],
    }


def subnet(
    name: str, zone: str = "us-west-2a", free: int = 250, *, public: bool = True
) -> dict[str, Any]:
    place = {"SubnetId": name, "VpcId": "vpc-1", "AvailabilityZone": zone}
    return {**place, "AvailableIpAddressCount": free, "MapPublicIpOnLaunch": public}


def table(way: str, *subnets: str) -> dict[str, Any]:
    gateway = {"internet": {"GatewayId": "igw-1"}, "nat": {"NatGatewayId": "nat-1"}}.get(way)
    default = (
        [{"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **gateway}] if gateway else []
    )
    local = {"DestinationCidrBlock": "172.31.0.0/16", "State": "active", "GatewayId": "local"}
    belongs = [{"Main": False, "SubnetId": name} for name in subnets] or [{"Main": True}]
    peering = {
        "DestinationCidrBlock": "10.0.0.0/8",
        "State": "active",
        "VpcPeeringConnectionId": "pcx-1",
    }
    return {"VpcId": "vpc-1", "Associations": belongs, "Routes": [local, peering, *default]}


GOOD: Facts = {
    "region": "us-west-2",
    "programs": ["rsync", "ssh"],
    "image": 0,
    "regions": ["us-west-2", "eu-west-1"],
    "elsewhere": [],
    "zones": [f"us-west-2{letter}" for letter in "abc"],
    "types": {
        "m5.large": instance_type(2),
        "g5.xlarge": instance_type(4, 1),
        "m7g.large": instance_type(2, architecture="arm64"),
    },
    "offers": [
        {"InstanceType": name, "Location": f"us-west-2{letter}"}
        for name in ("m5.large", "g5.xlarge", "m7g.large")
        for letter in "ab"
    ],
    "quotas": [
        {
            "QuotaCode": "L-DB2E81BA",
            "QuotaName": "Running On-Demand G and VT instances",
            "Value": 16.0,
        },
    ],
    "amis": {
        AMI: ami("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)"),
        ARM: ami("arm", "arm64"),
        UBUNTU: ami("ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20260101"),
        OWN: ami("al2023-ami-ecs-gpu-hvm-2023.0.20260101"),
    },
    "subnets": [subnet(SUBNET)],
    "routes": [table("internet")],
    "has_key": True,
    "may_pass_role": True,
    "has_spot_role": True,
}
# The answers about what the file may name.
NAMED = {
    "security_groups": [{"GroupId": GROUP, "VpcId": "vpc-1"}],
    "key_pairs": ["lab"],
    "profile": {"Roles": [{"Arn": "arn:aws:iam::123456789012:role/ray"}]},
}


def spec(
    section: dict[str, Any] | None = None, gpu: dict[str, Any] | None = None, **more: Any
) -> ClusterSpec:
    """Return a cluster of a head, and of GPU nodes if those are described."""
    ec2 = {"ami": AMI, **(section or {})}
    if gpu is not None:
        more["workers"] = [{"name": "gpu", "count": 2, "gpus": 1, **gpu}]
        ec2["groups"] = {"gpu": {"instance_type": "g5.xlarge"}, **ec2.get("groups", {})}
    return ClusterSpec.model_validate({"name": "lab", "backend": "ec2", "ec2": ec2, **more})


def found(spec: ClusterSpec, **changed: Any) -> list[str]:
    return [str(problem) for problem in problems(spec, {**GOOD, **changed})]


def test_a_cluster_that_can_be_made_has_nothing_wrong() -> None:
    section = {
        "subnet": SUBNET,
        "security_group": GROUP,
        "key_name": "lab",
        "instance_profile": "ray",
    }
    assert found(spec(section, {}), **NAMED) == []
    assert found(spec(gpu={})) == []


@pytest.mark.parametrize(
    ("type_", "head", "found"),
    [
        (
            "g5.xlarge",
            {},
            {
                "head": "group head: g5.xlarge has 1 NVIDIA GPU, and Ray gets none: write "
                "`gpus: 1`, or `gpus: 0` if that is meant"
            },
        ),
        ("g5.xlarge", {"gpus": 0}, {}),
        ("g5.xlarge", {"gpus": 1}, {}),
        ("m5.large", {}, {}),
        ("p99.mega", {}, {}),
    ],
)
def test_gpus_that_the_file_does_not_mention_are_a_remark(
    type_: str, head: dict[str, Any], found: dict[str, str]
) -> None:
    assert remarks(spec({"instance_type": type_}, head=head), GOOD) == found


def test_an_unknown_fact_is_no_problem() -> None:
    section = {
        "subnet": SUBNET,
        "security_group": GROUP,
        "key_name": "lab",
        "instance_profile": "ray",
        "spot": True,
    }
    assert list(problems(spec(section, {}), {"region": "us-west-2"})) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"programs": ["ssh"]},
            "this machine: has no rsync, which `ray up` needs: sudo apt-get install rsync",
        ),
        (
            {"region": "us-wst-2"},
            "region us-wst-2: is not enabled for this account; did you mean 'us-west-2'?",
        ),
        (
            {"region": "ap-east-1"},
            "region ap-east-1: is not enabled for this account: aws account "
            "enable-region --region-name ap-east-1",
        ),
        (
            {"elsewhere": ["eu-west-1"]},
            "cluster lab: exists in eu-west-1: give this cluster another name, or remove that one: "
            "trainyard "
            "cluster.down --set ec2.region=eu-west-1",
        ),
        (
            {"has_spot_role": False},
            "AWS account: has no role for spot instances yet: aws iam create-service-linked-role "
            "--aws-service-name "
            "spot.amazonaws.com",
        ),
        (
            {"may_pass_role": False},
            (
                "this user: may not give instances their role, iam:PassRole: an administrator of IAM can "
                "allow it"
            ),
        ),
        ({"subnets": []}, "default VPC: has no subnet in us-west-2: name one, `ec2.subnet`"),
        (
            {"subnets": [subnet(SUBNET, public=False)]},
            "default VPC: gives nodes no public addresses: `use_internal_ips: true` if this "
            "machine reaches the VPC's private addresses, such as by a VPN; else name a public "
            "subnet, `ec2.subnet`",
        ),
    ],
)
def test_a_problem_of_the_account_is_reported_with_its_remedy(
    changed: dict[str, Any], message: str
) -> None:
    assert found(spec(), **changed) == [message]


@pytest.mark.parametrize(
    ("section", "messages"),
    [
        (
            {"zones": ["us-west-2x"]},
            ["ec2.zones: us-west-2 has no us-west-2x, only us-west-2a, us-west-2b, us-west-2c"],
        ),
        ({"instance_type": "p99.mega"}, ["group head: p99.mega is no instance type of us-west-2"]),
        (
            {"ami": "ami-99999999"},
            ["AMI ami-99999999: does not exist in us-west-2, or not for this account"],
        ),
        ({"ami": ARM}, [f"group head: m5.large is x86_64, and AMI {ARM} is arm64"]),
        (
            {"ami": UBUNTU, "instance_type": "g5.xlarge"},
            [
                f"group head: AMI {UBUNTU} "
                "(ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20260101) has no "
                "NVIDIA driver: leave `ami` out, name one that has it, or install it in "
                "ec2.ray.initialization_commands"
            ],
        ),
    ],
)
def test_a_wrong_value_in_the_file_is_reported(
    section: dict[str, Any], messages: list[str]
) -> None:
    assert found(spec(section)) == messages


def test_missing_objects_named_in_the_file_are_reported() -> None:
    section = {
        "subnet": SUBNET,
        "security_group": GROUP,
        "key_name": "lab",
        "instance_profile": "ray",
    }

    nothing = {
        "subnets": [],
        "security_groups": [],
        "key_pairs": [],
        "has_key": False,
        "profile": {},
    }

    assert found(spec(section), **nothing) == [
        f"subnet {SUBNET}: does not exist in us-west-2",
        f"security group {GROUP}: does not exist in us-west-2",
        "key pair lab: does not exist in us-west-2: leave `key_name` out, and one is made",
        (
            "key pair lab: its private key is not on this machine, in ~/.ssh/lab.pem: set `key_file` "
            "to its path"
        ),
        "instance profile ray: does not exist: leave `instance_profile` out, and one is made",
    ]


def test_an_instance_has_what_its_node_is_given() -> None:
    assert found(spec(gpu={"gpus": 2})) == [
        "group gpu: g5.xlarge has 1 NVIDIA GPU, and `gpus` is 2"
    ]
    assert found(spec(head={"cpus": 2, "memory": 8 * GIB})) == []
    assert found(spec(head={"cpus": 8, "memory": "32GiB"})) == [
        "group head: m5.large has 2 vCPUs, and `cpus` is 8",
        "group head: m5.large has 8GiB of memory, and `memory` is 32GiB",
    ]


def test_a_type_is_offered_where_the_subnet_is() -> None:
    assert found(spec({"subnet": SUBNET}), subnets=[subnet(SUBNET, "us-west-2c")]) == [
        "group head: m5.large is not offered in us-west-2c, only in us-west-2a, us-west-2b"
    ]


def test_a_quota_is_for_all_groups_at_their_largest() -> None:
    assert found(spec(gpu={"count": None, "min": 0, "max": 4})) == []
    assert found(spec(gpu={"count": None, "min": 0, "max": 5})) == [
        'quota "Running On-Demand G and VT instances": is 16 vCPUs in us-west-2, and the cluster '
        "at its largest has 20 "
        "(gpu 20): aws service-quotas request-service-quota-increase --service-code ec2 "
        "--quota-code L-DB2E81BA "
        "--desired-value 20 --region us-west-2"
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
    head = groups(spec({"instance_type": name, "spot": spot}))["head"]
    assert quota(head) == code


def test_an_image_fits_three_times_beside_what_the_ami_holds() -> None:
    assert found(spec({"disk": "100GiB"}), image=12 * GIB) == [
        "group head: a disk of 100 GiB is too small: the AMI takes 75 GiB, and 3 times the image "
        "is 36.0 GiB: "
        "disk: 111GiB"
    ]


def test_an_amis_driver_may_be_there_or_installed() -> None:
    installs = {
        "ami": UBUNTU,
        "instance_type": "g5.xlarge",
        "ray": {"initialization_commands": ["sudo ./driver"]},
    }
    assert found(spec(installs)) == found(spec({"ami": OWN, "instance_type": "g5.xlarge"})) == []


INTERNAL = {"subnet": SUBNET, "use_internal_ips": True}


@pytest.mark.parametrize(
    ("section", "public", "way", "message"),
    [
        (
            {"subnet": SUBNET},
            False,
            "nat",
            "gives nodes no public addresses: `use_internal_ips: true` if this machine reaches "
            "the VPC's private "
            "addresses, such as by a VPN; else name a public subnet, `ec2.subnet`",
        ),
        (
            {"subnet": SUBNET},
            True,
            "nat",
            "has no route to an internet gateway, and its public addresses are not reached: "
            "`use_internal_ips: true` if "
            "this machine reaches the VPC's private addresses, such as by a VPN",
        ),
        # Whatever the subnet would give them.
        *(
            (
                INTERNAL,
                public,
                "internet",
                (
                    "is routed to an internet gateway, and nodes without public addresses have no "
                    "way out: name a private one"
                ),
            )
            for public in (False, True)
        ),
        (
            INTERNAL,
            False,
            "",
            (
                "has no route out of its VPC, and nodes must reach AWS: route it to a NAT gateway, "
                "or name another"
            ),
        ),
        (INTERNAL, False, "nat", None),
        ({"use_internal_ips": True}, True, "internet", None),
    ],
)
def test_a_subnet_lets_nodes_out_and_us_in(
    section: dict[str, Any], public: bool, way: str, message: str | None
) -> None:
    changed = {"subnets": [subnet(SUBNET, public=public)], "routes": [table(way)]}
    assert found(spec(section), **changed) == ([f"subnet {SUBNET}: {message}"] if message else [])


def test_chance_does_not_choose_between_public_and_private_subnets() -> None:
    both = [subnet(SUBNET), subnet(OTHER, "us-west-2b", public=False)]
    routes = [table("internet"), table("nat", OTHER)]
    assert found(spec({"use_internal_ips": True}), subnets=both, routes=routes) == [
        "default VPC: has subnets of different kinds, and AWS would choose by chance (private: "
        f"{OTHER}; public: "
        f"{SUBNET}): name one, `ec2.subnet`"
    ]
    # Without public addresses there is no chance that the private one is chosen.
    assert found(spec(), subnets=both, routes=routes) == []


def test_a_subnet_has_addresses_for_all_nodes() -> None:
    assert found(spec(gpu={}), subnets=[subnet(SUBNET, free=2)]) == [
        (
            "default VPC: has 2 addresses left, and the cluster has 3 nodes at its largest: name another "
            "one"
        )
    ]


def test_a_security_group_is_in_the_vpc_of_the_subnet() -> None:
    section, groups = (
        {"subnet": SUBNET, "security_group": GROUP},
        [{"GroupId": GROUP, "VpcId": "vpc-2"}],
    )
    assert found(spec(section), security_groups=groups) == [
        f"security group {GROUP}: is in VPC vpc-2, and nodes would be in vpc-1: name a subnet "
        "and a "
        "security group of one VPC"
    ]


def test_everything_is_refused_at_once_causes_first() -> None:
    refused = {"offers": OutsideError("AWS refuses", where="its words")}
    with pytest.raises(PrerequisiteError) as caught:
        refuse(spec({"ami": ARM, "disk": "1GiB"}), {**GOOD, "programs": []}, refused)

    assert caught.value.lines() == [
        "cluster lab cannot be made in us-west-2 yet",
        "  - this machine: has no rsync, which `ray up` needs: sudo apt-get install rsync",
        "  - this machine: has no ssh, which `ray up` needs: sudo apt-get install openssh-client",
        f"  - group head: m5.large is x86_64, and AMI {ARM} is arm64",
        "  - group head: a disk of 1 GiB is too small: the AMI takes 75 GiB, and 3 times the "
        "image is 0.0 GiB: "
        "disk: 75GiB",
        "  - offers: AWS refuses: its words",
        "  -> Nothing was made. Solve these problems, and repeat the same command.",
    ]
