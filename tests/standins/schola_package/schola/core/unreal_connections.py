"""Games, one started for each connection or already there."""

from __future__ import annotations

import socket
import subprocess


class UnrealEditorConnection:
    """A game that another program started."""

    def __init__(self, url: str, port: int | None) -> None:
        assert port is not None, "a game that runs has a port"
        self.url, self.port = url, port

    def start(self) -> None:
        """Find it."""

    def close(self) -> None:
        """Leave it as it is."""


class StandaloneUnrealConnection:
    """A game that is started here. Without a port it looks for a free one on ::1, as the real
    one.
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
        """End the script; what it started is left."""
        if self.env_process is not None:
            self.env_process.kill()
