"""Stand-in for ray.tune: a training prints its settings, and fails if asked for no steps."""

from typing import Any


def run(algorithm: str, *, config: Any, stop: dict[str, int], **how: Any) -> None:
    config.validate()
    print("train", algorithm, stop, how["storage_path"])
    for method, asked in config.asked.items():
        print(method, asked)
    if stop["timesteps_total"] == 0:
        raise SystemExit(3)
