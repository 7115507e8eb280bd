"""The account of the bed's cloud: its initial contents, and a list of its objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.bed.instances import GONE

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_iam.client import IAMClient

# Ray's names for its role and profile. `prepare` creates both: after creating either, Ray would
# sleep for 15 s.
ROLE = "ray-autoscaler-v1"
# The region's AMIs: with Ray; with Ray and a running Docker engine; with NVIDIA's driver as well;
# for ARM.
AMI, DOCKER_AMI, GPU_AMI, ARM_AMI = (f"ami-0bed000000000000{number}" for number in range(4))
USER = "ubuntu"
_IMAGES = {
    AMI: ("Ubuntu 22.04", "x86_64"),
    DOCKER_AMI: ("Ubuntu 22.04 with Docker", "x86_64"),
    GPU_AMI: ("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) with Docker", "x86_64"),
    ARM_AMI: ("Ubuntu 22.04 for Graviton", "arm64"),
}
# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
# The values are those of an account in use.
QUOTAS = {
    "L-1216C47A": ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 256.0),
    "L-DB2E81BA": ("Running On-Demand G and VT instances", 64.0),
    "L-417A185B": ("Running On-Demand P instances", 0.0),
    "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 256.0),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", 64.0),
    "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", 0.0),
}
AMIS = [
    {
        "ami_id": ami,
        "name": f"bed-{number}",
        "description": text,
        "architecture": kind,
        "owner_id": "099720109477",
    }
    | {"public": True, "virtualization_type": "hvm", "hypervisor": "xen", "root_device_type": "ebs"}
    for number, (ami, (text, kind)) in enumerate(_IMAGES.items())
]


def prepare(ec2: EC2Client, iam: IAMClient) -> None:
    """Create what an account in use has: Ray's role and profile, and an internet gateway.

    The gateway connects the default VPC to the internet.
    """
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "ec2.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }

    policy = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=policy)

    for name in ("AmazonEC2FullAccess", "AmazonS3FullAccess"):
        iam.attach_role_policy(RoleName=ROLE, PolicyArn=f"arn:aws:iam::aws:policy/{name}")

    iam.create_instance_profile(InstanceProfileName=ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][
        0
    ]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)


def objects(ec2: EC2Client, iam: IAMClient) -> set[str]:
    """Return all that costs money or grants rights; network interfaces are left out.

    Moto leaves those of terminated instances `in-use`.
    """
    reservations = [
        found
        for page in ec2.get_paginator("describe_instances").paginate()
        for found in page["Reservations"]
    ]

    running = [
        one
        for found in reservations
        for one in found["Instances"]
        if one["State"]["Name"] not in GONE
    ]

    spot = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    listed: dict[str, list[Any]] = {
        "instance": [(found["InstanceId"], found["State"]["Name"]) for found in running],
        "volume": [
            (found["VolumeId"], found["State"]) for found in ec2.describe_volumes()["Volumes"]
        ],
        "security-group": [
            (g["GroupId"], g["GroupName"]) for g in ec2.describe_security_groups()["SecurityGroups"]
        ],
        "key-pair": [
            (found["KeyPairId"], found["KeyName"]) for found in ec2.describe_key_pairs()["KeyPairs"]
        ],
        "launch-template": [
            (found["LaunchTemplateId"], found["LaunchTemplateName"])
            for found in ec2.describe_launch_templates()["LaunchTemplates"]
        ],
        "address": [
            (found["AllocationId"], found["PublicIp"])
            for found in ec2.describe_addresses()["Addresses"]
        ],
        "spot-request": [
            (found["SpotInstanceRequestId"], found["State"])
            for found in spot
            if found["State"] in ("open", "active")
        ],
        "role": [(found["RoleId"], found["RoleName"]) for found in iam.list_roles()["Roles"]],
        "instance-profile": [
            (found["InstanceProfileId"], found["InstanceProfileName"])
            for found in iam.list_instance_profiles()["InstanceProfiles"]
        ],
    }

    return {
        f"{kind} {identity} ({name})" for kind, found in listed.items() for identity, name in found
    }
