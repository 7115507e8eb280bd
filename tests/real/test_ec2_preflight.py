"""Checks before anything is made on EC2: a row for each problem, and the error that a user reads.

Next to each row is the message of `ray up` of Ray 2.60 for the same problem. "Seen" was seen in
this stand-in's account; the others are from AWS's documentation, or seed 003.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.bed import ec2
from tests.bed.aws_account import AMI, ROLE
from tests.bed.aws_api import Fault
from tests.bed.ec2 import Cloud
from tests.real.yard import Yard

pytestmark = pytest.mark.ec2
LAST = "  -> Nothing was made. Solve these problems, and repeat the same command."
VPN = (
    "`use_internal_ips: true` if this machine reaches the VPC's private addresses, such as by a VPN"
)
OCI = "application/vnd.oci.image.manifest.v1+json"
SSO = """
[profile sso]
region = us-west-2
sso_session = company
sso_account_id = 123456789012
sso_role_name = dev
[sso-session company]
sso_region = us-west-2
sso_start_url = https://company.example/start
"""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Give an account without any instances."""
    with ec2.account(tmp_path_factory.mktemp("ec2")) as made:
        yield made


@pytest.fixture
def lab(account: Cloud, tmp_path: Path) -> Iterator[Yard]:
    yield Yard(tmp_path, "lab", account.environ())
    account.heal()


def refused(lab: Yard, section: str = "{}", *, workers: str = "[]") -> list[str]:
    """Return the lines of the error that `cluster.plan` prints."""
    text = f"name: lab\nbackend: ec2\nworkers: {workers}\nec2: {section}\n"
    lab.write_cluster(text.replace("{", "{{").replace("}", "}}"))
    done = lab.run("cluster.plan", expect=3)
    lines = done.stderr.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("error: ")) :]


def wrong(lab: Yard, section: str, *, workers: str = "[]") -> list[str]:
    """Return the problems that `cluster.plan` lists."""
    first, *problems, last = refused(lab, section, workers=workers)
    assert re.fullmatch(r"error: cluster lab cannot be made in [a-z0-9-]+ yet", first)
    assert last == LAST
    return [problem.removeprefix("  - ") for problem in problems]


# Seed 003, 2. Seen: 142 to 176 lines, which begin with "Failed to autodetect node resources." and
# the traceback of "botocore.exceptions.NoCredentialsError: Unable to locate credentials", and end
# with "'resources' is a required property".
@pytest.mark.parametrize(
    ("environ", "section", "lines"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "{}",
            [
                "error: there are no AWS credentials for this user",
                "  at NoCredentialsError : Unable to locate credentials",
                "  -> Log in as for the AWS command line: aws configure, aws sso login, "
                "AWS_PROFILE. Try: aws sts get-caller-identity",
            ],
        ),
        (
            {},
            "{profile: team}",
            [
                "error: there is no AWS profile team here",
                "  at ProfileNotFound : The config profile (team) could not be found",
                "  -> List the profiles: aws configure list-profiles. This name is `ec2.profile` "
                "of the cluster file, or AWS_PROFILE.",
            ],
        ),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "{profile: sso}",
            [
                "error: the AWS login (SSO) of profile sso has expired",
                "  at SSOTokenLoadError : Error loading SSO Token: Token for company does not exist",
                "  -> Log in again: aws sso login --profile sso",
            ],
        ),
    ],
    ids=["none", "no such profile", "sso"],
)
def test_credentials_are_there(
    lab: Yard, account: Cloud, environ: dict[str, str], section: str, lines: list[str]
) -> None:
    config = account.home / ".aws" / "config"
    config.parent.mkdir(exist_ok=True)
    config.write_text(SSO)
    assert refused(Yard(lab.home, "lab", {**lab.environ, **environ}), section) == lines


def test_credentials_have_not_expired(lab: Yard, account: Cloud) -> None:
    # Seen: 142 lines as above, with "An error occurred (ExpiredToken) when calling the
    # DescribeInstanceTypes ...".
    text = "The security token included in the request is expired"
    account.fail(Fault("ec2:DescribeInstances", "ExpiredToken", text, status=403))
    assert refused(lab) == [
        "error: the AWS session of this user has expired",
        f"  at ExpiredToken: {text}",
        "  -> Get a new session, such as by: aws sso login",
    ]


