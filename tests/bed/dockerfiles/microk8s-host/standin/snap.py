"""The program `snap`, for the snap of MicroK8s: `python3 -m standin.snap COMMAND...`."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from standin import certs, containers, launch, network, services, snap_files, snap_info, store
from standin.places import (
    BED,
    CHANNELS,
    COMMON,
    DATA,
    PROGRAM,
    ROOT,
    SIDELOAD,
    SNAPD,
    Installed,
    installed,
    lock,
)
from standin.snap_files import AWAY, NO_STORE, VERSION, refuse, refuse_filled, refuse_task

WRAPPER = '#!/bin/sh\nPYTHONPATH=/opt/bed exec python3 -u -m standin.microk8s "$@"\n'
BUSY = Path("/run/snapd.lock")
# The first version that has `snap refresh --hold`.
HOLDS = (2, 58)
# The approximate size of the snap.
SIZE = 200_000_000
BASE = "core22"
# The store's own default is latest/stable.
DEFAULT = "1.34/stable"
USERS_COMMON = Path("/root/snap/microk8s/common")


def version() -> str:
    """Return the version of snapd's daemon; the snap of snapd has a newer one than the host."""
    return VERSION if snap_files.has("snapd") else (BED / "snapd").read_text().strip()


def install(words: Sequence[str]) -> None:
    name = next((word for word in words if not word.startswith("-")), "")
    if snap_files.is_file(name):
        _install_file(name, words)
        return

    if snap_files.is_offline():
        refuse_filled(f'cannot install "{name}": {NO_STORE}')

    if name in (BASE, "snapd"):
        other = snap_files.from_store(name)
        snap_files.add(other)
        print(f"{name} {other.version} from Canonical{snap_info.tick()} installed")
        return

    if name != "microk8s":
        refuse(f'snap "{name}" not found')

    if installed():
        print("snap \"microk8s\" is already installed, see 'snap help refresh'", file=sys.stderr)
        return

    channel, source = _channel(words)
    _need_classic(words)
    found, revision = CHANNELS[source]
    new = Installed(found, str(revision), channel)
    SNAPD.parent.mkdir(parents=True, exist_ok=True)

    if shutil.disk_usage(SNAPD.parent).free < SIZE:
        file = f"/var/lib/snapd/snaps/microk8s_{new.revision}.snap.partial"
        refuse_task(
            f'Download snap "microk8s" ({new.revision}) from channel "{channel}"',
            f"write {file}: no space left on device",
        )

    snap_files.need_prerequisites("microk8s", BASE)
    _begin(new)
    _done(new, "installed", source)


def _install_file(path: str, words: Sequence[str]) -> None:
    """Install a snap from a file, or replace the installed revision by it."""
    is_dangerous = "--dangerous" in words
    found = installed()
    revision = snap_files.revision_of(path, found.revision if found else "", dangerous=is_dangerous)
    meta = snap_files.read(path)
    tells = "" if is_dangerous else f" from Canonical{snap_info.tick()}"

    if meta["name"] != "microk8s":
        kind = "snapd" if meta["name"] == "snapd" else "base"
        snap_files.add(
            snap_files.Other(meta["name"], meta["version"], revision, kind=kind), source=path
        )
        print(f"{meta['name']} {meta['version']}{tells} installed")
        return

    _need_classic(words)
    snap_files.need_prerequisites("microk8s", meta["base"])
    if found is None:
        _begin(Installed(meta["version"], revision), source=path)
    else:
        _replace(found, replace(found, version=meta["version"], revision=revision), source=path)

    print(f"microk8s {meta['version']}{tells} installed")


def _need_classic(words: Sequence[str]) -> None:
    if "--classic" not in words:
        refuse(
            'This revision of snap "microk8s" was published using classic confinement and thus '
            "may perform\n"
            "arbitrary system changes outside of the security sandbox that snaps are usually "
            "confined to,\n"
            "which may put your system at risk.\n\n"
            "If you understand and want to proceed repeat the command including --classic."
        )


