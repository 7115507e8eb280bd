"""Programs that log in to a Kubernetes API server: those of cloud providers, kubelogin and the like.

(kubernetes.io/docs/reference/access-authn-authz/authentication, "client-go credential plugins")
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.access import Plugin

# A person may have to log in through a browser meanwhile.
SECONDS = 180.0


@dataclass(frozen=True)
class Credential:
    """What a plugin gave: a token, a certificate with its key, or both; `ends` in seconds since 1970."""

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    ends: float | None = None


def run(plugin: Plugin, environ: Mapping[str, str]) -> Credential:
    """Ask a plugin for a credential. Raises PrerequisiteError if it is not installed, fails, or gives none."""
    talks = plugin.interactive != "Never" and sys.stdin.isatty() and sys.stderr.isatty()
    command = _found(plugin, environ)
    said = {"apiVersion": plugin.api, "kind": "ExecCredential", "spec": {"interactive": talks}}
    if plugin.cluster:
        said["spec"] = {"interactive": talks, "cluster": json.loads(plugin.cluster)}
    try:
        ended = subprocess.run(
            [command, *plugin.arguments],
            env={**environ, **dict(plugin.variables), "KUBERNETES_EXEC_INFO": json.dumps(said)},
            stdin=None if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if talks else subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(plugin, f"it did not end within {SECONDS:.0f} s") from error
    except OSError as error:
        raise _failed(plugin, error.strerror or str(error)) from error
    if ended.returncode != 0:
        raise _failed(plugin, _last_line(ended.stderr) or f"it ended with exit code {ended.returncode}")
    return _credential(plugin, ended.stdout)


def _found(plugin: Plugin, environ: Mapping[str, str]) -> str:
    """Return the program's path: a relative one is the kubeconfig's neighbour."""
    name = plugin.command
    if "/" in name:
        name = str(plugin.directory / Path(name).expanduser())
    path = shutil.which(name, path=environ.get("PATH"))
    if path is None:
        raise PrerequisiteError(
            f"{plugin.command} is not installed, and the kubeconfig logs in with it",
            hint=plugin.install_hint.splitlines()[0] if plugin.install_hint else f"Install {plugin.command}.",
        )
    return path


def _credential(plugin: Plugin, output: bytes) -> Credential:
    try:
        status: Mapping[str, Any] = json.loads(output)["status"]
        ends = status.get("expirationTimestamp")
        credential = Credential(
            token=status.get("token"),
            certificate=_pem(status.get("clientCertificateData")),
            key=_pem(status.get("clientKeyData")),
            ends=datetime.fromisoformat(ends.replace("Z", "+00:00")).timestamp() if ends else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        # Neither what it printed nor the error about it, which quotes that, may be shown: a token may be in it.
        raise _failed(plugin, "what it printed is no ExecCredential with a status") from None
    if not credential.token and not (credential.certificate and credential.key):
        raise _failed(plugin, "it gave neither a token nor a certificate with its key")
    return credential


def _failed(plugin: Plugin, why: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"{plugin.command} could not log in to the cluster",
        where=why,
        hint=f"Log in by hand and try again; `kubectl get pods` runs {plugin.command} in the same way.",
    )


def _pem(text: str | None) -> bytes | None:
    return text.encode() if text else None


def _last_line(output: bytes | None) -> str:
    lines = (output or b"").decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:500] if lines else ""
