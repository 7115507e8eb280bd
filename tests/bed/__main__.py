"""The bed by hand: `up` starts the shared engine, `kubernetes up` a cluster on that engine.

Both print the variables to export; `down` and `kubernetes down` end the engine or the cluster. Each
cluster has a name, so several can run at a time. `ec2` opens a shell with a cloud, which ends when
the shell exits.
"""

from __future__ import annotations

import os
import shlex
import sys

from tests.bed import bed, by_hand

USAGE = "usage: python -m tests.bed up|down|kubernetes up [HOSTS [NAME]]|kubernetes down [NAME]|ec2"


def main(arguments: list[str]) -> None:
    """Start or end the shared engine, or a cluster on it."""
    match arguments:
        case ["up"]:
            bed.start(kept=True)
            _print(bed.SHARED.environ())
        case ["down"]:
            bed.SHARED.stop()
        case ["kubernetes", "up"]:
            up(3, "bed")
        case ["kubernetes", "up", count]:
            up(int(count), "bed")
        case ["kubernetes", "up", count, name]:
            up(int(count), name)
        case ["kubernetes", "down"]:
            by_hand.down("bed")
        case ["kubernetes", "down", name]:
            by_hand.down(name)
        case ["ec2"]:
            by_hand.ec2_shell()
        case _:
            sys.exit(USAGE)


def up(count: int, name: str) -> None:
    """Start a cluster with the bed's images in a registry of its own; print how to work with it."""
    made = by_hand.up(count, name)
    made.publish(*by_hand.IMAGES)
    # HOME is left out, so that the caller's shell keeps its own: the `ssh` on this PATH has the
    # keys.
    _print({variable: value for variable, value in made.environ().items() if variable != "HOME"})
    for host in made.hosts:
        print(f"# {host.name}: ssh {host.ssh}")
    print(f"# images: {', '.join(f'{made.registry}/{image}' for image in by_hand.IMAGES)}")
    print(f"# the operator's chart: {made.chart}")


def _print(environ: dict[str, str]) -> None:
    for name, value in environ.items():
        rest = value.removesuffix(os.environ["PATH"]) if name == "PATH" else value
        print(f"export {name}={shlex.quote(rest)}{'' if rest == value else '$PATH'}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RuntimeError as error:
        sys.exit(f"error: {error}")
