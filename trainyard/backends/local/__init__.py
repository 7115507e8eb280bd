"""Head and workers as real Ray processes of this machine: own ports, own directories, own token, loopback only."""

from __future__ import annotations

from trainyard.backends.contract import Traits, no_images, nothing_to_discover, nothing_to_show
from trainyard.backends.local.down import down_steps
from trainyard.backends.local.logs import logs
from trainyard.backends.local.status import connect, status
from trainyard.backends.local.up import up_steps

__all__ = ["TRAITS", "connect", "discover", "documents", "down_steps", "logs", "status", "up_steps", "verify"]

TRAITS = Traits()
documents = nothing_to_show
discover = nothing_to_discover
verify = no_images
