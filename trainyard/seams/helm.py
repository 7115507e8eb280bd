"""Helm: what a chart defines, which release there is, and a release made, put right or removed.

`--wait` is never used: what is ready is asked of Kubernetes itself. Values travel through stdin, and never in argv.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams import programs
from trainyard.seams.kube.types import Object

INSTALL = "Install Helm 3 (helm.sh/docs/intro/install), or have the KubeRay operator installed by somebody who has it."
# A chart of a repository elsewhere is fetched first; without --wait the rest takes seconds.
SECONDS = 180.0
OCI = "oci://"
# KubeRay's CRDs are a megabyte of YAML: 1 s with libyaml, 15 s without.
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Chart:
    """A chart: a directory or archive here, or a name in a repository (https://..., oci://...) with its version."""

    name: str
    repository: str | None = None
    version: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return what stands for it on Helm's command line."""
        version = ("--version", self.version) if self.version else ()
        if self.repository is None:
            return (self.name,)
        if self.repository.startswith(OCI):
            return (f"{self.repository.rstrip('/')}/{self.name}", *version)
        return (self.name, "--repo", self.repository, *version)


@dataclass(frozen=True)
class Release:
    """A release as Helm knows it: `status` is deployed, pending-install, failed, ...; `description` is who made it."""

    name: str
    revision: int
    status: str
    description: str


@dataclass(frozen=True)
class Helm:
    """Helm on one Kubernetes: of `kubeconfig` (None: as kubectl finds it) and `context` (None: its current one)."""

    environ: Mapping[str, str]
    kubeconfig: str | None = None
    context: str | None = None

    def crds(self, chart: Chart) -> list[Object]:
        """Return the CRDs that a chart brings; nothing of Kubernetes is asked."""
        output = self._run(["show", "crds", *chart.arguments], doing=f"read the chart {chart.name}")
        try:
            found = [document for document in yaml.load_all(output, Loader=_SAFE) if isinstance(document, dict)]
        except yaml.YAMLError as error:
            raise OutsideError(f"the CRDs of the chart {chart.name} are no YAML", where=str(error)) from error
        return [document for document in found if document.get("kind") == "CustomResourceDefinition"]

    def release(self, name: str, namespace: str) -> Release | None:
        """Return a release, None if there is none of that name; one that was uninstalled is none."""
        command = ["status", name, *self._in(namespace), "--output", "json"]
        output = self._run(command, doing=f"ask for the release {name}", unless="release: not found")
        found = _json(output) if output else {}
        info = found.get("info") or {}
        status = str(info.get("status", "unknown"))
        if not found or status in ("uninstalled", "uninstalling"):
            return None
        return Release(name, int(found.get("version", 0)), status, str(info.get("description", "")))

    def install(self, name: str, chart: Chart, namespace: str, values: Mapping[str, Any], *, description: str) -> None:
        """Install or upgrade a release in a namespace that is there; its CRDs are left to the caller."""
        command = ["upgrade", name, *chart.arguments, "--install", "--skip-crds", *self._in(namespace)]
        command += ["--description", description, "--values", "-"]
        self._run(command, doing=f"install {name}", stdin=json.dumps(dict(values)))

    def uninstall(self, name: str, namespace: str) -> None:
        self._run(["uninstall", name, *self._in(namespace)], doing=f"remove {name}")

    def recover(self, name: str, namespace: str) -> None:
        """Put right a release whose Helm was killed: back to what ran before it, or away if nothing did.

        Helm itself refuses to touch such a release: "another operation (install/upgrade/rollback) is in progress".
        """
        history = self._run(["history", name, *self._in(namespace), "--output", "json"], doing=f"look back at {name}")
        ran = [each["revision"] for each in _json(history) if each.get("status") in ("deployed", "superseded")]
        if ran:
            self._run(["rollback", name, str(max(ran)), *self._in(namespace)], doing=f"put {name} back")
        else:
            self.uninstall(name, namespace)

    def _in(self, namespace: str) -> tuple[str, ...]:
        context = ("--kube-context", self.context) if self.context else ()
        return ("--namespace", namespace, *context)

    def _run(self, arguments: Sequence[str], *, doing: str, stdin: str = "", unless: str = "") -> str:
        """Return what Helm printed without its warnings, "" where it failed with words that are no failure to us."""
        helm = programs.find("helm", self.environ, hint=INSTALL)
        lines: list[str] = []
        env = dict(self.environ) | ({"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {})
        ended = programs.run([helm, *arguments], env=env, stdin=stdin.encode(), on_line=lines.append, seconds=SECONDS)
        output = "\n".join(line for line in lines if not line.startswith(("WARNING:", "W0", "W1", "I0", "I1")))
        if ended.code == 0:
            return output
        if unless and unless in output:
            return ""
        why = _last(output)
        if ended.code < 0:
            raise NotReadyError(f"Helm did not {doing} within {SECONDS:.0f} s", where=why)
        if "forbidden" in why.lower():
            raise PrerequisiteError(f"you may not {doing}", where=why, hint="Ask whoever runs this Kubernetes.")
        raise OutsideError(f"Helm could not {doing}", where=why)


def _json(output: str) -> Any:
    """Return the document in what Helm printed; plugins and libraries print lines of their own before it."""
    lines = output.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith(("{", "["))), None)
    try:
        return json.loads("\n".join(lines[start:]) if start is not None else "")
    except ValueError as error:
        raise OutsideError("Helm answered something that is no JSON", where=output[-300:]) from error


def _last(output: str) -> str:
    """Return Helm's own reason: what stands behind "Error:", else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("Error:").strip() for line in lines if line.startswith("Error:")]
    return (errors or lines or ["it said nothing"])[-1][:600]
