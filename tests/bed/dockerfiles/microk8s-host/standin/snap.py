"""The command `snap`, for the one snap that there is. `python3 -m standin.snap COMMAND...`."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NoReturn

from standin import certs, containers, launch, network, services, store
from standin.places import BED, CHANNELS, COMMON, DATA, PROGRAM, ROOT, SNAPD, Installed, installed, lock

WRAPPER = '#!/bin/sh\nPYTHONPATH=/opt/bed exec python3 -u -m standin.microk8s "$@"\n'
BUSY = Path("/run/snapd.lock")
CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")
# The version of a host's snapd, unless /etc/bed/snapd has another one, or says that its daemon is away.
VERSION, AWAY = "2.72", "unavailable"
# The first with `snap refresh --hold`.
HOLDS = (2, 58)
# The snap of snapd, whose version counts then.
OWN_SNAP = Path("/var/lib/snapd/snaps/snapd_1.snap")
# What the snap takes, about.
SIZE = 200_000_000


def refuse(message: str, code: int = 1) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def listed(words: Sequence[str]) -> None:
    found = installed()
    if found is None or (words and words[0] != "microk8s"):
        refuse("no matching snaps installed" if words else "no snaps are installed yet")
    notes = ",".join(["classic", *(["held"] if found.held else []), *([] if found.enabled else ["disabled"])])
    print("Name      Version  Rev   Tracking     Publisher   Notes")
    print(f"microk8s  {found.version}  {found.revision}  {found.channel}  canonical✓  {notes}")


def version() -> str:
    """Return the version of the daemon."""
    told = BED / "snapd"
    return told.read_text().strip() if told.exists() and not OWN_SNAP.exists() else VERSION


def install(words: Sequence[str]) -> None:
    if words[:1] == ["snapd"]:
        OWN_SNAP.parent.mkdir(parents=True, exist_ok=True)
        OWN_SNAP.touch()
        print(f"snapd {VERSION} from Canonical✓ installed")
        return
    if "microk8s" not in words:
        refuse(f'snap "{words[0]}" not found')
    found = installed()
    if found:
        print("snap \"microk8s\" is already installed, see 'snap help refresh'")
        return
    if "--classic" not in words:
        refuse(
            'This revision of snap "microk8s" was published using classic confinement and thus may perform\n'
            "arbitrary system changes outside of the security sandbox that snaps are usually confined to,\n"
            "which may put your system at risk.\n\n"
            "If you understand and want to proceed repeat the command including --classic."
        )
    new = Installed(_channel(words))
    SNAPD.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(SNAPD.parent).free < SIZE:
        file = f"/var/lib/snapd/snaps/microk8s_{new.revision}.snap.partial"
        refuse(
            f'cannot perform the following tasks:\n- Download snap "microk8s" ({new.revision}) from channel '
            f'"{new.channel}" (write {file}: no space left on device)'
        )
    try:
        document = launch.read()
    except ValueError as error:
        refuse(
            f'cannot perform the following tasks:\n- Run install hook of "microk8s" snap if present '
            f'(run hook "install": \n-----\n{error}\n-----)'
        )
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
    # snapd is done when the services are started; addons and a join come after it.
    launch.begin()
    print(f"microk8s ({new.channel}) {new.version} from Canonical✓ installed")


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
    channel = _channel(words, found.channel)
    if channel == found.channel:
        print('snap "microk8s" has no updates available')
        return
    new = replace(found, channel=channel)
    services.stop()
    # Data goes on under the new revision's directory; containers outlive a refresh.
    shutil.copytree(ROOT / str(found.revision), ROOT / str(new.revision), symlinks=True, dirs_exist_ok=True)
    _point(new)
    new.write()
    services.start()
    print(f"microk8s ({new.channel}) {new.version} from Canonical✓ refreshed")


def remove(words: Sequence[str]) -> None:
    if installed() is None:
        refuse('snap "microk8s" is not installed')
    services.stop(*services.KUBELITE)
    services.start("containerd")
    containers.remove_all()
    services.stop()
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((path for path in mounts if path.startswith(f"{ROOT}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
    for path in ROOT.iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in (PROGRAM, SNAPD):
        path.unlink(missing_ok=True)
    network.forget()
    print("microk8s removed")


def logs(words: Sequence[str]) -> None:
    """Print the last lines of all services, as `snap logs [-n N] microk8s` does: TIME SERVICE[PID]: MESSAGE."""
    if installed() is None:
        refuse('snap "microk8s" not found')
    count = int(words[words.index("-n") + 1]) if "-n" in words else 10
    said = []
    started = [(service, daemon) for service, daemons in services.OF_SERVICE.items() for daemon in daemons]
    for service, daemon in started:
        log, pid = Path(f"/var/log/microk8s.{daemon}.log"), Path(f"/run/unit/microk8s.{daemon}.pid")
        sender = f"microk8s.{service}[{pid.read_text().strip() if pid.exists() else 1}]"
        moment = "00:00:00"
        for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
            # A line without a time is of the one before it.
            moment = found[0] if (found := CLOCK.search(line)) else moment
            said.append((moment, f"{date.today()}T{moment}Z {sender}: {line}"))
    for _, text in sorted(said, key=lambda entry: entry[0])[-count:]:
        print(text)


def control(action: Callable[..., None], *, flag: str = "") -> Callable[[Sequence[str]], None]:
    """Return the command that does it with services; with the flag, boots from now on do so too."""

    def act(words: Sequence[str]) -> None:
        if installed() is None:
            refuse('snap "microk8s" not found')
        # The snap's own name means all of them.
        names = [word.removeprefix("microk8s.") for word in words if not word.startswith("-") and word != "microk8s"]
        unknown = [name for name in names if name not in services.OF_SERVICE]
        if unknown:
            refuse(f'snap "microk8s" has no service "{unknown[0]}"')
        daemons = tuple(daemon for name in names for daemon in services.OF_SERVICE[name])
        if flag in words:
            services.enable(*daemons) if flag == "--enable" else services.disable(*daemons)
        action(*daemons)

    return act


def boot(words: Sequence[str]) -> None:
    """Start what a boot starts: all but what was disabled, and what an installation that was cut off left to do."""
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
    for directory in (COMMON, ROOT / str(new.revision)):
        directory.mkdir(parents=True, exist_ok=True)
    _point(new)
    # As the install hook does, so that device plugins find the kubelet.
    kubelet = Path("/var/lib/kubelet")
    (COMMON / "var/lib/kubelet").mkdir(parents=True, exist_ok=True)
    if not kubelet.exists():
        kubelet.symlink_to(COMMON / "var/lib/kubelet")


def _point(new: Installed) -> None:
    DATA.unlink(missing_ok=True)
    DATA.symlink_to(ROOT / str(new.revision))


def _channel(words: Sequence[str], default: str = "1.34/stable") -> str:
    given = next((word.partition("=")[2] for word in words if word.startswith("--channel=")), default)
    channel = given if "/" in given else f"{given}/stable"
    if channel not in CHANNELS:
        refuse(f'snap "microk8s" is not available on {channel} but is available to install on the following channels: ')
    return channel


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "boot": boot,
    "install": install,
    "list": listed,
    "logs": logs,
    "refresh": refresh,
    "remove": remove,
    "restart": control(services.restart),
    "start": control(services.start, flag="--enable"),
    "stop": control(services.stop, flag="--disable"),
}
ASKS = ("list", "version")


def main(words: Sequence[str]) -> None:
    if words[:1] == ["version"]:
        # Where no daemon answers, too.
        print(f"snap    {VERSION if version() == AWAY else version()}\nsnapd   {version()}\nseries  16")
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
        logs(words[1:])
        return
    with BUSY.open("w") as busy:
        try:
            fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse(f'snap "microk8s" has "{words[0]}-snap" change in progress', 10)
        COMMANDS[words[0]](words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
