"""Amazon's registry: in which region a login is asked for."""

from __future__ import annotations

import base64
from typing import Any

import boto3
import pytest

from trainyard.seams import ecr

ACCOUNT = "123456789012"
ADDRESS = f"{ACCOUNT}.dkr.ecr.eu-central-1.amazonaws.com"


class FakeClient:
    """ECR, which gives everybody the same login."""

    def get_authorization_token(self) -> dict[str, Any]:
        return {
            "authorizationData": [{"authorizationToken": base64.b64encode(b"AWS:word").decode()}]
        }


def test_the_region_is_the_address_s_or_the_caller_s_whose_profile_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    regions: list[str | None] = []

    class Session:
        def __init__(self, *, profile_name: str | None, region_name: str | None) -> None:
            assert profile_name == "lab"

        def client(self, service: str, *, region_name: str | None, config: object) -> FakeClient:
            regions.append(region_name)
            return FakeClient()

    monkeypatch.setattr(boto3.session, "Session", Session)
    elsewhere = (
        f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn",
        f"{ACCOUNT}.dkr-ecr.us-west-2.on.aws",
    )
    for address in (
        ADDRESS,
        *elsewhere,
        f"{ACCOUNT}.dkr.ecr-fips.us-gov-west-1.amazonaws.com",
        "127.0.0.1:5000",
    ):
        assert (
            ecr.login(address, {"AWS_REGION": "eu-west-1", "AWS_PROFILE": "lab"}).password == "word"
        )

    assert regions == ["eu-central-1", "cn-north-1", "us-west-2", "us-gov-west-1", "eu-west-1"]
