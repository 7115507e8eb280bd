"""Rights in an AWS account, as IAM says."""

from __future__ import annotations

import re

from trainyard.seams.aws import Aws

FOR_EC2 = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": ["ec2.amazonaws.com"],
}


def may_pass(aws: Aws, caller: str, role: str) -> bool:
    """Say whether a user, or a session's owner, may give a role to instances; all are ARNs.

    Conditions on things that are not known here (tags, times) count as met.
    """
    if caller.endswith(":root"):
        return True

    # The policies of a session are its role's, which has a path that the session hides.
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