@pytest.mark.parametrize(
    ("section", "problems"),
    [
        (
            "{region: us-wst-2}",
            ["region us-wst-2: is not enabled for this account; did you mean 'us-west-2'?"],
        ),
        # Seen: "No usable subnets matching availability zone ['us-west-2x'] found for node type
        # head.", 11 lines.
        (
            f"{{ami: {AMI}, zones: [us-west-2x]}}",
            [
                (
                    "ec2.zones: us-west-2 has no us-west-2x, only us-west-2a, us-west-2b, "
                    "us-west-2c, us-west-2d"
                )
            ],
        ),
        # Seen, each alone, in this order: 56 lines "AssertionError" for either of the first two;
        # 130 lines as above, "ValueError: Instance type p99.mega is not available in AWS region:
        # us-west-2."; 83 lines, after five attempts, "Node Launch Exception
        # (InvalidAMIID.NotFound)"; 52 lines, "FileNotFoundError: [Errno 2] No such file or
        # directory: '/nowhere/team.pem'"; 82 lines, "Node Launch Exception (NoSuchEntity)".
        (
            "{ami: ami-0123456789abcdef0, instance_type: p99.mega, subnet: subnet-01234567, "
            "security_group: sg-01234567, key_name: team, key_file: /nowhere/team.pem, "
            "instance_profile: nobody}",
            [
                "subnet subnet-01234567: does not exist in us-west-2",
                "security group sg-01234567: does not exist in us-west-2",
                "group head: p99.mega is no instance type of us-west-2",
                "AMI ami-0123456789abcdef0: does not exist in us-west-2, or not for this account",
                "key pair team: does not exist in us-west-2: leave `key_name` out, and one is made",
                "key pair team: its private key is not on this machine, in /nowhere/team.pem: "
                "set `key_file` to its path",
                (
                    "instance profile nobody: does not exist: leave `instance_profile` out, and one "
                    "is made"
                ),
            ],
        ),
    ],
)
def test_missing_resources_that_the_cluster_file_names_are_reported(
    lab: Yard, section: str, problems: list[str]
) -> None:
    assert wrong(lab, section) == problems


