"""`snap list`, `snap info` and `snap logs`, as snapd prints them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from standin import services, snap_files
from standin.places import BED, CHANNELS, installed

CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")
RISKS = ("stable", "candidate", "beta", "edge")
SIZE = "181MB"
SUMMARY = "Kubernetes for workstations and appliances"
DESCRIPTION = "MicroK8s is a small, fast, secure, single node Kubernetes that installs on"


def can_unicode() -> bool:
    """Say whether to print characters beyond ASCII: as `--unicode` says, else on UTF-8 terminals.

    The rule is that of snapd's color.go.
    """
    for word in sys.argv:
        if word.startswith("--unicode="):
            return word.endswith("=always")
    language = (
        os.environ.get("LC_MESSAGES") or os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    )
    return sys.stdout.isatty() and "UTF" in language.upper()


def tick() -> str:
    """Return the sign that follows the name of a verified publisher."""
    return "✓" if can_unicode() else "**"


def open_channels() -> list[str]:
    """Return the channels with a release; a test may have closed some."""
    closed = BED / "closed-channels"
    return [
        channel
        for channel in CHANNELS
        if not closed.exists() or channel not in closed.read_text().split()
    ]


def listed(words: Sequence[str]) -> None:
    names = [word for word in words if not word.startswith("-")]
    rows = [
        [each.name, each.version, each.revision, each.channel, f"canonical{tick()}", each.kind]
        for each in snap_files.others()
    ]
    found = installed()
    if found:
        notes = ",".join(
            [*([] if found.enabled else ["disabled"]), "classic", *(["held"] if found.held else [])]
        )
        # Only an assertion names the publisher: a snap without one has none.
        publisher = "-" if found.revision.startswith("x") else f"canonical{tick()}"
        rows.append(["microk8s", found.version, found.revision, found.channel, publisher, notes])

    rows = [row for row in rows if not names or row[0] in names]
    if not rows and names:
        snap_files.refuse("no matching snaps installed")

    if not rows:
        print("No snaps are installed yet. Try 'snap install hello-world'.", file=sys.stderr)
        return

    heading = ["Name", "Version", "Rev", "Tracking", "Publisher", "Notes"]
    print(_table([heading, *sorted(rows)], gap=2))


def info(words: Sequence[str]) -> None:
    names = [word for word in words if not word.startswith("-")]
    found = installed()
    if names != ["microk8s"] or (snap_files.is_offline() and not found):
        snap_files.refuse(f'no snap found for "{names[0] if names else ""}"')

    head = [["name:", "microk8s"], ["summary:", SUMMARY]]
    is_asserted = not (found and found.revision.startswith("x"))
    head.append(
        ["publisher:", f"Canonical{tick()}" if is_asserted else "–" if can_unicode() else "--"]
    )
    print(_table([*head, ["license:", "Apache-2.0"]]))
    print(f"description: |\n  {DESCRIPTION}")

    if found:
        rows = [["tracking:", found.channel]] if found.channel != "-" else []
        rows += [
            ["refresh-date:", "today at 10:00 UTC"],
            *([["hold:", "forever"]] if found.held else []),
        ]
        print(_table(rows))

    channels = [] if snap_files.is_offline() else _channels()
    if channels:
        print("channels:")

    if found:
        released = [""] if channels else []
        channels.append(
            ["installed:", found.version, *released, f"({found.revision})", SIZE, "classic"]
        )

    if channels:
        print(_table(channels))


def logs(words: Sequence[str]) -> None:
    """Print the last lines of all services, as `snap logs [-n N] microk8s` does.

    Each line has the form TIME SERVICE[PID]: MESSAGE.
    """
    if installed() is None:
        snap_files.refuse('snap "microk8s" not found')

    count = int(words[words.index("-n") + 1]) if "-n" in words else 10
    said = []
    started = [
        (service, daemon) for service, daemons in services.OF_SERVICE.items() for daemon in daemons
    ]
    for service, daemon in started:
        log, pid = Path(f"/var/log/microk8s.{daemon}.log"), Path(f"/run/unit/microk8s.{daemon}.pid")
        sender = f"microk8s.{service}[{pid.read_text().strip() if pid.exists() else 1}]"
        moment = "00:00:00"
        for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
            # A line without a time has the time of the line before it.
            moment = found[0] if (found := CLOCK.search(line)) else moment
            said.append((moment, f"{date.today()}T{moment}Z {sender}: {line}"))

    for _, text in sorted(said, key=lambda entry: entry[0])[-count:]:
        print(text)


def _channels() -> list[list[str]]:
    """Return a row for each risk of each track.

    A closed channel is marked with an arrow if its track has a safer open one, else with dashes.
    """
    rows = []
    closed, none = ("↑", "–") if can_unicode() else ("^", "--")
    for track in sorted({channel.partition("/")[0] for channel in CHANNELS}, reverse=True):
        has_open = False
        for risk in RISKS:
            name = f"{track}/{risk}"
            if name in open_channels():
                version, revision = CHANNELS[name]
                rows.append([f"  {name}:", version, "2026-11-02", f"({revision})", SIZE, "classic"])
                has_open = True
            else:
                rows.append([f"  {name}:", closed if has_open else none, "", "", "", ""])
    return rows


def _table(rows: Sequence[Sequence[str]], *, gap: int = 1) -> str:
    """Align all cells but the last of each row to the left."""
    widths = [max(len(cell) for cell in column) + gap for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        aligned = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("".join(aligned) + row[-1])
    return "\n".join(lines)
