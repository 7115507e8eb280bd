"""Offline hosts, to which this machine copies snaps and images."""

from __future__ import annotations

from pathlib import Path

from trainyard.backends.microk8s.facts import LOADED, SIDELOAD, Facts
from trainyard.backends.microk8s.lab import Host, Lab, each_step
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.spec.microk8s import Microk8sSection
from trainyard.steps import Step, nothing
from trainyard.wording import counted, named

# Containerd unpacks images of some GB, perhaps on a slow disk.
LOAD_SECONDS = 600.0
# The snap has a few hundred MB, and the store may be slow.
INSTALL_SECONDS = 900.0
ON_HOST = "/var/tmp"  # noqa: S108 (root writes there, and each file gets a new name)


def snap_files(section: Microk8sSection, directory: Path) -> tuple[Path, ...]:
    """Return the paths of the file's snaps.

    Raises PrerequisiteError if one does not exist.
    """
    found = tuple(_path(name, directory) for name in section.snap)
    missing = [str(path) for path in found if not path.is_file()]
    if missing:
        hint = (
            "On a machine that reaches the store, run `snap download` for snapd, core22 and "
            "microk8s --channel=1.34/stable"
        )
        raise PrerequisiteError(f"no such file: {named(missing)}", where="microk8s.snap", hint=hint)
    return found


def unverified(lab: Lab) -> str:
    """Return a warning about snap files that snapd cannot verify, or ""."""
    found = [path.name for path in lab.snaps if not path.with_suffix(".assert").is_file()]
    if found:
        return (
            f"{named(found)}: no .assert next to it, so that snapd verifies nothing (--dangerous)"
        )
    return ""


def image_files(section: Microk8sSection, directory: Path) -> tuple[Path, ...]:
    """Return the *.tar files in the directory microk8s.images.

    Raises PrerequisiteError if there are none.
    """
    if section.images is None:
        return ()
    place = _path(section.images, directory)
    found = tuple(sorted(place.glob("*.tar")))
    if not found:
        hint = "On a host whose MicroK8s has the images: microk8s images export-local > images.tar"
        raise PrerequisiteError(f"{place} has no *.tar", where="microk8s.images", hint=hint)
    return found


def put_step(lab: Lab) -> Step:
    """Return the step that copies images to hosts, even without MicroK8s."""

    def lacks(_: Host, fact: Facts) -> str:
        missing = [path.name for path in _missing(lab, fact, among=("", LOADED))]
        return f"lacks {named(missing)}" if missing else ""

    def put(host: Host) -> None:
        host.root("mkdir", "-p", SIDELOAD)
        for path in _missing(lab, lab.fact(host), among=("", LOADED)):
            host.connection.put(f"{SIDELOAD}/{path.name}", path)

    return each_step(lab, "image-files", f"Every host has {_files(lab)}", lacks, put)


def loaded_step(lab: Lab, *, after: str) -> Step:
    """Return the step that waits for all hosts to load the image files."""

    def lacks(_: Host, fact: Facts) -> str:
        waiting = [path.name for path in _missing(lab, fact, among=(LOADED,))]
        if waiting:
            return f"has not loaded {named(waiting)}: snap logs microk8s.daemon-containerd says why"
        return ""

    title = f"Load {_files(lab)} on every host"
    return each_step(
        lab, "load-images", title, lacks, lambda _: nothing(), deadline=LOAD_SECONDS, after=after
    )


def install(host: Host, lab: Lab) -> None:
    """Install MicroK8s, and each other snap file that the host lacks."""
    *needed, microk8s = lab.snaps
    for path in needed:
        name = path.name.partition("_")[0].removesuffix(".snap")
        if host.root("snap", "list", name, check=False).code != 0:
            _install(host, path)
    _install(host, microk8s, "--classic")


def refuse_another(lab: Lab, host: Host, fact: Facts) -> None:
    """Raise RequestError if MicroK8s differs in size from the snap file."""
    file = lab.snaps[-1]
    if fact.snap is None or fact.snap_bytes == file.stat().st_size:
        return
    raise RequestError(
        f"{host.name} runs another MicroK8s ({fact.snap.version}) than {file.name}",
        where="microk8s.snap",
        hint="Trainyard upgrades only along a channel. On one host after the other: sudo snap ack "
        "FILE.assert, and sudo snap install FILE.snap --classic",
    )


def _install(host: Host, path: Path, *flags: str) -> None:
    there = f"{ON_HOST}/trainyard-{path.name}"
    assertion = path.with_suffix(".assert")
    try:
        host.connection.put(there, path)
        if assertion.is_file():
            host.connection.put(f"{there}.assert", assertion)
            host.root("snap", "ack", f"{there}.assert")
        else:
            # A snap that was built locally has no assertion.
            flags = (*flags, "--dangerous")
        host.root("snap", "install", there, *flags, seconds=INSTALL_SECONDS)
    finally:
        host.root("rm", "-f", there, f"{there}.assert", check=False)


def _missing(lab: Lab, fact: Facts, *, among: tuple[str, ...]) -> list[Path]:
    """Return the image files that a host lacks.

    A file on the host counts if it has the same size, and the same name plus
    one of the endings `among`.
    """
    missing = []
    for path in lab.images:
        size = path.stat().st_size
        if not any(fact.images.get(path.name + ending) == size for ending in among):
            missing.append(path)
    return missing


def _files(lab: Lab) -> str:
    return counted(len(lab.images), "image file")


def _path(name: str, directory: Path) -> Path:
    return directory / Path(name).expanduser()
