"""A Kubernetes API that is a dictionary in sight, and that refuses forbidden questions."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from trainyard.backends.kuberay.location import Location
from trainyard.errors import OutsideError
from trainyard.seams.kube.errors import ConflictError, ForbiddenError
from trainyard.seams.kube.types import NAMESPACE, Kind, Object, Right
from trainyard.spec.kubernetes import KuberaySection

Key = tuple[str, str, str]
KUBECONFIG = """
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: ops}}]
clusters: [{name: lab, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: ops, user: {}}]
"""


class FakeKube:
    """Objects by kind, namespace and name.

    `forbidden` are plurals that the user may neither ask for nor change; `lacking` are rights that
    Kubernetes says the user lacks, such as "delete pods". `refusals` are errors by the verb that
    raises them. Questions about other kinds than the `expected` ones, if there are any, are errors
    of the test.

    A deleted object takes along the objects that it owns; one with finalizers stays, marked as
    being deleted.
    """

    def __init__(
        self,
        *objects: tuple[Kind, Object],
        forbidden: Sequence[str] = (),
        unknown: Sequence[str] = (),
        lacking: Sequence[str] = (),
    ) -> None:
        self.context = "lab"
        self.server = "https://192.0.2.1:6443"
        self.user = "ops"
        self.place = "context lab"
        self.access = SimpleNamespace(files=(), user=self.user)
        self.lacking = lacking
        self.objects: dict[Key, Object] = {}
        self.kinds: dict[str, Kind] = {}
        self.expected: Set[Kind] = frozenset()
        self.forbidden = set(forbidden)
        self.unknown = set(unknown)
        self.refusals: dict[str, Exception] = {}
        self.deleted: list[str] = []
        self.created: list[Object] = []
        self.changed: list[str] = []
        self.uids = itertools.count(1)
        self.texts: dict[str, str] = {}
        self.after_create: Callable[[Object], None] = lambda body: None

        for kind, body in objects:
            self.put(kind, body)

    def put(self, kind: Kind, body: Object) -> Object:
        metadata = body.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-{next(self.uids)}")
        self.kinds[kind.plural] = kind
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        self.objects[(kind.plural, namespace, metadata["name"])] = body
        return body

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        self._ask("get", kind, namespace)
        return copy.deepcopy(self.objects.get((kind.plural, namespace or "", name)))

    def list(self, kind: Kind, *, namespace: str | None = None, labels: str = "") -> list[Object]:
        self._ask("list", kind, namespace)
        equal = dict(pair.split("=") for pair in labels.split(",") if "=" in pair)
        present = {word for word in labels.split(",") if word and "=" not in word}
        return [
            copy.deepcopy(body)
            for (plural, where, _), body in self.objects.items()
            if plural == kind.plural
            and namespace in (None, where)
            and equal.items() <= (body["metadata"].get("labels") or {}).items()
            and present <= (body["metadata"].get("labels") or {}).keys()
        ]

    def create(self, kind: Kind, body: Object, *, namespace: str | None = None) -> Object:
        self._ask("create", kind, namespace)
        namespace = namespace if kind.namespaced else None
        made = copy.deepcopy(body)
        made["metadata"]["namespace"] = namespace or ""
        if (kind.plural, namespace or "", made["metadata"]["name"]) in self.objects:
            raise ConflictError(f"{kind.name} {made['metadata']['name']} is there already")
        self.created.append(self.put(kind, made))
        self.after_create(made)
        return copy.deepcopy(made)

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        with_owned: bool = False,
    ) -> bool:
        self._ask("delete", kind, namespace)
        namespace = namespace if kind.namespaced else None
        body = self.objects.get((kind.plural, namespace or "", name))
        if body is None or uid not in (None, body["metadata"]["uid"]):
            return False
        self.deleted.append(f"{kind.name} {name}")
        if body["metadata"].get("finalizers"):
            body["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
            return True
        self._remove(kind, namespace or "", name)
        return True

    def apply(
        self, kind: Kind, body: Object, *, namespace: str | None = None, dry_run: bool = False
    ) -> Object:
        self._ask("patch", kind, namespace)
        name = body["metadata"]["name"]
        live = self.get(kind, name, namespace if kind.namespaced else None) or {}
        made = _merged(live, copy.deepcopy(body))
        if not dry_run:
            self.changed.append(f"apply {kind.name} {name}")
            made["metadata"]["namespace"] = namespace or ""
            self.put(kind, made)
        return copy.deepcopy(made)

    def patch(
        self, kind: Kind, name: str, merge: Object, *, namespace: str | None = None
    ) -> Object:
        self._ask("patch", kind, namespace)
        self.changed.append(f"patch {kind.name} {name}")
        return self.put(kind, _merged(self.objects[(kind.plural, namespace or "", name)], merge))

    def may(self, right: Right, *, namespace: str) -> bool:
        if right.verb == "*":
            return not self.lacking
        return f"{right.verb} {right.resource}" not in self.lacking

    def serves(self, kind: Kind) -> bool:
        return kind.plural not in self.unknown

    def logs(self, pod: str, *, namespace: str, container: str, **more: Any) -> str:
        return self.texts.get(pod, "")

    def names(self, kind: Kind) -> set[str]:
        """Return what is there of a kind, in all namespaces."""
        return {name for plural, _, name in self.objects if plural == kind.plural}

    def _remove(self, kind: Kind, namespace: str, name: str) -> None:
        gone = self.objects.pop((kind.plural, namespace, name))
        uid = gone["metadata"]["uid"]
        for key, body in list(self.objects.items()):
            owners = {owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()}
            in_it = kind == NAMESPACE and key[1] == name
            if (uid in owners or in_it) and key in self.objects:
                self._remove(self.kinds[key[0]], key[1], key[2])

    def _ask(self, verb: str, kind: Kind, namespace: str | None) -> None:
        if self.expected and kind not in self.expected:
            raise AssertionError(f"unprepared question to Kubernetes: {verb} {kind.plural}")
        if verb in self.refusals:
            raise self.refusals[verb]
        everywhere = (
            namespace is None and kind.namespaced and f"all {kind.plural}" in self.forbidden
        )
        if kind.plural in self.forbidden or everywhere:
            raise ForbiddenError(f"{self.user} may not {verb} {kind.plural}")


def _merged(live: Any, body: Any) -> Any:
    """Return an object with another one merged into it: mappings by key, anything else replaced."""
    if not isinstance(live, dict) or not isinstance(body, dict):
        return body
    return {**live, **{key: _merged(live.get(key), value) for key, value in body.items()}}


@dataclass
class FakeDashboard:
    """A dashboard that names the nodes that are alive, or fails."""

    nodes: tuple[str, ...] = ()
    error: OutsideError | None = None
    location: Location | None = None

    def address(self) -> str:
        if self.error:
            raise self.error
        return "http://127.0.0.1:4242"

    def last_error(self) -> str:
        return ""

    def alive(self, token: str | None, pods: Iterable[Object]) -> frozenset[str]:
        if self.error:
            raise self.error
        return frozenset(self.nodes)


def location(
    kube: FakeKube, *, namespace: str = "team", name: str = "lab", **section: Any
) -> Location:
    """Return the location of a cluster on this API, with what its section says."""
    validated = KuberaySection.model_validate({"namespace": namespace, **section})
    at: Any = kube
    return Location(at, namespace, name, validated, owner="bob@lab")


def named(
    name: str,
    *,
    cluster: str = "",
    ray: str = "",
    made_by: str = "",
    namespace: str = "team",
    owner: Object | None = None,
) -> Object:
    """Return an object with labels (`cluster` Trainyard's, `ray` KubeRay's) and an owner."""
    labels = {
        "io.trainyard/cluster": cluster,
        "ray.io/cluster": ray,
        "app.kubernetes.io/managed-by": made_by,
    }

    metadata: Object = {"name": name, "namespace": namespace}
    metadata["labels"] = {key: value for key, value in labels.items() if value}
    if owner is not None:
        belongs = {
            "kind": "RayCluster",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        metadata["ownerReferences"] = [belongs]

    return {"metadata": metadata}
