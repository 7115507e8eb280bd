"""Head and workers as containers of one Docker host, here or reached by SSH; the dashboard on loopback only."""

from __future__ import annotations

from trainyard.backends.compose.down import down_steps
from trainyard.backends.compose.image import verify
from trainyard.backends.compose.logs import logs
from trainyard.backends.compose.status import connect, status
from trainyard.backends.compose.up import up_steps
from trainyard.backends.contract import Traits, nothing_to_discover, nothing_to_show

__all__ = ["TRAITS", "connect", "discover", "documents", "down_steps", "logs", "status", "up_steps", "verify"]

TRAITS = Traits(pushed_image="image.verify")
# What Docker Compose gets is made for each command, and nobody else needs it.
documents = nothing_to_show
discover = nothing_to_discover
