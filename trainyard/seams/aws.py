"""AWS through boto3, whose rejections become Trainyard errors."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

import httpx

from trainyard import versions
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError

# The most attempts of a call that AWS throttles; botocore's pauses grow.
TRIES = 6
CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
WHO_AM_I = "https://checkip.amazonaws.com"
# Patterns are searched in "EXCEPTION CODE: text": botocore's class, AWS's code and text. {who} is
# "this user" or "profile NAME", {profile} the flag " --profile NAME" or "", {action} the rejected
# call, such as ec2:RunInstances.
REFUSALS = (
    Rule(
        r"ProfileNotFound.*\((?P<profile>[^)]*)\)",
        "there is no AWS profile {profile} here",
        "List the profiles: aws configure list-profiles. This name is `ec2.profile` of the cluster "
        "file, or AWS_PROFILE.",
        error=PrerequisiteError,
    ),
    Rule(
        "SSOTokenLoad|UnauthorizedSSOToken|TokenRetrieval|SSOError",
        "the AWS login (SSO) of {who} has expired",
        "Log in again: aws sso login{profile}",
        error=PrerequisiteError,
    ),
    Rule(
        "NoCredentials|PartialCredentials|CredentialRetrieval|ConfigNotFound",
        "there are no AWS credentials for {who}",
        "Log in as for the AWS command line: aws configure, aws sso login, AWS_PROFILE. "
        "Try: aws sts get-caller-identity{profile}",
        error=PrerequisiteError,
    ),
    Rule(
        "NoRegion",
        "no AWS region is named",
        "Write it into the cluster file (`ec2: {region: us-west-2}`), or set AWS_REGION.",
        error=PrerequisiteError,
    ),
    Rule(
        "ExpiredToken|RequestExpired|InvalidIdentityToken",
        "the AWS session of {who} has expired",
        "Get a new session, such as by: aws sso login{profile}",
        error=PrerequisiteError,
    ),
    Rule(
        "AuthFailure|InvalidClientTokenId|SignatureDoesNotMatch|UnrecognizedClient|InvalidAccessKeyId",
        "AWS does not accept the credentials of {who}",
        "Are the credentials right? Is this machine's clock right? "
        "Try: aws sts get-caller-identity{profile}",
        error=PrerequisiteError,
    ),
    Rule(
        "UnauthorizedOperation|AccessDenied",
        "AWS does not allow {who} to {action}",
        "The account's administrator can allow it: the IAM permission is {action}.",
        error=PrerequisiteError,
    ),
    Rule(
        "OptInRequired|PendingVerification|SubscriptionRequired",
        "the AWS account may not use {service} (yet)",
        "The account's administrator can enable it; a new account may have to wait.",
        error=PrerequisiteError,
    ),
    Rule(
        "EndpointConnection|ConnectTimeout|ReadTimeout|ConnectionClosed|ProxyConnection|SSLError|HTTPClient",
        "AWS does not answer in region {region}",
        "Is there a region of that name, and does this machine reach the internet? Then repeat "
        "the same command: it continues.",
    ),
    Rule(
        "",
        "AWS refuses {action}",
        "When the cause is gone, repeat the same command: it continues.",
    ),
)


class AwsError(OutsideError):
    """AWS rejected a call; `code` is AWS's, such as InvalidGroup.NotFound."""

    code = ""