class LargeImage(BaseHTTPRequestHandler):
    """A registry with one image, whose size is that of a real one with CUDA."""

    def do_GET(self) -> None:
        layer = {
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": f"sha256:{'1' * 64}",
        }
        manifest = {"schemaVersion": 2, "mediaType": OCI, "config": {**layer, "size": 9}}
        content = json.dumps({**manifest, "layers": [{**layer, "size": 10 * 2**30}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", OCI)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_HEAD = do_GET


def test_a_disk_holds_the_image_three_times_beside_the_ami(lab: Yard) -> None:
    # Seed 003, 3: "no space left on device" as the image is unpacked, "SSH command failed.", after
    # 15 minutes.
    with ThreadingHTTPServer(("127.0.0.1", 0), LargeImage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        section = (
            f"{{ami: {AMI}, disk: 40GiB}}\nimage: {address}/isaac:1\nregistry: {{address: "
            f"'{address}', insecure: true}}"
        )
        problems = wrong(lab, section)
        server.shutdown()

    assert problems == [
        "group head: a disk of 40 GiB is too small: the AMI takes 15 GiB, and 3 times the image "
        "is 30.0 GiB: "
        "disk: 45GiB"
    ]


def test_limits_of_zone_quota_and_role_are_reported_for_the_groups(
    lab: Yard, account: Cloud
) -> None:
    # ray up exits 0, and the workers never come; VcpuLimitExceeded, Unsupported or
    # AuthFailure.ServiceLinkedRoleCreationNotPermitted is in the head's monitor.out.
    account.quota("L-3819A6DF", 8)
    account.fail(
        Fault(
            "iam:PassRole",
            "UnauthorizedOperation",
            "You are not authorized to perform this operation.",
        )
    )

    named = f"ami: {AMI}, instance_profile: {ROLE}, zones: [us-west-2d]"
    section = f"{{{named}, groups: {{gpu: {{instance_type: g4dn.xlarge, spot: true}}}}}}"
    assert wrong(lab, section, workers="[{name: gpu, max: 4, gpus: 2}]") == [
        (
            "group gpu: g4dn.xlarge is not offered in us-west-2d, only in us-west-2a, us-west-2b, "
            "us-west-2c"
        ),
        'quota "All G and VT Spot Instance Requests": is 8 vCPUs in us-west-2, and the cluster '
        "at its largest has 16 "
        "(gpu 16): aws service-quotas request-service-quota-increase --service-code ec2 "
        "--quota-code L-3819A6DF --desired-value 16 --region us-west-2",
        (
            "this user: may not give instances their role, iam:PassRole: an administrator of IAM can "
            "allow it"
        ),
        "AWS account: has no role for spot instances yet: aws iam create-service-linked-role "
        "--aws-service-name "
        "spot.amazonaws.com",
    ]


@pytest.fixture
def subnets(account: Cloud) -> Iterator[list[str]]:
    """Give the default VPC's subnets, sorted by zone; then make all of them public again."""
    found = [name for _, name in sorted(account.subnets().items())]
    yield found
    for name in found:
        account.ec2.modify_subnet_attribute(SubnetId=name, MapPublicIpOnLaunch={"Value": True})


def test_nodes_get_addresses_by_which_they_are_reached(
    lab: Yard, account: Cloud, subnets: list[str]
) -> None:
    # Seed 003, 1. Seen: "No usable subnets found for node type head, try manually creating an
    # instance in your specified region to populate the list of subnets and trying this again."
    for name in subnets:
        account.ec2.modify_subnet_attribute(SubnetId=name, MapPublicIpOnLaunch={"Value": False})
    assert wrong(lab, f"{{ami: {AMI}}}") == [
        (
            f"default VPC: gives nodes no public addresses: {VPN}; else name a public subnet, "
            "`ec2.subnet`"
        )
    ]
    assert wrong(lab, f"{{ami: {AMI}, subnet: {subnets[0]}, use_internal_ips: true}}") == [
        f"subnet {subnets[0]}: is routed to an internet gateway, and nodes without public "
        "addresses have no way out: name "
        "a private one"
    ]


def test_chance_does_not_choose_between_public_and_private_subnets(
    lab: Yard, account: Cloud, subnets: list[str]
) -> None:
    # Seed 003, 4: Ray puts each node into any of them: in some SSH times out, in others it does
    # not.
    (vpc,) = account.ec2.describe_vpcs()["Vpcs"]
    private = account.ec2.create_route_table(VpcId=vpc["VpcId"])["RouteTable"]["RouteTableId"]
    address = account.ec2.allocate_address(Domain="vpc")["AllocationId"]
    gateway = account.ec2.create_nat_gateway(SubnetId=subnets[0], AllocationId=address)[
        "NatGateway"
    ]["NatGatewayId"]
    account.ec2.create_route(
        RouteTableId=private, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway
    )
    joined = account.ec2.associate_route_table(RouteTableId=private, SubnetId=subnets[3])[
        "AssociationId"
    ]

    try:
        (problem,) = wrong(lab, f"{{ami: {AMI}, use_internal_ips: true}}")
        public = sorted(subnets[:3])
    finally:
        account.ec2.disassociate_route_table(AssociationId=joined)
        account.ec2.delete_route_table(RouteTableId=private)
        account.ec2.delete_nat_gateway(NatGatewayId=gateway)

    assert problem == (
        "default VPC: has subnets of different kinds, and AWS would choose by chance (private: "
        f"{subnets[3]}; "
        f"public: {', '.join(public)}): name one, `ec2.subnet`"
    )


def test_a_plan_lists_checks_that_aws_forbids_as_not_checked(lab: Yard, account: Cloud) -> None:
    for action in ("servicequotas:*", "iam:Simulate*", "ec2:DescribeRegions"):
        account.fail(Fault(action, "AccessDenied", "no", status=403))

    lab.write_cluster(
        f"name: lab\nbackend: ec2\nec2: {{{{ami: {AMI}, ssh_from: [192.0.2.1/32]}}}}\n"
    )
    steps: list[dict[str, Any]] = lab.json("cluster.plan")["steps"]

    assert [step["title"] for step in steps if step["title"].startswith("Not checked")] == [
        "Not checked: whether the region is enabled, and whether another has a cluster of that "
        "name (AWS does not allow this user to ec2:DescribeRegions)",
        (
            "Not checked: whether the vCPU quotas suffice (AWS does not allow this user to "
            "service-quotas:GetServiceQuota)"
        ),
        "Not checked: whether this user may give instances a role (AWS does not allow this user to "
        "iam:SimulatePrincipalPolicy)",
    ]


def test_a_cluster_of_that_name_in_another_region_is_not_forgotten(
    lab: Yard, account: Cloud
) -> None:
    there = account.client("ec2", "eu-west-1")
    image = there.register_image(Name="plain", RootDeviceName="/dev/sda1")["ImageId"]
    tags = [{"Key": key, "Value": "lab"} for key in ("ray-cluster-name", "trainyard-cluster")]
    specifications = [{"ResourceType": "instance", "Tags": tags}]
    launch = {"ImageId": image, "MinCount": 2, "MaxCount": 2, "TagSpecifications": specifications}
    launched = there.run_instances(InstanceType="m5.large", **launch)["Instances"]
    problems = wrong(lab, f"{{ami: {AMI}}}")
    (first, *_) = [
        each for each in lab.json("cluster.list", "--region", "all")["clusters"] if not each["file"]
    ]
    there.terminate_instances(InstanceIds=[each["InstanceId"] for each in launched])
    assert problems == [
        "cluster lab: exists in eu-west-1: give this cluster another name, or remove that one: "
        "trainyard cluster.down --set ec2.region=eu-west-1"
    ]
    assert (first["name"], first["backend"]) == ("lab", "ec2")
    assert re.fullmatch(r"eu-west-1: 2 instances, .* s, 0\.19 USD an hour", first["place"])
    removal = "cluster.down --set name=lab --backend ec2 --set ec2.region=eu-west-1` removes it"
    assert first["problem"].endswith(removal)