def _begin(new: Installed, *, source: str = "") -> None:
    """Do the work of the install hook, and start the services."""
    try:
        document = launch.read()
    except ValueError as error:
        refuse_task(
            'Run install hook of "microk8s" snap if present',
            f'run hook "install": \n-----\n{error}\n-----',
        )

    snap_files.keep("microk8s", new.revision, source=source, version=new.version)
    _make_directories(new)
    services.write_default_arguments()
    launch.before_start(document)
    certs.produce()
    store.new()
    lock("ha-cluster")

    if launch.asks_nothing(document):
        lock(services.WAITS)

    new.write()
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    PROGRAM.write_text(WRAPPER)
    PROGRAM.chmod(0o755)
    services.start("containerd")
    containers.wait()
    services.start()
    # snapd is done once the services are started; addons and a join follow.
    launch.begin()


def _replace(found: Installed, new: Installed, *, source: str = "") -> None:
    """Switch to another revision: the data move with it, and the containers survive."""
    snap_files.keep("microk8s", new.revision, source=source, version=new.version)
    services.stop()
    if new.revision != found.revision:
        shutil.copytree(
            ROOT / found.revision, ROOT / new.revision, symlinks=True, dirs_exist_ok=True
        )
    _point(new)
    new.write()
    services.start()


def _done(new: Installed, what: str, source: str) -> None:
    print(f"microk8s ({source}) {new.version} from Canonical{snap_info.tick()} {what}")
    if source != new.channel:
        print(f"Channel {new.channel} for microk8s is closed; temporarily forwarding to {source}.")


def refresh(words: Sequence[str]) -> None:
    for flag in ("hold", "unhold"):
        is_given = any(word.partition("=")[0] == f"--{flag}" for word in words)
        if is_given and tuple(int(part) for part in re.findall(r"\d+", version())[:2]) < HOLDS:
            refuse(f"unknown flag `{flag}'", 64)

    found = installed()
    if found is None:
        refuse('snap "microk8s" is not installed')

    if "--hold" in words or any(word.startswith("--hold=") for word in words):
        replace(found, held=True).write()
        print('General refreshes of "microk8s" held indefinitely')
        return
    if "--unhold" in words:
        replace(found, held=False).write()
        print('Removed general refresh hold of "microk8s"')
        return

    if snap_files.is_offline():
        refuse_filled(f'cannot refresh "microk8s": {NO_STORE}')

    if found.revision.startswith("x"):
        refuse('local snap "microk8s" is unknown to the store, use --amend to proceed anyway')

    channel, source = _channel(words, DEFAULT if found.channel == "-" else found.channel)
    if channel == found.channel:
        print('snap "microk8s" has no updates available', file=sys.stderr)
        return

    told, revision = CHANNELS[source]
    new = replace(found, version=told, revision=str(revision), channel=channel)
    _replace(found, new)
    _done(new, "refreshed", source)


