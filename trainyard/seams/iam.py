"""Who may do what in an AWS account, as IAM says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainyard.seams.aws import Aws

FOR_EC2 = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": ["ec2.amazonaws.com"],
}


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
