"""A cluster's record, for this user alone: backend, cluster file and token."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from trainyard.errors import OutsideError
from trainyard.spec.cluster import Backend as BackendName
from trainyard.steps import YES, Answer, Step, no

# KubeRay's key of a token (ray-operator/controllers/ray/utils/constant.go).
TOKEN_KEY = "auth_token"  # noqa: S105 (a key's name)
_RECORD = "cluster.json"
_MADE_FROM = "made-from"


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically by one that only this user can read."""
    # Threads may write at once, so each needs its own temporary file; tempfile gives it mode 0600.
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        file.write(text)
    Path(file.name).replace(path)


def read_token(path: Path) -> str | None:
    if path.exists():
        return path.read_text().strip()
    return None


def make_token(path: Path) -> None:
    if not path.exists():
        write_private(path, secrets.token_hex(32))


def forget_step(state: Path, *, title: str = "Remove the cluster's record") -> Step:
    """Return the step that deletes a cluster's record.

    It must be the last step: after a killed `down`, the next `down` needs the
    record.
    """

    def done() -> Answer:
        if state.exists():
            return no(f"still there: {state}")
        return YES

    def forget() -> None:
        shutil.rmtree(state, ignore_errors=True)

    return Step("forget", title, done, forget)


def read_json(path: Path) -> Any:
    """Return a JSON file's content; None without a file.

    Raises OutsideError for invalid JSON.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def write_cluster(state: Path, backend: str, facts: Mapping[str, Any]) -> None:
    """Record the backend, and `facts` by which commands find the cluster."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    state.chmod(0o700)
    write_private(state / _RECORD, json.dumps({"backend": backend, **facts}, indent=2))


def read_cluster(state: Path, backend: str) -> dict[str, Any] | None:
    if recorded_backend(state) == backend:
        return _record(state)
    return None


def recorded_backend(state: Path) -> str | None:
    """Return the backend that made a cluster; None without a record.

    Raises OutsideError if the record is damaged, or this version lacks the
    backend.
    """
    record = _record(state)
    if record is None:
        return None

    name = str(record["backend"])
    if name not in get_args(BackendName):
        raise OutsideError(
            f"the cluster was made by a backend that this version of Trainyard lacks: {name}",
            where=str(state / _RECORD),
            hint="Use the version that made it.",
        )
    return name


def _record(state: Path) -> dict[str, Any] | None:
    path = state / _RECORD
    record = read_json(path)
    if record is None and not path.exists():
        return None
    if not isinstance(record, dict) or "backend" not in record:
        raise _damaged(path, "it names no backend")
    return record


def _damaged(path: Path, reason: str) -> OutsideError:
    return OutsideError(
        f"the record of a cluster is damaged: {reason}",
        where=str(path),
        hint="Remove this file. Then end what still runs: trainyard cluster.down; or make the "
        "cluster again: trainyard cluster.up",
    )


def write_made_from(state: Path, file: Path, overrides: Sequence[str]) -> None:
    write_private(state / _MADE_FROM, json.dumps({"file": str(file), "overrides": overrides}))


def made_from(state: Path) -> Path | None:
    """Return the file that the cluster was made from."""
    found = read_json(state / _MADE_FROM)
    if found is None:
        return None
    return Path(found["file"])


def made_with(state: Path) -> tuple[str, ...] | None:
    """Return the `--set` values that the cluster was made with."""
    found = read_json(state / _MADE_FROM)
    if found is None:
        return None
    return tuple(found["overrides"])


def secret_token(secret: Mapping[str, Any]) -> str | None:
    """Return a Kubernetes Secret's token; None if missing or unreadable."""
    written = (secret.get("data") or {}).get(TOKEN_KEY) or ""
    try:
        return base64.b64decode(written).decode().strip() or None
    except (binascii.Error, UnicodeDecodeError):
        return None
