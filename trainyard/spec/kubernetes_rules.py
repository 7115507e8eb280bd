"""What Kubernetes accepts as names, labels and references; each rule raises what is wrong."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from trainyard.spec.complaints import Complaint, complain

# k8s.io/apimachinery/pkg/util/validation: a DNS-1123 label, and a subdomain of such labels.
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_NAME_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


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