def remove(words: Sequence[str]) -> None:
    if installed() is None:
        # The requested state is reached already, so snapd exits 0 (error.go,
        # ErrorKindSnapNotInstalled).
        print('snap "microk8s" is not installed', file=sys.stderr)
        return

    services.stop(*services.KUBELITE)
    services.start("containerd")
    containers.remove_all()
    services.stop()
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((path for path in mounts if path.startswith(f"{ROOT}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)

    for path in ROOT.iterdir():
        shutil.rmtree(
            path, ignore_errors=True
        ) if path.is_dir() and not path.is_symlink() else path.unlink()

    for path in (PROGRAM, SNAPD):
        path.unlink(missing_ok=True)

    snap_files.forget("microk8s")
    network.forget()
    print("microk8s removed")


def control(action: Callable[..., None], *, flag: str = "") -> Callable[[Sequence[str]], None]:
    """Return a command that does `action` to services; its `flag` extends it to later boots."""

    def act(words: Sequence[str]) -> None:
        if installed() is None:
            refuse('snap "microk8s" not found')

        # The snap's own name means all of its services.
        names = [
            word.removeprefix("microk8s.")
            for word in words
            if not word.startswith("-") and word != "microk8s"
        ]

        unknown = [name for name in names if name not in services.OF_SERVICE]
        if unknown:
            refuse(f'snap "microk8s" has no service "{unknown[0]}"')

        daemons = tuple(daemon for name in names for daemon in services.OF_SERVICE[name])
        if flag in words:
            services.enable(*daemons) if flag == "--enable" else services.disable(*daemons)

        action(*daemons)

    return act


def boot(words: Sequence[str]) -> None:
    """Start all services but the disabled ones, as a boot does.

    The boot also resumes what an interrupted installation has left to do.
    """
    found = installed()
    if found is None:
        return
    daemons = [name for name in services.expected() if name not in found.disabled]
    if "containerd" in daemons:
        services.start("containerd")
        containers.wait()
    if daemons:
        services.start(*daemons)
        launch.begin()


def _make_directories(new: Installed) -> None:
    for directory in (COMMON, ROOT / new.revision, SIDELOAD):
        directory.mkdir(parents=True, exist_ok=True)
    _point(new)
    # The install hook makes this link, so that device plugins find the kubelet.
    kubelet = Path("/var/lib/kubelet")
    (COMMON / "var/lib/kubelet").mkdir(parents=True, exist_ok=True)
    if not kubelet.exists():
        kubelet.symlink_to(COMMON / "var/lib/kubelet")
    for directory in (USERS_COMMON, COMMON):
        for archive in (directory / "sideload").glob("*.tar"):
            shutil.copy(archive, SIDELOAD)


def _point(new: Installed) -> None:
    DATA.unlink(missing_ok=True)
    DATA.symlink_to(ROOT / new.revision)


def _channel(words: Sequence[str], default: str = DEFAULT) -> tuple[str, str]:
    """Return (requested channel, open channel to install from).

    In place of a closed channel, the next safer one of its track is used.
    """
    given = next(
        (word.partition("=")[2] for word in words if word.startswith("--channel=")), default
    )
    track, _, risk = given.partition("/")
    risk = risk or "stable"
    channel = f"{track}/{risk}"

    if risk not in snap_info.RISKS:
        refuse(
            f"requested channel \"{channel}\" is not valid (see 'snap info microk8s' for valid "
            "ones)"
        )

    safer = [
        f"{track}/{each}" for each in reversed(snap_info.RISKS[: snap_info.RISKS.index(risk) + 1])
    ]
    found = next((each for each in safer if each in snap_info.open_channels()), None)
    if found is None:
        refuse(
            f'snap "microk8s" is not available on {channel} but other tracks exist.\n\n'
            "       Please be mindful that different tracks may include different features.\n"
            "       Get more information with 'snap info microk8s'."
        )

    return channel, found


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "ack": snap_files.acknowledge,
    "boot": boot,
    "info": snap_info.info,
    "install": install,
    "list": snap_info.listed,
    "logs": snap_info.logs,
    "refresh": refresh,
    "remove": remove,
    "restart": control(services.restart),
    "start": control(services.start, flag="--enable"),
    "stop": control(services.stop, flag="--disable"),
}
ASKS = ("info", "list")


def main(words: Sequence[str]) -> None:
    if words[:1] == ["version"]:
        # `snap version` works without a daemon, too.
        print(
            f"snap    {VERSION if version() == AWAY else version()}\nsnapd   {version()}\nseries "
            " 16"
        )
        return

    if not words or words[0] not in COMMANDS:
        refuse(f"unknown command \"{words[0] if words else ''}\", see 'snap help'.")

    if version() == AWAY and words[0] != "boot":
        socket = "dial unix /run/snapd.socket: connect: connection refused"
        refuse(f'cannot communicate with server: Get "http://localhost/v2/snaps": {socket}')

    if words[0] in ASKS:
        COMMANDS[words[0]](words[1:])
        return

    if os.geteuid() != 0:
        refuse("access denied (try with sudo)")

    if words[0] == "logs":
        snap_info.logs(words[1:])
        return

    with BUSY.open("w") as busy:
        try:
            fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse(f'snap "microk8s" has "{words[0]}-snap" change in progress', 10)
        COMMANDS[words[0]](words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
