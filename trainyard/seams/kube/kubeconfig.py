"""What kubeconfig files say about a context: several merge into one, the first that says something counts.

(kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig) The library reads them again to log in;
who can use them is asked here, where it can be said what is wrong with which file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainyard import suggest
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.access import Access

LISTS = ("clusters", "contexts", "users")
# The library does not act as somebody else, and would silently act as the user instead.
IMPERSONATION = ("as", "as-groups", "as-uid", "as-user-extra")


@dataclass(frozen=True)
class Entry:
    """A cluster, a context or a user of a kubeconfig, and the file that it stands in."""

    content: Mapping[str, Any]
    file: Path

    def text(self, key: str) -> str:
        """Return what stands there, or nothing."""
        return str(self.content.get(key) or "")


@dataclass(frozen=True)
class Kubeconfig:
    """What the files say together: entries by list and name."""

    files: tuple[Path, ...]
    entries: Mapping[str, Mapping[str, Entry]]
    current: str

    @property
    def where(self) -> str:
        """Return where it was read."""
        return ", ".join(map(str, self.files))


def load(files: Sequence[Path]) -> Kubeconfig:
    """Read files that exist. Raises PrerequisiteError for one that cannot be read, or is none."""
    entries: dict[str, dict[str, Entry]] = {key: {} for key in LISTS}
    current = ""
    for file in files:
        content = _parse(file)
        current = current or str(content.get("current-context") or "")
        for key in LISTS:
            for name, entry in _named(content.get(key), key[:-1]):
                entries[key].setdefault(name, Entry(entry, file))
    return Kubeconfig(tuple(files), entries, current)


def access(config: Kubeconfig, context: str | None, environ: Mapping[str, str]) -> Access:
    """Return the way that a context describes; None is the current one.

    Raises PrerequisiteError if it cannot be gone: no such context, or the program that logs in is not installed.
    """
    name = context or config.current
    if not name:
        raise PrerequisiteError(
            "the kubeconfig has no current context",
            where=config.where,
            hint=f"Name one in the cluster file (context: ...); it has {_listed(config.entries['contexts'])}.",
        )
    chosen = config.entries["contexts"].get(name)
    if chosen is None:
        raise PrerequisiteError(
            f"the kubeconfig has no context {name!r}{suggest.did_you_mean(name, config.entries['contexts'])}",
            where=config.where,
            hint=f"It has {_listed(config.entries['contexts'])}.",
        )
    cluster = _part(config, chosen, name, "cluster")
    if not cluster.text("server"):
        raise _broken(cluster.file, f"cluster {chosen.text('cluster')} has no server")
    user = _part(config, chosen, name, "user") if chosen.text("user") else None
    return Access(
        context=name,
        server=cluster.text("server").rstrip("/"),
        namespace=chosen.text("namespace") or "default",
        user=chosen.text("user"),
        files=config.files,
        plugin=_plugin(user, chosen.text("user"), environ) if user else None,
        proxy=cluster.text("proxy-url") or None,
    )


def _named(listed: Any, word: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and one.get("name"):
            content = one.get(word)
            yield str(one["name"]), content if isinstance(content, dict) else {}


def _part(config: Kubeconfig, chosen: Entry, context: str, word: str) -> Entry:
    """Return the cluster or the user that a context names."""
    found = config.entries[f"{word}s"].get(chosen.text(word))
    if found is None:
        raise _broken(chosen.file, f"context {context} names a {word} {chosen.text(word)!r} that is not there")
    return found


def _plugin(user: Entry, name: str, environ: Mapping[str, str]) -> str | None:
    """Return the program that logs in."""
    if any(user.content.get(word) for word in IMPERSONATION):
        raise PrerequisiteError(
            f"user {name} of the kubeconfig acts as somebody else (`as`), which Trainyard cannot",
            where=str(user.file),
            hint="Use a context whose user has these rights itself.",
        )
    written = user.content.get("exec")
    command = str(written.get("command") or "") if isinstance(written, dict) else ""
    if not command:
        return None
    path = str(user.file.parent / command) if "/" in command else command
    if shutil.which(path, path=environ.get("PATH")) is None:
        hint = str(written.get("installHint") or "").strip() if isinstance(written, dict) else ""
        raise PrerequisiteError(
            f"{command} is not installed, and the kubeconfig logs in with it",
            where=f"user {name} of {user.file}",
            hint=hint.splitlines()[0] if hint else f"Install {command}.",
        )
    return command


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise PrerequisiteError(f"the kubeconfig cannot be read: {error.strerror}", where=str(file)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The error's own text quotes the line, and a key may stand there.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise _broken(file, "it is not YAML" + (f" (line {line + 1})" if line is not None else "")) from None
    if not isinstance(content, dict):
        raise _broken(file, "it is empty" if content is None else "it is not a kubeconfig")
    return content


def _broken(file: Path, why: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"the kubeconfig cannot be used: {why}", where=str(file), hint="`kubectl config view` shows what it says."
    )


def _listed(entries: Mapping[str, Entry]) -> str:
    return ", ".join(sorted(entries)) or "none"
