"""A Ray cluster that somebody else runs: a section of the cluster file."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from trainyard.spec.docker import is_host_and_port
from trainyard.spec.fields import Complaint, Filled, Section, VariableName, setting
from trainyard.spec.kubernetes import ObjectName, ServiceName


def _check_dashboard_address(address: str) -> str:
    """Return http(s)://HOST[:PORT]. Raises ValueError."""
    scheme, _, host = address.rstrip("/").partition("://")
    if scheme not in ("http", "https") or not is_host_and_port(host):
        raise ValueError("must be the dashboard's address such as http://127.0.0.1:8265 (no user, path or query)")
    return address


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


DashboardAddress = Annotated[Filled, AfterValidator(_check_dashboard_address)]


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
        if bool(self.address) == bool(self.service):
            yield Complaint((), "needs either address (http://HOST:8265) or service (NAMESPACE/NAME on Kubernetes)")
        if len(self._tokens()) > 1:
            yield Complaint((), f"has {' and '.join(self._tokens())}: give one")
        if self.token_secret and not self.service:
            yield Complaint(("token_secret",), "means something only with `service`", self.token_secret)

    def auth_complaints(self, auth: str) -> Iterator[Complaint]:
        """Complain unless a token is named, or only this machine can reach the cluster and the file says `auth: none`.

        Without an address the dashboard is reached by a port-forward, which ends on loopback.
        """
        if auth == "token" and not self._tokens():
            message = "needs token_env, token_file or, with service, token_secret (`auth: none` if there is none)"
            yield Complaint(("existing",), message)
        elif auth == "none" and self.address is not None and not _is_loopback(self.address):
            message = f"must be 'token' unless the cluster is on loopback, and existing.address is {self.address}"
            yield Complaint(("auth",), message, auth)
        elif auth == "none" and self._tokens():
            yield Complaint(("auth",), "must be 'token' where existing names a token", auth)

    def _tokens(self) -> list[str]:
        return [name for name in ("token_env", "token_file", "token_secret") if getattr(self, name)]
