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

    def __init__(self, error: Exception) -> None:
        self.error = error

    def client(self, service: str, **_: Any) -> Refusing:
        return self

    def run_instances(self, **_: Any) -> None:
        raise self.error


def refused(code: str, text: str = "its own words") -> Exception:
    return exceptions.ClientError({"Error": {"Code": code, "Message": text}}, "RunInstances")


def raised(monkeypatch: pytest.MonkeyPatch, error: Exception, **settings: str) -> TrainyardError:
    monkeypatch.setattr(boto3.session, "Session", lambda **_: Refusing(error))
    with pytest.raises(TrainyardError) as caught:
        Aws({"AWS_REGION": "us-west-2"}, **settings).call("ec2", "run_instances")
    return caught.value


def test_a_refusal_keeps_the_code_and_the_words_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised(monkeypatch, refused("InsufficientInstanceCapacity"))
    assert isinstance(error, AwsError)
    assert error.code == "InsufficientInstanceCapacity"
    assert error.lines() == [
        "AWS refuses ec2:RunInstances",
        "  at InsufficientInstanceCapacity: its own words",
        "  -> Once the cause is mended, or has passed, repeat the same command: it continues.",
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
def test_what_the_user_lacks_is_a_prerequisite(
    monkeypatch: pytest.MonkeyPatch, error: Exception, what: str
) -> None:
    lacking = raised(monkeypatch, error, profile="lab")
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
def test_what_may_pass_is_aws_own_trouble(
    monkeypatch: pytest.MonkeyPatch, error: Exception, what: str
) -> None:
    passing = raised(monkeypatch, error)
    assert isinstance(passing, AwsError)
    assert passing.what == what


def test_an_error_names_the_region_that_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    error = exceptions.EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    monkeypatch.setattr(boto3.session, "Session", lambda **_: Refusing(error))
    with pytest.raises(AwsError, match="does not answer in region eu-west-1"):
        Aws({"AWS_REGION": "us-west-2"}).call("ec2", "run_instances", region="eu-west-1")


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
            "boto3, with which AWS is asked, is not installed",
            (
                "  -> Install it: pip install boto3 'ray[default]==2.60.0'; for ECR alone: pip "
                "install boto3"
            ),
        ]
