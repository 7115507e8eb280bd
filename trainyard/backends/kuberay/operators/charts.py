"""The Helm chart that a cluster file means: one of a repository, or a directory or archive of this machine."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import yaml

from trainyard.errors import PrerequisiteError
from trainyard.seams.helm import Chart
from trainyard.spec.kubernetes import Operator as Section

_FILE = "Chart.yaml"


def chart_of(section: Section, *, directory: Path) -> Chart:
    """Return the chart; a path is one of the user's directory, and has no repository."""
    if not is_path(section):
        return Chart(section.chart, repository=section.repository, version=section.version)
    return Chart(str(_place(section, directory)), repository=None, version=None)


def version_of(section: Section, *, directory: Path) -> str:
    """Return the chart's version: what the file says of a repository's, what is in it of one that is here.

    Raises PrerequisiteError if there is none.
    """
    if not is_path(section):
        return section.version
    place = _place(section, directory)
    try:
        found = yaml.safe_load(_text(place))
    except (OSError, tarfile.TarError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _no_chart(place, why) from error
    version: Any = found.get("version") if isinstance(found, dict) else None
    if not version:
        raise _no_chart(place, f"its {_FILE} names no version")
    return str(version)


def is_path(section: Section) -> bool:
    """Say whether the chart is on this machine."""
    return section.chart.startswith((".", "/", "~")) or section.chart.endswith(".tgz")


def _place(section: Section, directory: Path) -> Path:
    return directory / Path(section.chart).expanduser()


def _text(place: Path) -> bytes:
    if place.is_dir():
        return (place / _FILE).read_bytes()
    with tarfile.open(place) as archive:
        # Charts within a chart have one too, further down.
        member = next((one for one in archive if one.name.count("/") == 1 and one.name.endswith(f"/{_FILE}")), None)
        content = archive.extractfile(member) if member else None
        if content is None:
            raise tarfile.TarError(f"it has no {_FILE}")
        return content.read()


def _no_chart(place: Path, why: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"there is no Helm chart at {place}",
        where=why,
        hint="kuberay.operator.chart: a chart's name, a directory, or a .tgz as `helm pull` makes it.",
    )
