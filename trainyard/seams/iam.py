"""Rights in an AWS account, as IAM simulates them."""

from __future__ import annotations

import re

from trainyard.seams.aws import Aws

FOR_EC2 = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": ["ec2.amazonaws.com"],
}


def may_pass(aws: Aws, caller: str, role: str) -> bool:
    """Ask IAM whether `caller` may give `role` to instances.

    `caller` is the ARN of a user or a session. Conditions on unknown values
    (tags, times) count as met.
    """
    if caller.endswith(":root"):
        return True

    # A session has the policies of its role, whose path the session's ARN lacks: IAM is asked for
    # the role's ARN.
    session = re.search(":assumed-role/([^/]+)/", caller)
    if session:
        principal = aws.call("iam", "get_role", RoleName=session[1])["Role"]["Arn"]
    else:
        principal = caller

    results = aws.pages(
        "iam",
        "simulate_principal_policy",
        "EvaluationResults",
        PolicySourceArn=principal,
        ActionNames=["iam:PassRole"],
        ResourceArns=[role],
        ContextEntries=[FOR_EC2],
    )

    return all(
        result["EvalDecision"] == "allowed" or result.get("MissingContextValues")
        for result in results
    )
