"""Amazon's registry: logins for 12 hours, repositories that pushes need."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from trainyard.seams.aws import Aws, AwsError
from trainyard.seams.registry.auth import Login

# ACCOUNT.dkr.ecr.REGION.amazonaws.com[.cn], and the dual-stack names (ECR user guide, "Private
# registry").
_ADDRESS = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|on\.aws)(?::\d+)?"
)


def region(address: str) -> str:
    named = _ADDRESS.fullmatch(address)
    return named["region"] if named else ""


def login(address: str, environ: Mapping[str, str]) -> Login:
    """Ask AWS for a new login.

    Each push and pull gets its own login, which cannot have expired. Raises
    PrerequisiteError without boto3, AWS credentials or rights, OutsideError if
    AWS refuses.
    """
    answer = _aws(address, environ).call("ecr", "get_authorization_token")
    token = answer["authorizationData"][0]["authorizationToken"]
    user, _, password = base64.b64decode(token).decode().partition(":")
    return Login("AWS ECR", user, password)


def has_repository(address: str, name: str, environ: Mapping[str, str]) -> bool:
    repositories = _aws(address, environ).find(
        "ecr", "describe_repositories", repositoryNames=[name], **_account(address)
    )
    return bool(repositories)


def make_repository(address: str, name: str, environ: Mapping[str, str]) -> None:
    """Make a repository in the address's account, unless it exists."""
    try:
        _aws(address, environ).call(
            "ecr", "create_repository", repositoryName=name, **_account(address)
        )
    except AwsError as error:
        if error.code != "RepositoryAlreadyExistsException":
            raise


def _account(address: str) -> dict[str, str]:
    named = _ADDRESS.fullmatch(address)
    if named:
        return {"registryId": named["account"]}
    return {}


def _aws(address: str, environ: Mapping[str, str]) -> Aws:
    # The registry rejects a login of another region.
    return Aws(environ, region=region(address))
