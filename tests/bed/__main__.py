"""The bed by hand: `python -m tests.bed up` prints what to export, `down` ends the engine, `build` only builds it."""

from __future__ import annotations

import sys

from tests.bed import bed, images


def main(arguments: list[str]) -> None:
    """Start or end the shared engine."""
    if arguments == ["up"]:
        bed.start()
        for name, value in bed.SHARED.environ().items():
            print(f"export {name}={value}")
    elif arguments == ["build"]:
        with bed.shared_engine() as engine:
            images.ensure_host(engine)
    elif arguments == ["down"]:
        bed.SHARED.stop()
    else:
        sys.exit("usage: python -m tests.bed up|build|down")


if __name__ == "__main__":
    main(sys.argv[1:])
