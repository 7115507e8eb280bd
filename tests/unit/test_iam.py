"""Rights in an AWS account: the principal that IAM is asked about, and the answers that count."""

from __future__ import annotations

from typing import Any

from trainyard.seams import iam
from trainyard.seams.aws import Aws

USER = "arn:aws:iam::123456789012:user/ann"


ROLE = "arn:aws:iam::123456789012:role/ray"


class Asked(Aws):
    """IAM, which decides as it is told to; `asked` are those whose policies it was asked about."""

    def __init__(self, decision: str = "allowed", **more: Any) -> None:
        super().__init__({})
        self.result = {"EvalDecision": decision, **more}
        self.asked: list[str] = []

    def call(
        self, service: str, operation: str, *, region: str | None = None, **arguments: Any
    ) -> dict[str, Any]:
        return {"Role": {"Arn": f"arn:aws:iam::123456789012:role/team/{arguments['RoleName']}"}}

    def pages(
        self, service: str, operation: str, key: str, *, region: str | None = None, **arguments: Any
    ) -> list[dict[str, Any]]:
        self.asked.append(arguments["PolicySourceArn"])
        return [self.result]


def test_refused_is_what_iam_is_certain_about() -> None:
    assert iam.may_pass(Asked(), USER, ROLE)
    assert not iam.may_pass(Asked("explicitDeny"), USER, ROLE)
    assert iam.may_pass(
        Asked("implicitDeny", MissingContextValues=["aws:RequestTag/team"]), USER, ROLE
    )


def test_the_root_user_may_do_everything() -> None:
    assert iam.may_pass(Asked("explicitDeny"), "arn:aws:iam::123456789012:root", ROLE)


def test_a_session_has_the_rights_of_its_role_wherever_that_is() -> None:
    aws = Asked()
    iam.may_pass(
        aws, "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_dev/ann@example.com", ROLE
    )
    assert aws.asked == ["arn:aws:iam::123456789012:role/team/AWSReservedSSO_dev"]
