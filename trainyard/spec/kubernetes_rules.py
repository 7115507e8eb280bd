"""What Kubernetes accepts as names, labels and references; each rule raises what is wrong."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from pydantic import JsonValue

from trainyard.spec.complaints import Complaint, complain
from trainyard.spec.fields import HIDDEN, SHOWN_HIDDEN
from trainyard.spec.yaml_source import KeyPath

# k8s.io/apimachinery/pkg/util/validation: a DNS-1123 label, and a subdomain of such labels.
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_NAME_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

_THEIR_PREFIXES = ("ray.io", "io.trainyard")
_THEIR_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/created-by", "app.kubernetes.io/managed-by")
_TAKEN_PATHS = {"/dev/shm": "is the nodes' shared memory", "/tmp/ray": "is where Ray keeps its sessions"}  # noqa: S108


def check_object_name(name: str) -> str:
    """Return the name of an object of Kubernetes."""
    if len(name) > 253 or not re.fullmatch(_SUBDOMAIN, name):
        raise ValueError("must be the name of a Kubernetes object: lower-case letters, digits, '-' and '.'")
    return name


def check_namespace_name(name: str) -> str:
    """Return the name of a namespace."""
    if not re.fullmatch(_LABEL, name):
        raise ValueError("must be the name of a namespace: lower-case letters, digits and '-', at most 63 characters")
    return name


def check_label_key(key: str) -> str:
    """Return the key of a label, an annotation, a taint or a resource: [PREFIX/]NAME."""
    prefix, slash, name = key.rpartition("/")
    if not re.fullmatch(_NAME_PART, name) or (slash and not re.fullmatch(_SUBDOMAIN, prefix)):
        raise ValueError("must be [PREFIX/]NAME, such as example.com/pool")
    return key


def check_label_value(value: str) -> str:
    """Return the value of a label."""
    if value and not re.fullmatch(_NAME_PART, value):
        raise ValueError("must be a label's value: at most 63 letters, digits, '-', '_' and '.'")
    return value


def check_service(service: str) -> str:
    """Return NAMESPACE/NAME of a service."""
    namespace, slash, name = service.partition("/")
    if not slash or not re.fullmatch(_LABEL, namespace) or not re.fullmatch(_LABEL, name):
        raise ValueError("must be NAMESPACE/NAME of a service, such as team/lab-head-svc")
    return service


def check_toleration(key: str | None, operator: str, value: str | None) -> None:
    """Complain about a toleration that Kubernetes would refuse."""
    if operator == "Equal" and (key is None or value is None):
        complain([Complaint((), "needs key and value for `operator: Equal`")])
    if operator == "Exists" and value is not None:
        complain([Complaint(("value",), "means something only for `operator: Equal`", value)])


def check_one_source(sources: Mapping[str, str | None]) -> None:
    """Complain unless a volume has exactly one source."""
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        known = ", ".join(sources)
        has = f"has {' and '.join(given)}: give one" if given else f"needs one of: {known}"
        complain([Complaint((), has)])


def check_storage(claim: str | None, size: int | None, storage_class: str | None) -> None:
    """Complain unless storage is a claim that is there, or the size of one to be made."""
    if claim is None and size is None:
        complain([Complaint((), "needs `claim` (one that is there) or `size` (of one to be made)")])
    if claim is not None and (size is not None or storage_class is not None):
        complain([Complaint((), "has claim as well as size or storage_class: a claim that is there is taken as it is")])


def check_groups(given: Collection[str], known: Collection[str]) -> None:
    """Complain about placements of groups that there are none of."""
    complain(
        Complaint(("groups", name), f"is no group of this file (there are: {', '.join(known)})")
        for name in given
        if name not in known
    )


def check_own_metadata(entries: Mapping[str, str]) -> None:
    """Complain about labels or annotations that KubeRay or Trainyard finds its pods by."""
    complain(
        Complaint((key,), "is set by KubeRay or Trainyard")
        for key in entries
        if key in _THEIR_LABELS or key.partition("/")[0] in _THEIR_PREFIXES
    )


def check_targets(targets: Sequence[str], outputs: str) -> None:
    """Complain about two things mounted at one place; `targets` are the volumes'."""
    taken = {**_TAKEN_PATHS, outputs.rstrip("/"): "is where the storage for outputs is (see outputs)"}
    if outputs.rstrip("/") in ("", *_TAKEN_PATHS):
        complain([Complaint(("outputs",), _TAKEN_PATHS.get(outputs.rstrip("/"), "must not be the root"), outputs)])
    found = []
    for index, target in enumerate(targets):
        reason = taken.get(target.rstrip("/")) if target.rstrip("/") else "must not be the root"
        taken.setdefault(target.rstrip("/"), f"is also the target of volumes.{index}")
        if reason:
            found.append(Complaint(("volumes", index, "target"), reason, target))
    complain(found)


def check_restricted(run_as_user: int | None, *, restricted: bool) -> None:
    """Complain about root where the Pod Security Standard `restricted` is asked for."""
    if restricted and run_as_user == 0:
        complain([Complaint(("run_as_user",), "must not be 0 (root) with `restricted: true`", run_as_user)])


def check_host_paths(host_paths: Sequence[str | None], *, restricted: bool) -> None:
    """Complain about directories of the host, which the Pod Security Standard `restricted` forbids."""
    complain(
        Complaint(("volumes", index, "host_path"), "is not allowed with `security.restricted: true`", path)
        for index, path in enumerate(host_paths)
        if path is not None and restricted
    )


def check_shown(values: Mapping[str, JsonValue]) -> None:
    """Complain about every value of a chart that `show` hid."""
    complain(Complaint(path, SHOWN_HIDDEN) for path in _hidden_paths(values, ()))


def _hidden_paths(value: object, path: KeyPath) -> Iterator[KeyPath]:
    if value == HIDDEN:
        yield path
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _hidden_paths(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _hidden_paths(inner, (*path, index))
