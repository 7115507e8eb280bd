"""Amazon's registry: whose repositories are asked for and made, and whose credentials are used."""

from __future__ import annotations

import base64
from typing import Any

import boto3
import pytest

from trainyard.seams import ecr

ACCOUNT = "123456789012"
ADDRESS = f"{ACCOUNT}.dkr.ecr.eu-central-1.amazonaws.com"


class NotThereError(Exception):
    """AWS: RepositoryNotFoundException, RepositoryAlreadyExistsException."""


class FakeClient:
    """ECR; it keeps what it was asked."""

    class exceptions:
        RepositoryNotFoundException = RepositoryAlreadyExistsException = NotThereError

    def __init__(self) -> None:
        self.described: list[dict[str, Any]] = []
        self.made: list[dict[str, Any]] = []
        self.regions: list[str | None] = []

    def describe_repositories(self, **query: Any) -> None:
        self.described.append(query)
        raise NotThereError

    def create_repository(self, **query: Any) -> None:
        self.made.append(query)

    def get_authorization_token(self) -> dict[str, Any]:
        token = base64.b64encode(b"AWS:word").decode()
        return {"authorizationData": [{"authorizationToken": token}]}


def given(monkeypatch: pytest.MonkeyPatch, client: FakeClient) -> FakeClient:
    """Let boto3 give this client; note where it asks."""

    class Session:
        def client(self, service: str, *, region_name: str | None) -> FakeClient:
            client.regions.append(region_name)
            return client

    monkeypatch.setattr(boto3.session, "Session", Session)
    return client


def test_a_repository_is_looked_for_and_made_in_the_account_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    client = given(monkeypatch, FakeClient())
    for address in (ADDRESS, "127.0.0.1:5000"):
        assert not ecr.has_repository(address, "team/mine", {})
        ecr.make_repository(address, "team/mine", {})
    names = {"repositoryNames": ["team/mine"]}
    assert client.described == [{**names, "registryId": ACCOUNT}, names]
    name = {"repositoryName": "team/mine"}
    assert client.made == [{**name, "registryId": ACCOUNT}, name]


def test_the_region_is_the_addresss_else_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    client = given(monkeypatch, FakeClient())
    elsewhere = f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn", f"{ACCOUNT}.dkr-ecr.us-west-2.on.aws"
    for address in (ADDRESS, *elsewhere, f"{ACCOUNT}.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "127.0.0.1:5000"):
        assert ecr.login(address, {"AWS_REGION": "eu-west-1"}).password == "word"
    assert client.regions == ["eu-central-1", "cn-north-1", "us-west-2", "us-gov-west-1", "eu-west-1"]
