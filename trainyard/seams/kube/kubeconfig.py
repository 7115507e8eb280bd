"""Read kubeconfig files as kubectl does: several merge into one, the first that says something counts.

(kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig)
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainyard import suggest
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.access import Access, Login, Plugin

LISTS = ("clusters", "contexts", "users")


@dataclass(frozen=True)
class Entry:
    """A cluster, a context or a user of a kubeconfig, and the file that it stands in."""

    content: Mapping[str, Any]
    file: Path

    def text(self, key: str) -> str | None:
        """Return what stands there, if it is text and not empty."""
        value = self.content.get(key)
        return str(value) if isinstance(value, (str, int, float)) and value != "" else None

    def path(self, key: str) -> Path | None:
        """Return the file that it names: relative ones are the kubeconfig's neighbours."""
        written = self.text(key)
        return self.file.parent / Path(written).expanduser() if written else None

    def content_of(self, key: str) -> bytes | None:
        """Return what `KEY-data` holds, else the file that `KEY` names. Raises PrerequisiteError."""
        encoded = self.text(f"{key}-data")
        if encoded:
            try:
                return base64.b64decode(encoded, validate=False)
            except (binascii.Error, ValueError) as error:
                raise _broken(self.file, f"{key}-data is not base64") from error
        path = self.path(key)
        return _read(path, what=f"the {key} of {self.file}") if path else None


@dataclass(frozen=True)
class Kubeconfig:
    """What the files say together: entries by list and name."""

    files: tuple[Path, ...]
    entries: Mapping[str, Mapping[str, Entry]]
    current: str | None

    @property
    def where(self) -> str:
        """Return where it was read."""
        return ", ".join(map(str, self.files))


def load(files: Sequence[Path]) -> Kubeconfig:
    """Read files that exist. Raises PrerequisiteError for one that cannot be read, or is none."""
    entries: dict[str, dict[str, Entry]] = {key: {} for key in LISTS}
    current: str | None = None
    for file in files:
        content = _parse(file)
        current = current or content.get("current-context") or None
        for key in LISTS:
            for one in content.get(key) or []:
                inner = one.get(key[:-1]) if isinstance(one, dict) else None
                if isinstance(one, dict) and "name" in one:
                    entries[key].setdefault(str(one["name"]), Entry(inner or {}, file))
    return Kubeconfig(tuple(files), entries, current)


def access(config: Kubeconfig, context: str | None) -> Access:
    """Return the way that a context describes; None is the current one. Raises PrerequisiteError."""
    name = context or config.current
    if not name:
        raise PrerequisiteError(
            "the kubeconfig has no current context",
            where=config.where,
            hint=f"Name one in the cluster file (context: ...); it has {_listed(config.entries['contexts'])}.",
        )
    chosen = _entry(config, "contexts", name)
    cluster = _entry(config, "clusters", chosen.text("cluster") or "", by=name)
    server = cluster.text("server")
    if not server:
        raise _broken(cluster.file, f"cluster {chosen.text('cluster')} has no server")
    user = chosen.text("user")
    return Access(
        context=name,
        server=server.rstrip("/"),
        namespace=chosen.text("namespace") or "default",
        user=user or "",
        source=config.where,
        login=_login(_entry(config, "users", user, by=name), cluster) if user else Login(),
        authority=cluster.content_of("certificate-authority"),
        insecure=cluster.content.get("insecure-skip-tls-verify") is True,
        server_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
    )


def _entry(config: Kubeconfig, key: str, name: str, *, by: str = "") -> Entry:
    found = config.entries[key].get(name)
    if found:
        return found
    word = key[:-1]
    if by:
        raise _broken(Path(config.where), f"context {by} names a {word} {name!r} that is not in it")
    raise PrerequisiteError(
        f"the kubeconfig has no {word} {name!r}{suggest.did_you_mean(name, config.entries[key])}",
        where=config.where,
        hint=f"It has {_listed(config.entries[key])}.",
    )


def _login(user: Entry, cluster: Entry) -> Login:
    name = user.text("username")
    return Login(
        token=user.text("token") or _token_of_provider(user),
        token_file=user.path("tokenFile"),
        basic=(name, user.text("password") or "") if name else None,
        certificate=user.content_of("client-certificate"),
        key=user.content_of("client-key"),
        plugin=_plugin(user, cluster),
        impersonate=tuple(_impersonation(user)),
    )


def _plugin(user: Entry, cluster: Entry) -> Plugin | None:
    written = user.content.get("exec")
    if not isinstance(written, dict):
        return None
    if not written.get("command"):
        raise _broken(user.file, "a user's `exec` has no command")
    return Plugin(
        command=str(written["command"]),
        arguments=tuple(map(str, written.get("args") or ())),
        api=str(written.get("apiVersion") or "client.authentication.k8s.io/v1"),
        directory=user.file.parent,
        variables=tuple((str(one["name"]), str(one["value"])) for one in written.get("env") or ()),
        interactive=str(written.get("interactiveMode") or "IfAvailable"),
        install_hint=str(written.get("installHint") or "").strip(),
        cluster=json.dumps(_told(cluster)) if written.get("provideClusterInfo") else None,
    )


def _told(cluster: Entry) -> dict[str, Any]:
    """Return what a plugin hears about its cluster (client.authentication.k8s.io/v1, Cluster)."""
    words = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    told = {word: cluster.content[word] for word in words if word in cluster.content}
    authority = cluster.content_of("certificate-authority")
    if authority:
        told["certificate-authority-data"] = base64.b64encode(authority).decode()
    for one in cluster.content.get("extensions") or ():
        if one.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = one.get("extension")
    return told


def _token_of_provider(user: Entry) -> str | None:
    """Return the token that a login provider of kubectl's own left; who has no such user gets None."""
    provider = user.content.get("auth-provider")
    settings = (provider.get("config") or {}) if isinstance(provider, dict) else {}
    return settings.get("id-token") or settings.get("access-token") or None


def _impersonation(user: Entry) -> list[tuple[str, str]]:
    headers = [("Impersonate-User", user.text("as") or "")] if user.text("as") else []
    headers += [("Impersonate-Uid", user.text("as-uid") or "")] if user.text("as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in user.content.get("as-groups") or ()]
    for key, values in (user.content.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{key}", str(value)) for value in values]
    return headers


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(_read(file, what="the kubeconfig"))
    except yaml.YAMLError as error:
        # The error's own text quotes the line, which may hold a key.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise _broken(file, "it is not YAML" + (f" (line {line + 1})" if line is not None else "")) from None
    if not isinstance(content, dict):
        raise _broken(file, "it is empty" if content is None else "it is not a kubeconfig")
    return content


def _read(path: Path, *, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PrerequisiteError(f"{what} cannot be read: {error.strerror}", where=str(path)) from error


def _broken(file: Path, why: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"the kubeconfig cannot be used: {why}", where=str(file), hint="`kubectl config view` shows what it says."
    )


def _listed(entries: Mapping[str, Entry]) -> str:
    return ", ".join(sorted(entries)) or "none"
