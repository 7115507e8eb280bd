"""Amazon's registry: whose repositories are asked for and made, and whose credentials are used."""

from __future__ import annotations

import base64
from typing import Any

import boto3
import pytest

from trainyard.errors import PrerequisiteError
from trainyard.seams import ecr

ACCOUNT, OTHER = "123456789012", "999999999999"
ADDRESS = f"{ACCOUNT}.dkr.ecr.eu-central-1.amazonaws.com"


class NotThereError(Exception):
    """AWS: RepositoryNotFoundException, RepositoryAlreadyExistsException."""


class FakeClient:
    """ECR of one caller's account; it keeps what it was asked."""

    class exceptions:
        RepositoryNotFoundException = RepositoryAlreadyExistsException = NotThereError

    def __init__(self, own: str = ACCOUNT) -> None:
        self.own = own
        self.asked: list[dict[str, Any]] = []
        self.made: list[str] = []

    def describe_repositories(self, **asked: Any) -> None:
        self.asked.append(asked)
        raise NotThereError

    def create_repository(self, *, repositoryName: str) -> None:
        self.made.append(repositoryName)

    def get_authorization_token(self) -> dict[str, Any]:
        token = base64.b64encode(b"AWS:word").decode()
        endpoint = f"https://{self.own}.dkr.ecr.eu-central-1.amazonaws.com"
        return {"authorizationData": [{"authorizationToken": token, "proxyEndpoint": endpoint}]}


def given(
    monkeypatch: pytest.MonkeyPatch, client: FakeClient, sessions: list[dict[str, Any]] | None = None
) -> FakeClient:
    """Let boto3 give this client; note who asks for it, and where."""

    class Session:
        def __init__(self, **who: Any) -> None:
            self.who = who

        def client(self, service: str, **where: Any) -> FakeClient:
            if sessions is not None:
                sessions.append({**self.who, **where})
            return client

    monkeypatch.setattr(boto3.session, "Session", Session)
    return client


def test_a_repository_is_looked_for_in_the_account_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    client = given(monkeypatch, FakeClient())
    assert not ecr.has_repository(ADDRESS, "team/mine", {})
    assert not ecr.has_repository("127.0.0.1:5000", "team/mine", {})
    assert client.asked == [
        {"registryId": ACCOUNT, "repositoryNames": ["team/mine"]},
        {"repositoryNames": ["team/mine"]},
    ]


def test_a_repository_is_made_in_the_callers_own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    client = given(monkeypatch, FakeClient())
    ecr.make_repository(ADDRESS, "team/mine", {})
    ecr.make_repository("127.0.0.1:5000", "team/mine", {})
    assert client.made == ["team/mine", "team/mine"]


def test_no_repository_is_made_in_an_account_that_the_address_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    client = given(monkeypatch, FakeClient(OTHER))
    with pytest.raises(PrerequisiteError) as caught:
        ecr.make_repository(ADDRESS, "team/mine", {})
    assert caught.value.lines() == [
        f"registry {ADDRESS} has no repository team/mine, and only its own account can make it",
        f"  at these AWS credentials are of account {OTHER}",
        f"  -> Let account {ACCOUNT} make it and allow pushes from {OTHER}, or use credentials of {ACCOUNT}.",
    ]
    assert client.made == []


@pytest.mark.parametrize(
    ("environ", "used"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t", "AWS_PROFILE": "p"},
            {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_session_token": "t"},
        ),
        ({"AWS_PROFILE": "p", "AWS_ACCESS_KEY_ID": "k"}, {"profile_name": "p"}),
        ({}, {"profile_name": None}),
    ],
)
def test_the_callers_variables_say_who_asks(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], used: dict[str, str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of somebody else")
    sessions: list[dict[str, Any]] = []
    given(monkeypatch, FakeClient(), sessions)
    ecr.login("127.0.0.1:5000", {**environ, "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://moto"})
    assert sessions == [{**used, "region_name": "eu-west-1", "endpoint_url": "http://moto"}]
