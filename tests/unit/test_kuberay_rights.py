"""The rights that are asked for are those of the Role in docs/kuberay.md."""

from __future__ import annotations

from typing import Any

import yaml

from tests.bed.access import PAGE
from trainyard.backends.kuberay import rights
from trainyard.backends.kuberay.rights import Verbs
from trainyard.seams.kube.types import EVENT, POD

Granted = dict[tuple[str, str], set[str]]
# Rights that are not checked: only image.verify, causes of failures, logs and shells need them.
MORE: Verbs = {
    (POD, ""): ("get", "list", "create", "delete"),
    (POD, "log"): ("get",),
    # Newer versions of Kubernetes require `create` too, although the request's method is GET.
    (POD, "portforward"): ("get", "create"),
    (POD, "exec"): ("get", "create"),
    (EVENT, ""): ("list",),
}


def of_rules(rules: list[dict[str, Any]]) -> Granted:
    return {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def of_verbs(*every: Verbs) -> Granted:
    found: Granted = {}
    for verbs in every:
        for (kind, part), of_kind in verbs.items():
            resource = f"{kind.plural}/{part}" if part else kind.plural
            found.setdefault((kind.group, resource), set()).update(of_kind)
    return found


def test_the_roles_in_the_docs_grant_exactly_the_needed_rights() -> None:
    role, policy, leash = (
        yaml.safe_load(block.partition("```")[0])
        for block in PAGE.read_text().split("```yaml\n")[1:4]
    )
    asked = of_verbs(rights.MAKE, rights.STORAGE, rights.BUDGETS, rights.REMOVE, MORE)
    assert of_rules(role["rules"]) == asked
    assert of_rules(policy) == of_verbs(rights.POLICIES)
    assert of_rules(leash) == of_verbs(rights.LEASH)
