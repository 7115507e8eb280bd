"""Who has a port of the Docker host: one of its containers, or a program of this machine."""

from __future__ import annotations

from trainyard.seams import addresses
from trainyard.seams.docker import containers
from trainyard.seams.docker.engine import Engine


def holder(engine: Engine, address: str, port: int) -> str | None:
    """Return who answers at an address of the engine's host, as far as that can be told; None if it is free."""
    for container in containers.publishing(engine, port):
        if any(each.outside == port and each.address in (address, *addresses.ANY, "") for each in container.ports):
            return f"the container {container.name} ({container.image})"
    if not engine.is_here:
        return f"something on {engine.host}" if addresses.answers(address, port) else None
    if not addresses.is_free(address, port):
        listener = addresses.listener(address, port)
        known = listener is not None and listener.program
        return f"{listener.program} (pid {listener.pid})" if listener and known else "a program of another user"
    # kube-proxy serves node ports by packet rules: nobody listens, and yet somebody answers.
    answers = addresses.answers(address, port)
    return "something that nobody here listens for, such as a Kubernetes node port" if answers else None
