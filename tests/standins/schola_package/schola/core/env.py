"""The environment of a game, and its agents."""

from __future__ import annotations

from typing import Any


class ScholaEnv:
    """A started connection with one agent; Schola's environment asks the game for its agents."""

    def __init__(self, unreal_connection: Any, verbosity: int = 0) -> None:
        self.unreal_connection = unreal_connection
        unreal_connection.start()
        self.obs_defns: dict[int, Any] = {0: {0: None}}
        self.agent_display_names = [{0: "player"}]

    def close(self) -> None:
        self.unreal_connection.close()
