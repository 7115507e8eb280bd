"""The way to one Kubernetes API server, as a kubeconfig or a pod's service account describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Plugin:
    """A program that logs in (client.authentication.k8s.io ExecCredential); `directory` is its kubeconfig's.

    `interactive` is Never, IfAvailable or Always. `cluster` is what it is told about the cluster, if it wants that.
    """

    command: str
    arguments: tuple[str, ...]
    api: str
    directory: Path
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive: str = "IfAvailable"
    install_hint: str = ""
    cluster: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Login:
    """How a user proves who they are; `certificate` and `key` in PEM. `impersonate` are headers."""

    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    plugin: Plugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Access:
    """A context: the server and how to trust it, the namespace, the user. `authority` is the CA in PEM.

    `source` is where it was read, `server_name` what the server's certificate says instead of its address, `proxy` the
    one that the kubeconfig names.
    """

    context: str
    server: str
    namespace: str
    user: str
    source: str
    login: Login = Login()
    authority: bytes | None = None
    insecure: bool = False
    server_name: str | None = None
    proxy: str | None = None

    def __str__(self) -> str:
        return f"{self.server} (context {self.context})" if self.context else self.server
