"""Who may do what in an AWS account, as IAM says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trainyard.seams.aws import Aws, AwsError

FOR_EC2 = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": ["ec2.amazonaws.com"],
}


def existing(aws: Aws, operation: str, key: str, **name: str) -> dict[str, Any] | None:
    """Return what there is of a name: existing(aws, "get_role", "Role", RoleName="lab"); None if there is nothing."""
    try:
        found: dict[str, Any] = aws.call("iam", operation, **name)[key]
    except AwsError as error:
        if error.code != "NoSuchEntity":
            raise
        return None
    return found


def principal(aws: Aws, caller: str) -> str:
    """Return whose policies count: those of a session are its role's, which has a path that the session hides."""
    role = re.search(":assumed-role/([^/]+)/", caller)
    return str(aws.call("iam", "get_role", RoleName=role[1])["Role"]["Arn"]) if role else caller


def denied(aws: Aws, who: str, actions: Sequence[str], resource: str) -> list[str]:
    """Return which actions a user or role may not do, by its ARN; nothing of the root user.

    What depends on circumstances of the request that are not known here (tags, times) is not among them.
    """
    if who.endswith(":root"):
        return []
    results = aws.pages(
        "iam",
        "simulate_principal_policy",
        "EvaluationResults",
        PolicySourceArn=who,
        ActionNames=actions,
        ResourceArns=[resource],
        ContextEntries=[FOR_EC2],
    )
    certain = (result for result in results if not result.get("MissingContextValues"))
    return [result["EvalActionName"] for result in certain if result["EvalDecision"] != "allowed"]
