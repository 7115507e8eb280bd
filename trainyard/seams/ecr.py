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


def login(address: str, environ: Mapping[str, str]) -> Login:
    """Return a fresh login: it is asked for at every push and pull, so it is never the one that expired.

    Raises PrerequisiteError without boto3 or AWS credentials, OutsideError when AWS refuses.
    """
    with _client(address, environ) as client:
        answer = client.get_authorization_token()
    user, _, password = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode().partition(":")
    return Login("AWS ECR", user, password)


def has_repository(address: str, name: str, environ: Mapping[str, str]) -> bool:
    """Say whether a repository exists, in the account that the registry's address names."""
    account = _of_address(address, "account")
    query: dict[str, Any] = {"repositoryNames": [name], **({"registryId": account} if account else {})}
    with _client(address, environ) as client:
        try:
            client.describe_repositories(**query)
        except client.exceptions.RepositoryNotFoundException:
            return False
    return True


def make_repository(address: str, name: str, environ: Mapping[str, str]) -> None:
    """Make a repository; one that is there already is fine.

    Raises PrerequisiteError where the registry is another account's: AWS would make it in the caller's own.
    """
    account = _of_address(address, "account")
    with _client(address, environ) as client:
        # Asked for no account's registry, AWS names the caller's own.
        endpoint = client.get_authorization_token()["authorizationData"][0].get("proxyEndpoint", "")
        own = _of_address(endpoint.removeprefix("https://"), "account")
        if account and own and own != account:
            raise PrerequisiteError(
                f"registry {address} has no repository {name}, and only its own account can make it",
                where=f"these AWS credentials are of account {own}",
                hint=f"Let account {account} make it and allow pushes from {own}, or use credentials of {account}.",
            )
        with suppress(client.exceptions.RepositoryAlreadyExistsException):
            client.create_repository(repositoryName=name)


def region_of(address: str) -> str | None:
    return _of_address(address, "region")


def _of_address(address: str, part: str) -> str | None:
    found = _ADDRESS.fullmatch(address)
    return found[part] if found else None


@contextmanager
def _client(address: str, environ: Mapping[str, str]) -> Iterator[ECRClient]:
    """Give a client with the caller's own AWS configuration; what boto3 raises becomes one of our errors."""
    try:
        import boto3
        from botocore import exceptions as aws
    except ImportError as error:
        raise PrerequisiteError(
            "`login: ecr` needs boto3, which is not installed",
            hint="Install the extra: pip install 'trainyard[aws]'",
        ) from error
    # The region of the address counts: a login of another region is refused.
    region = region_of(address) or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    endpoint = environ.get("AWS_ENDPOINT_URL_ECR") or environ.get("AWS_ENDPOINT_URL")
    try:
        yield boto3.session.Session(**_credentials(environ)).client("ecr", region_name=region, endpoint_url=endpoint)
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.ProfileNotFound) as error:
        raise PrerequisiteError(
            f"no AWS credentials for registry {address}: {error}",
            hint="As for the AWS command line: aws configure, aws sso login, or AWS_PROFILE. Try: aws sts "
            "get-caller-identity",
        ) from error
    except aws.NoRegionError as error:
        raise PrerequisiteError(
            f"the AWS region of registry {address} is not known",
            hint="Use the registry's full name (ACCOUNT.dkr.ecr.REGION.amazonaws.com), or set AWS_REGION.",
        ) from error
    except aws.ClientError as error:
        reason = error.response.get("Error", {})
        raise OutsideError(
            f"AWS refuses this account at registry {address}",
            where=f"{error.operation_name}: {reason.get('Code', '')}: {reason.get('Message', '')}",
            hint="Are the credentials still valid (aws sts get-caller-identity), and may they use ECR?",
        ) from error
    except aws.BotoCoreError as error:
        raise OutsideError(f"AWS does not answer for registry {address}", where=str(error)) from error


def _credentials(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return who asks: as for the AWS command line, keys come before a profile.

    What the variables do not say, boto3 finds: the default profile, the role of an instance or container.
    """
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        return {
            "aws_access_key_id": environ["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": environ["AWS_SECRET_ACCESS_KEY"],
            "aws_session_token": environ.get("AWS_SESSION_TOKEN") or None,
        }
    return {"profile_name": environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE")}