class Aws:
    """One AWS account and region, for any thread; making it sends nothing.

    Every call raises PrerequisiteError without boto3, credentials or rights,
    AwsError for any other rejection.
    """

    def __init__(
        self, environ: Mapping[str, str], *, region: str | None = None, profile: str | None = None
    ) -> None:
        self.profile = profile or environ.get("AWS_PROFILE")
        self._region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str | None], Any] = {}
        self._session: Any = None

    @property
    def region(self) -> str:
        """Return the region of the file, the environment or the profile.

        Raises PrerequisiteError without any.
        """
        if self._region is None:
            self._client("ec2")
            self._region = str(self._session.region_name)
        return self._region

    @cached_property
    def caller(self) -> Mapping[str, Any]:
        """Return the owner of the credentials (Account, Arn); ask AWS once."""
        return self.call("sts", "get_caller_identity")

    def call(
        self, service: str, operation: str, *, region: str | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Call an operation: call("ec2", "describe_images", ImageIds=[...])."""
        with self._asking(service, operation, region) as client:
            return cast("dict[str, Any]", getattr(client, operation)(**arguments))

    def find(
        self, service: str, operation: str, *, region: str | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Call an operation on a named resource; {} if it does not exist."""
        try:
            return self.call(service, operation, region=region, **arguments)
        except AwsError as error:
            if "NotFound" in error.code or "NoSuchEntity" in error.code:
                return {}
            raise

    def pages(
        self, service: str, operation: str, key: str, *, region: str | None = None, **arguments: Any
    ) -> list[dict[str, Any]]:
        """Return the entries under `key` of all pages."""
        with self._asking(service, operation, region) as client:
            if not client.can_paginate(operation):
                return list(getattr(client, operation)(**arguments)[key])

            entries: list[dict[str, Any]] = []
            for page in client.get_paginator(operation).paginate(**arguments):
                entries += page[key]
            return entries

    def described(
        self,
        kind: str,
        only: Mapping[str, Iterable[str]] | None = None,
        *,
        region: str | None = None,
        **arguments: Any,
    ) -> list[dict[str, Any]]:
        """Return EC2's objects of a kind ("key_pairs"); `only` has filters."""
        arguments["Filters"] = [
            {"Name": name, "Values": sorted(values)} for name, values in (only or {}).items()
        ]
        if kind == "instances":
            key = "Reservations"
        else:
            key = kind.title().replace("_", "")
        return self.pages("ec2", f"describe_{kind}", key, region=region, **arguments)

    def instances(
        self, tags: Mapping[str, str], *, region: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the instances with all these tags, in any state.

        The value "*" matches any value.
        """
        filters = {f"tag:{name}": [value] for name, value in tags.items()}
        reservations = self.described("instances", filters, region=region)
        instances = []
        for reservation in reservations:
            instances += reservation["Instances"]
        return instances

    @contextmanager
    def _asking(self, service: str, operation: str, region: str | None) -> Iterator[Any]:
        """Yield a service's client; botocore's errors become Trainyard's."""
        client = self._client(service, region)
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            yield client
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            raise self._error(error, service, operation, region) from error

    def _client(self, service: str, region: str | None = None) -> Any:
        """Return a service's client, which is made once for each region."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise PrerequisiteError(
                "boto3, the library for AWS, is not installed",
                hint=f"Install it: {versions.installing('ec2')}; "
                f"for ECR alone: {versions.installing('aws')}",
            ) from error

        region = region or self._region
        key = (service, region)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": TRIES},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
        )
        with self._lock:
            try:
                if self._session is None:
                    self._session = boto3.session.Session(
                        profile_name=self.profile, region_name=self._region
                    )
                if key not in self._clients:
                    self._clients[key] = self._session.client(
                        service, region_name=region, config=config
                    )
            except (BotoCoreError, ValueError) as error:
                raise self._error(error, service, operation="", region=region) from error
            return self._clients[key]

    def _error(
        self, error: Exception, service: str, operation: str, region: str | None
    ) -> TrainyardError:
        detail = getattr(error, "response", {}).get("Error", {})
        code = str(detail.get("Code", ""))
        words = {
            "who": "this user",
            "profile": "",
            "region": region or self._region or "(none)",
            "service": service,
            "action": f"{service}:{operation.title().replace('_', '')}",
        }
        if self.profile:
            words["who"] = f"profile {self.profile}"
            words["profile"] = f" --profile {self.profile}"

        text = f"{type(error).__name__} {code}: {detail.get('Message', error)}"
        # The last rule matches every text.
        cause = cast(Diagnosis, explain(text, REFUSALS, **words))
        where = cause.raw.removeprefix("ClientError ")
        if cause.error is not OutsideError:
            return cause.error(cause.message, where=where, hint=cause.hint)

        rejection = AwsError(cause.message, where=where, hint=cause.hint)
        rejection.code = code
        return rejection


def caller_address() -> str:
    """Ask AWS for this machine's internet address. Raises OutsideError."""
    try:
        answer = httpx.get(WHO_AM_I, timeout=CONNECT_SECONDS).raise_for_status()
        return str(ipaddress.IPv4Address(answer.text.strip()))
    except (httpx.HTTPError, ValueError) as error:
        raise OutsideError(
            "the address from which this machine reaches AWS is not known",
            where=f"{WHO_AM_I}: {error}",
            hint="Say who may use SSH: `ec2: {ssh_from: [203.0.113.7/32]}`.",
        ) from error
