"""A Ray cluster that somebody else runs: a section of the cluster file."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from trainyard.spec.docker import HOST_AND_PORT
from trainyard.spec.fields import Complaint, Filled, Section, VariableName, setting
from trainyard.spec.kubernetes import ObjectName, ServiceName


def check_dashboard_address(address: str) -> str:
    """Return http(s)://HOST[:PORT]. Raises ValueError."""
    try:
        parts = urlsplit(address)
        is_plain = parts.scheme in ("http", "https") and HOST_AND_PORT.fullmatch(parts.netloc) is not None
        is_plain = is_plain and parts.path in ("", "/") and not parts.query and not parts.fragment
        is_plain = is_plain and parts.port != 0
    except ValueError:  # a port beyond 65535, a broken [IPv6] address
        is_plain = False
    if not is_plain:
        raise ValueError("must be the dashboard's address such as http://127.0.0.1:8265 (no user, path or query)")
    return address


def is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


DashboardAddress = Annotated[Filled, AfterValidator(check_dashboard_address)]


class ExistingSection(Section):
    """A Ray cluster that somebody else runs."""

    address: DashboardAddress | None = setting(None, "The dashboard's address, such as http://127.0.0.1:8265.")
    service: ServiceName | None = setting(
        None, "NAMESPACE/NAME of its service on Kubernetes; the port-forward is made for you."
    )
    port: int = setting(8265, "The dashboard's port of that service.", ge=1, le=65535)
    kubeconfig: Filled | None = setting(
        None, "The kubeconfig file for `service`; left out: $KUBECONFIG, else ~/.kube/config."
    )
    context: Filled | None = setting(None, "A context of it; left out: its current one.")
    token_env: VariableName | None = setting(None, "The environment variable that holds the token.")
    token_file: Filled | None = setting(None, "The file that holds the token.")
    token_secret: ObjectName | None = setting(None, "The Secret beside `service` whose key auth_token holds the token.")

    def complaints(self) -> Iterator[Complaint]:
        """Complain unless there is one address, and at most one source of a token."""
        if self.address and self.service:
            yield Complaint((), "has both address and service: give one")
        if not self.address and not self.service:
            yield Complaint((), "needs address (http://HOST:8265) or service (NAMESPACE/NAME on Kubernetes)")
        tokens = [name for name in ("token_env", "token_file", "token_secret") if getattr(self, name)]
        if len(tokens) > 1:
            yield Complaint((), f"has both {tokens[0]} and {tokens[1]}: give one")
        if self.token_secret and not self.service:
            yield Complaint(("token_secret",), "means something only with `service`", self.token_secret)

    def auth_complaints(self, auth: str) -> Iterator[Complaint]:
        """Complain unless a token is named, or only this machine can reach the cluster and the file says `auth: none`.

        Without an address the dashboard is reached by a port-forward, which ends on loopback.
        """
        has_token = bool(self.token_env or self.token_file or self.token_secret)
        if auth == "token" and not has_token:
            message = "needs token_env or token_file (or, on loopback, `auth: none`)"
            if self.address is None:
                message = "needs token_secret, token_env or token_file (or `auth: none`, if it has none)"
            yield Complaint(("existing",), message, root=True)
        if auth == "none" and self.address is not None and not is_loopback(self.address):
            message = f"must be 'token' unless the cluster is on loopback, and existing.address is {self.address}"
            yield Complaint((), message, auth)
        elif auth == "none" and has_token:
            yield Complaint((), "must be 'token' where existing names a token", auth)
