"""AWS: what it refuses, in words that say what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError

from trainyard.errors import PrerequisiteError, TrainyardError
from trainyard.seams.aws import Aws, AwsError


class Refusing:
    """A session, and its clients, that raise an error as they are asked."""

    error: Exception

    def client(self, service: str, **_: Any) -> Refusing:
        return self

    def run_instances(self, **_: Any) -> None:
        raise self.error


def refused(code: str, text: str = "its own words") -> Exception:
    return exceptions.ClientError({"Error": {"Code": code, "Message": text}}, "RunInstances")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    session = Refusing()
    monkeypatch.setattr(boto3.session, "Session", lambda **_: session)
    return session


def raised(
    session: Refusing, error: Exception, *, profile: str | None = None, region: str | None = None
) -> TrainyardError:
    """Return what a call in this region raises if boto3 raises this error."""
    session.error = error
    with pytest.raises(TrainyardError) as caught:
        Aws({"AWS_REGION": "us-west-2"}, profile=profile).call(
            "ec2", "run_instances", region=region
        )
    return caught.value


def test_a_refusal_keeps_the_code_and_the_words_of_aws(session: Refusing) -> None:
    error = raised(session, refused("InsufficientInstanceCapacity"))
    assert isinstance(error, AwsError)
    assert error.code == "InsufficientInstanceCapacity"
    assert error.lines() == [
        "AWS refuses ec2:RunInstances",
        "  at InsufficientInstanceCapacity: its own words",
        "  -> When the cause is gone, repeat the same command: it continues.",
    ]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (exceptions.NoCredentialsError(), "there are no AWS credentials for profile lab"),
        (exceptions.ProfileNotFound(profile="lab"), "there is no AWS profile lab here"),
        (exceptions.UnauthorizedSSOTokenError(), "the AWS login (SSO) of profile lab has expired"),
        (exceptions.NoRegionError(), "no AWS region is named"),
        (refused("RequestExpired"), "the AWS session of profile lab has expired"),
        (refused("AuthFailure"), "AWS does not accept the credentials of profile lab"),
        (refused("UnauthorizedOperation"), "AWS does not allow profile lab to ec2:RunInstances"),
    ],
)
def test_missing_credentials_region_or_rights_are_a_prerequisite_error(
    session: Refusing, error: Exception, what: str
) -> None:
    lacking = raised(session, error, profile="lab")
    assert isinstance(lacking, PrerequisiteError)
    assert lacking.what == what
    assert "{profile}" not in str(lacking.hint)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (
            refused("RequestLimitExceeded"),
            "AWS refuses ec2:RunInstances",
        ),
        (
            exceptions.EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
            "AWS does not answer in region us-west-2",
        ),
        (
            ResponseParserError("invalid XML received"),
            "AWS refuses ec2:RunInstances",
        ),
    ],
)
def test_a_transient_failure_is_an_aws_error(
    session: Refusing, error: Exception, what: str
) -> None:
    passing = raised(session, error)
    assert isinstance(passing, AwsError)
    assert passing.what == what


def test_an_error_names_the_region_that_was_asked(session: Refusing) -> None:
    error = exceptions.EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    silent = raised(session, error, region="eu-west-1")
    assert silent.what == "AWS does not answer in region eu-west-1"


def test_without_boto3_every_question_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("boto3", "botocore")]:
        monkeypatch.delitem(sys.modules, name)

    for name in ("boto3", "botocore"):
        monkeypatch.setitem(sys.modules, name, None)

    aws = Aws({"AWS_REGION": "us-west-2"})
    asked: list[Callable[[], object]] = [
        lambda: aws.caller,
        lambda: aws.find("ec2", "describe_images"),
        lambda: aws.pages("ec2", "describe_regions", "Regions"),
        lambda: aws.instances({"a": "b"}),
    ]
    for ask in asked:
        with pytest.raises(PrerequisiteError) as caught:
            ask()
        assert caught.value.lines() == [
            "boto3, the library for AWS, is not installed",
            (
                "  -> Install it: pip install boto3 'ray[default]==2.60.0'; for ECR alone: pip "
                "install boto3"
            ),
        ]
