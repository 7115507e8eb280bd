"""Why instances do not become nodes, as the output of Ray and EC2 shows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError, RequestError

# The time and source location before each line of `ray up`.
_BEGINNING = re.compile(r"^\d{4}-\d\d-\d\d [\d:,]+\s+\w+ \S+:\d+ (?:-- )?")
_NOISE = re.compile(
    r"^(?:!!!|(?:Shared c|C)onnection to|Warning: Perm|See above|Full "
    r"|Creating AWS|NodeUpdater:|AWSNodeP|\s*$)"
)
TAIL_LINES = 12
_SET_UP = (
    "Correct what fails: a command of `ec2: {ray: {setup_commands: [...]}}`, the image or the "
    "AMI. Then repeat the same command: it continues from here."
)

# {name} is the node. The error prints the matching line below the message.
RULES = (
    Rule(
        r"InsufficientInstanceCapacity|InsufficientHostCapacity|InsufficientReservedInstanceCapacity",
        "AWS has no {type} left in the zones that were tried",
        "Try other zones (`ec2: {zones: [...]}`) or another instance_type, or repeat the command "
        "later. What was made stays.",
    ),
    Rule(
        r"MaxSpotInstanceCountExceeded|VcpuLimitExceeded|InstanceLimitExceeded",
        "the account's quota does not allow so many instances",
        "Ask AWS for a higher quota (Service Quotas, `Running On-Demand Standard instances` or the "
        "type's quota), or use fewer instances.",
        error=PrerequisiteError,
    ),
    Rule(
        r"InvalidInstanceType\.NotFound|Instance type (?P<kind>\S+) is not available"
        r"|Unsupported.*instance type",
        "there is no such instance type in the region, or in this zone: {type}",
        "Correct `ec2: {instance_type: ...}`. The types: aws ec2 describe-instance-type-offerings",
        error=RequestError,
    ),
    Rule(
        "Invalid IAM Instance Profile",
        "EC2 does not know the instance profile (yet): a new one takes some seconds",
        "Repeat the same command in a minute: it continues.",
    ),
    Rule(
        "InvalidAMIID",
        "the AMI does not exist in the region",
        "An AMI has another id in each region. Correct `ec2: {ami: ...}`.",
        error=RequestError,
    ),
    Rule(
        r"UnauthorizedOperation|AccessDenied|is not authorized to perform",
        "AWS does not allow what is needed to launch instances",
        "The permissions: ec2:RunInstances, ec2:CreateTags, and iam:PassRole on the role of the "
        "instance profile. For workers, the head's role needs them.",
        error=PrerequisiteError,
    ),
    Rule(
        r"Unable to locate credentials|NoCredentialsError",
        "there are no AWS credentials on {name}",
        "Does the node's instance profile have a role (`ec2: {instance_profile: ...}`)?",
        error=PrerequisiteError,
    ),
    Rule(
        r"no space left on device",
        "the disk of {name} is full",
        "Give it a larger disk (`ec2: {disk: 300GiB}`), at least three times the image's size, and "
        "replace the cluster: trainyard cluster.up --recreate",
        error=PrerequisiteError,
    ),
    Rule(
        r"Permission denied \((?P<ways>[^)]*)\)",
        "{name} rejects the login as {user}",
        "Is `ec2: {user: ...}` the AMI's user (ubuntu, ec2-user, admin), and is the key pair's "
        "private key on this machine?",
        error=PrerequisiteError,
    ),
    Rule(
        r"node detected as terminated",
        "the instance of {name} was terminated while it was set up",
        "If no user did that, AWS has reclaimed a spot instance, or a disk quota is full. Repeat: "
        "trainyard cluster.up",
    ),
    Rule(
        r"Failed to connect to GCS at address (?P<head>[\d.]+)",
        "{name} does not reach the head, {head}",
        "Do the security group and the subnets let nodes reach each other on every port?",
    ),
    Rule(
        r"wait_ready timeout exceeded|Connection refused|Connection timed out|No route to host",
        "{name} cannot be reached by SSH",
        "Does this machine reach the subnet, does the security group let port 22 in from this "
        "machine's address, and does the AMI run sshd? "
        "The instance's output as it booted: aws ec2 get-console-output",
    ),
    Rule(
        r"(?:no basic auth credentials|pull access denied|denied: |unauthorized|manifest unknown)",
        "the image cannot be pulled on {name}",
        "Registries in ECR need `registry: {login: ecr}`; others must let the instances pull "
        "without a login.",
    ),
    Rule(
        r"protocol version mismatch -- is your shell clean|exec: \"rsync\""
        r"|rsync: (?:command )?not found",
        "the image has no rsync, with which Ray copies files into its containers",
        "Put rsync, openssh-client and boto3 into the image.",
        error=PrerequisiteError,
    ),
)


def clean(line: str) -> str:
    return _BEGINNING.sub("", line).strip()


def last(lines: Sequence[str]) -> str:
    """Return the last line that is not noise, 100 characters at most, or ""."""
    for line in reversed(lines):
        cleaned = clean(line)
        if not _NOISE.match(cleaned):
            return cleaned[:100]
    return ""


def cause(lines: Sequence[str], *, name: str, type_: str = "", user: str = "") -> Diagnosis | None:
    """Return the cause of the first rule that matches the last attempt."""
    printed = _of_last_attempt(lines)
    for rule in RULES:
        for line in reversed(printed):
            diagnosed = explain(line, [rule], name=name, type=type_, user=user)
            if diagnosed:
                return diagnosed
    return None


def failed_command(lines: Sequence[str], *, name: str) -> Diagnosis:
    """Show the last output of a set-up that failed for an unknown cause."""
    printed = [line for line in _of_last_attempt(lines) if not _NOISE.match(line)]
    tail = printed[-TAIL_LINES:] or ["(no output)"]
    text = textwrap.indent("\n".join(tail), "    ")
    return Diagnosis(f"{name} could not be set up; its last output:\n{text}", _SET_UP)


def with_lines(diagnosed: Diagnosis, lines: Sequence[str]) -> Diagnosis:
    distinct = dict.fromkeys(map(clean, lines))
    return replace(diagnosed, message="\n    ".join([diagnosed.message, *distinct]))


def _of_last_attempt(lines: Sequence[str]) -> list[str]:
    """Return the lines of the last attempt, up to its failure.

    Only the error message is kept from the traceback that Ray then prints.
    """
    printed = [clean(line) for line in lines]
    ends = [index for index, line in enumerate(printed) if line == "New status: update-failed"]
    if not ends:
        return printed

    beginning = ends[-2] + 1 if len(ends) > 1 else 0
    messages = [line for line in printed[ends[-1] :] if line.startswith("Error message: ")]
    return printed[beginning : ends[-1]] + messages
