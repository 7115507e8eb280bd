"""Amazon's registry: a login for 12 hours, and repositories that must exist before a push."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.registry.auth import Login

if TYPE_CHECKING:
    from mypy_boto3_ecr.client import ECRClient

# ACCOUNT.dkr.ecr.REGION.amazonaws.com[.cn], and the dual-stack names (ECR user guide, "Private registry").
_ADDRESS = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|on\.aws)(?::\d+)?"
)


def region(address: str) -> str:
    """Return the region of a registry of Amazon's, "" for any other registry."""
    named = _ADDRESS.fullmatch(address)
    return named["region"] if named else ""


def login(address: str, environ: Mapping[str, str]) -> Login:
    """Return a fresh login: it is asked for at every push and pull, so it is never the one that expired.

    Raises PrerequisiteError without boto3 or AWS credentials, OutsideError when AWS refuses.
    """
    with _client(address, environ) as client:
        answer = client.get_authorization_token()
    user, _, password = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode().partition(":")
    return Login("AWS ECR", user, password)


def has_repository(address: str, name: str, environ: Mapping[str, str]) -> bool:
    """Say whether a repository exists, in the account that the address names."""
    with _client(address, environ) as client:
        try:
            client.describe_repositories(repositoryNames=[name], **_registry(address))
        except client.exceptions.RepositoryNotFoundException:
            return False
    return True


def make_repository(address: str, name: str, environ: Mapping[str, str]) -> None:
    """Make a repository, in the account that the address names; one that is there already is fine."""
    with _client(address, environ) as client, suppress(client.exceptions.RepositoryAlreadyExistsException):
        client.create_repository(repositoryName=name, **_registry(address))


def _registry(address: str) -> dict[str, Any]:
    match = _ADDRESS.fullmatch(address)
    return {"registryId": match["account"]} if match else {}


@contextmanager
def _client(address: str, environ: Mapping[str, str]) -> Iterator[ECRClient]:
    """Give a client for the caller's region and AWS_PROFILE; what boto3 raises becomes one of our errors."""
    try:
        import boto3
        from botocore import exceptions as aws
    except ImportError as error:
        raise PrerequisiteError(
            "`login: ecr` needs boto3, which is not installed",
            hint="Install the extra: pip install 'trainyard[aws]'",
        ) from error
    try:
        # The region of the address counts: a login of another region is refused. boto3 itself reads no AWS_REGION.
        name = region(address) or environ.get("AWS_REGION")
        session = boto3.session.Session(profile_name=environ.get("AWS_PROFILE") or None)
        yield session.client("ecr", region_name=name)
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.ProfileNotFound, aws.NoRegionError) as error:
        raise PrerequisiteError(
            f"no AWS credentials for registry {address}: {error}",
            hint="As for the AWS command line: aws configure, aws sso login, AWS_PROFILE, AWS_REGION. Try: aws sts "
            "get-caller-identity",
        ) from error
    except (aws.ClientError, aws.BotoCoreError) as error:
        raise OutsideError(
            f"AWS refuses this account at registry {address}, or does not answer",
            where=str(error),
            hint="Are the credentials still valid (aws sts get-caller-identity), and may they use ECR?",
        ) from error
