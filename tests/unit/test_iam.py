"""Who may do what in an AWS account: whom IAM is asked about, and what of its answer counts."""

from __future__ import annotations

from typing import Any

from trainyard.seams import iam
from trainyard.seams.aws import Aws

USER = "arn:aws:iam::123456789012:user/ann"


class Asked(Aws):
    """IAM, which allows ec2:RunInstances, denies iam:PassRole, and would have to know more about ec2:CreateTags."""

    def __init__(self) -> None:
        super().__init__({})

    def call(self, service: str, operation: str, *, region: str | None = None, **arguments: Any) -> dict[str, Any]:
        return {"Role": {"Arn": f"arn:aws:iam::123456789012:role/team/{arguments['RoleName']}"}}

    def pages(
        self, service: str, operation: str, key: str, *, region: str | None = None, **arguments: Any
    ) -> list[dict[str, Any]]:
        decisions = {"ec2:RunInstances": "allowed", "iam:PassRole": "explicitDeny", "ec2:CreateTags": "implicitDeny"}
        lacking = {"ec2:CreateTags": ["aws:RequestTag/team"]}
        return [
            {
                "EvalActionName": action,
                "EvalDecision": decisions[action],
                "MissingContextValues": lacking.get(action, []),
            }
            for action in arguments["ActionNames"]
        ]


def test_denied_is_what_iam_is_certain_about() -> None:
    actions = ["ec2:RunInstances", "iam:PassRole", "ec2:CreateTags"]
    assert iam.denied(Asked(), USER, actions, "*") == ["iam:PassRole"]


def test_the_root_user_may_do_everything() -> None:
    assert iam.denied(Asked(), "arn:aws:iam::123456789012:root", ["iam:PassRole"], "*") == []


def test_a_session_has_the_rights_of_its_role_wherever_that_is() -> None:
    session = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_dev/ann@example.com"
    assert iam.principal(Asked(), session) == "arn:aws:iam::123456789012:role/team/AWSReservedSSO_dev"
    assert iam.principal(Asked(), USER) == USER
