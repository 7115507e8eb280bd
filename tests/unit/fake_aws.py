"""An AWS account in sight: it filters as EC2 does, and refuses questions that no test prepared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.backends.ec2 import naming
from trainyard.seams.aws import AwsError

# The kinds that an account may have none of; of any other kind a test must say what there is.
NONE_YET = {
    "addresses",
    "key_pairs",
    "launch_templates",
    "network_interfaces",
    "security_groups",
    "volumes",
}
# Questions about one named thing, which is not there.
ABSENT = {"describe_key_pairs", "get_instance_profile", "get_role", "get_role_policy"}


class FakeAws:
    """An account with instances, and lists of other things by their kind.

    The next `held` removals are refused, since something still uses what they remove.
    """

    region, profile = "us-west-2", None

    def __init__(
        self, instances: Iterable[dict[str, Any]] = (), **listed: list[dict[str, Any]]
    ) -> None:
        self.made = list(instances)
        self.listed = listed
        self.changes: list[str] = []
        self.held = 0
        self.caller = {"Account": "1"}
        self.prices: dict[str, list[str]] = {}

    def instances(
        self, tags: Mapping[str, str], *, region: str | None = None
    ) -> list[dict[str, Any]]:
        filters = {f"tag:{name}": [value] for name, value in tags.items()}
        return [each for each in self.made if passes(each, filters)]

    def described(
        self, kind: str, only: Mapping[str, Iterable[str]] | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        if kind not in self.listed and kind not in NONE_YET:
            raise AssertionError(f"unprepared question to AWS: describe {kind}")
        return [each for each in self.listed.get(kind, []) if passes(each, only or {})]

    def find(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation in ABSENT:
            return {}
        _refuse_question(operation)
        self.changes.append(operation)
        if self.held:
            self.held -= 1
            error = AwsError("held")
            error.code = "DependencyViolation"
            raise error
        return {}

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "get_products":
            return self.prices
        _refuse_question(operation)
        self.changes.append(f"{operation} {arguments.get('InstanceIds', '')}")
        for each in self.made:
            if each["InstanceId"] in arguments.get("InstanceIds", ()):
                each["State"]["Name"] = "terminated"
        return {}


def _refuse_question(operation: str) -> None:
    if operation.startswith(("get_", "describe_", "list_")):
        raise AssertionError(f"unprepared question to AWS: {operation}")


def passes(described: dict[str, Any], filters: Mapping[str, Iterable[str]]) -> bool:
    """Say whether an object passes filters, as EC2 does ("Filter", API reference).

    Raises KeyError for a filter of something that the object does not have.
    """
    for name, values in filters.items():
        if name.startswith("tag:"):
            value = naming.read(described["Tags"]).get(name.removeprefix("tag:"))
        else:
            value = str(described[name.title().replace("-", "")])
            if value in ("True", "False"):
                value = value.lower()
        if value is None or ("*" not in values and value not in values):
            return False
    return True
