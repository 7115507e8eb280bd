"""Helm: read a chart's CRDs and a release's state, install and remove releases.

`--wait` is never used: Kubernetes itself is asked for readiness. Values go
through stdin, never through argv.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams import programs
from trainyard.seams.kube.types import Object

INSTALL = (
    "Install Helm 3 (helm.sh/docs/intro/install), or have the KubeRay operator installed "
    "by an administrator."
)
UNREACHABLE = (
    "If this machine cannot reach that repository, `helm pull` the chart on one that can, and "
    "name the directory or .tgz in the cluster file (kuberay.operator.chart). Or name a mirror "
    "(kuberay.operator.repository)."
)
# Texts of Go's HTTP client about a server that does not answer.
_SILENT = ("no such host", "connection refused", "i/o timeout", "unreachable", "x509:")
# Mostly for fetching a remote chart; without --wait, the rest takes seconds.
SECONDS = 180.0
# KubeRay's CRDs are a megabyte of YAML: 1 s with libyaml, 15 s without.
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Chart:
    """A chart: a path, or a name and version in an OCI or HTTPS repository."""

    name: str
    repository: str | None = None
    version: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return Helm's arguments that name the chart."""
        if self.repository is None:
            return (self.name,)

        version = ("--version", self.version) if self.version else ()
        if self.repository.startswith("oci://"):
            return (f"{self.repository.rstrip('/')}/{self.name}", *version)
        return (self.name, "--repo", self.repository, *version)


@dataclass(frozen=True)
class Release:
    """A release: `status` is deployed, pending-install, failed, ...

    Each installation sets `description`, which marks Trainyard's releases.
    """

    status: str
    description: str


@dataclass(frozen=True)
class Helm:
    """Helm for the Kubernetes cluster of one context of a kubeconfig."""

    environ: Mapping[str, str]
    kubeconfig: str
    context: str

    def crds(self, chart: Chart) -> list[Object]:
        """Return a chart's CRDs, without asking Kubernetes."""
        output = self._run(["show", "crds", *chart.arguments], doing=f"read the chart {chart.name}")
        crds = []
        for document in yaml.load_all(output, Loader=_SAFE):
            if document and document.get("kind") == "CustomResourceDefinition":
                crds.append(document)
        return crds

    def release(self, name: str, namespace: str) -> Release | None:
        """Return a release; None if there is none, or if it was uninstalled."""
        command = ["status", name, *self._in(namespace), "--output", "json"]
        output = self._run(
            command, doing=f"ask for the release {name}", unless="release: not found"
        )
        # Plugins and libraries may print lines of their own before the JSON.
        start = output.find("{")
        if start < 0:
            return None

        info = json.loads(output[start:])["info"]
        if not info or info["status"] in ("uninstalled", "uninstalling"):
            return None
        return Release(info["status"], str(info.get("description", "")))

    def install(
        self,
        name: str,
        chart: Chart,
        namespace: str,
        values: Mapping[str, Any],
        *,
        description: str,
    ) -> None:
        """Install or upgrade a release, without its CRDs.

        The namespace must exist.
        """
        command = ["upgrade", name, *chart.arguments, "--install", "--skip-crds"]
        command += [*self._in(namespace), "--description", description, "--values", "-"]
        self._run(command, doing=f"install {name}", stdin=json.dumps(dict(values)))

    def uninstall(self, name: str, namespace: str) -> None:
        self._run(["uninstall", name, *self._in(namespace)], doing=f"remove {name}")

    def _in(self, namespace: str) -> tuple[str, ...]:
        return ("--namespace", namespace, "--kube-context", self.context)

    def _run(
        self, arguments: Sequence[str], *, doing: str, stdin: str = "", unless: str = ""
    ) -> str:
        """Run Helm and return its output without warnings.

        Returns "" if Helm fails and its output has `unless`. Raises
        PrerequisiteError without Helm or if Kubernetes forbids the request,
        OutsideError for any other failure.
        """
        helm = programs.find("helm", self.environ, hint=INSTALL)
        lines: list[str] = []
        env = {**self.environ, "KUBECONFIG": self.kubeconfig}
        ended = programs.run(
            [helm, *arguments], env=env, stdin=stdin.encode(), on_line=lines.append, seconds=SECONDS
        )
        warnings = ("WARNING:", "W0", "W1", "I0", "I1")
        output = "\n".join(line for line in lines if not line.startswith(warnings))
        if ended.code == 0:
            return output
        if unless and unless in output:
            return ""

        why = output.rpartition("Error:")[2].strip()[-600:] or f"exit code {ended.code}"
        error: type[TrainyardError] = OutsideError
        if "forbidden" in why.lower():
            error = PrerequisiteError

        hint = None
        if any(words in why for words in _SILENT):
            hint = UNREACHABLE
        raise error(f"Helm could not {doing}", where=why, hint=hint)
