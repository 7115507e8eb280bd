"""Amazon's registry: a login for 12 hours, and repositories that must exist before a push."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.registry_auth import Login

if TYPE_CHECKING:
    from mypy_boto3_ecr.client import ECRClient

# ACCOUNT.dkr.ecr.REGION.amazonaws.com[.cn], and the dual-stack names (ECR user guide, "Private registry").
_ADDRESS = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|on\.aws)(?::\d+)?"
)


def login(address: str, environ: Mapping[str, str]) -> Login:
    """Return a fresh login: it is asked for at every push and pull, so it is never the one that expired.

    Raises PrerequisiteError without boto3 or AWS credentials, OutsideError when AWS refuses.
    """
    with _calls(address):
        answer = _client(address, environ).get_authorization_token()
    user, _, password = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode().partition(":")
    return Login("AWS ECR", user, password)


def has_repository(address: str, name: str, environ: Mapping[str, str]) -> bool:
    """Say whether a repository exists."""
    client = _client(address, environ)
    with _calls(address):
        try:
            client.describe_repositories(repositoryNames=[name])
        except client.exceptions.RepositoryNotFoundException:
            return False
    return True


def make_repository(address: str, name: str, environ: Mapping[str, str]) -> None:
    """Make a repository; one that is there already is fine."""
    client = _client(address, environ)
    with _calls(address):
        try:
            client.create_repository(repositoryName=name)
        except client.exceptions.RepositoryAlreadyExistsException:
            return


def region_of(address: str) -> str | None:
    """Return the AWS region in a registry's address."""
    found = _ADDRESS.fullmatch(address)
    return found["region"] if found else None


def _client(address: str, environ: Mapping[str, str]) -> ECRClient:
    """Return a client with the caller's own AWS configuration (variables, profiles, instance roles)."""
    # The region of the address counts: a login of another region is refused.
    region = region_of(address) or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    with _calls(address):
        import boto3

        return boto3.session.Session().client("ecr", region_name=region)


@contextmanager
def _calls(address: str) -> Iterator[None]:
    """Turn what boto3 raises into our errors."""
    try:
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            NoRegionError,
            PartialCredentialsError,
            ProfileNotFound,
        )
    except ImportError as error:
        raise PrerequisiteError(
            "`login: ecr` needs boto3, which is not installed",
            hint="Install the extra: pip install 'trainyard[aws]'",
        ) from error
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
        raise PrerequisiteError(
            f"no AWS credentials for registry {address}: {error}",
            hint="As for the AWS command line: aws configure, aws sso login, or AWS_PROFILE. Try: aws sts "
            "get-caller-identity",
        ) from error
    except NoRegionError as error:
        raise PrerequisiteError(
            f"the AWS region of registry {address} is not known",
            hint="Use the registry's full name (ACCOUNT.dkr.ecr.REGION.amazonaws.com), or set AWS_REGION.",
        ) from error
    except ClientError as error:
        found = error.response.get("Error", {})
        raise OutsideError(
            f"AWS refuses this account at registry {address}",
            where=f"{error.operation_name}: {found.get('Code', '')}: {found.get('Message', '')}",
            hint="Are the credentials still valid (aws sts get-caller-identity), and may they use ECR?",
        ) from error
    except BotoCoreError as error:
        raise OutsideError(f"AWS does not answer for registry {address}", where=str(error)) from error
