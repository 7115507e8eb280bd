"""Connections to games: to a running game, or to one that the connection starts."""

from __future__ import annotations

import socket
import subprocess


class UnrealEditorConnection:
    """A game that another program started."""

    def __init__(self, url: str, port: int | None) -> None:
        assert port is not None, "a game that runs has a port"
        self.url, self.port = url, port

    def start(self) -> None:
        """Do nothing: the game runs already."""

    def close(self) -> None:
        """Do nothing: the game keeps running."""


class StandaloneUnrealConnection:
    """A game that this connection starts.

    Without a port, it looks for a free one on ::1, as Schola does.
    """

    def __init__(
        self,
        url: str,
        ue_path: str,
        headless_mode: bool,
        port: int | None = None,
        map: str | None = None,
        display_logs: bool = True,
        set_fps: int | None = None,
        disable_script: bool = False,
    ) -> None:
        if port is None:
            with socket.socket(socket.AF_INET6) as free:
                free.bind((url, 0))
                port = free.getsockname()[1]
        self.port = port
        self.ue_path = ue_path
        self.flags = [*(["-nullRHI"] if headless_mode else []), *([map] if map else [])]
        self.env_process: subprocess.Popen[bytes] | None = None

    def make_args(self) -> list[str]:
        return [self.ue_path, *self.flags, "-ScholaPort", str(self.port)]

    def start(self) -> None:
        self.env_process = subprocess.Popen(self.make_args())

    def close(self) -> None:
        """Kill the game's script; processes that the script started keep running."""
        if self.env_process is not None:
            self.env_process.kill()
