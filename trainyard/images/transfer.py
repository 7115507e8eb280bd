"""Send an image to a registry in spite of what goes wrong on the way, and find out what did.

Docker tries a layer again by itself, five times in a minute, and does not say why; so the registry is asked meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.images.access import Access
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry_api import RegistryApi
from trainyard.seams.registry_refusals import FullError, GoneError, LoginError, NoRegistryError, RegistryError
from trainyard.steps import Clock

TRIES = 3
# How long a registry may be away (restarted, moved) before a push gives up.
AWAY_SECONDS = 20.0
ASK_EVERY = 0.5
# Docker reports every half megabyte; in a log of CI each report is a line.
TELL_EVERY = 2.0
# What counts more than what Docker was told.
FINAL = (GoneError, LoginError, FullError, NoRegistryError)


def send(
    engine: Engine,
    reference: str,
    access: Access,
    *,
    report: Callable[[str], None],
    clock: Clock,
) -> frozenset[str]:
    """Push a reference; return the short ids of the layers that were sent, those of earlier tries too.

    A registry that comes back within AWAY_SECONDS is given another try. Raises RegistryError.
    """
    sent: set[str] = set()
    calm = _calmly(report, clock)
    repository = reference.removeprefix(f"{access.registry.address}/").rpartition(":")[0]
    for is_last in (False,) * (TRIES - 1) + (True,):
        try:
            docker_push.push(
                engine,
                reference,
                login=access.login,
                on_progress=calm,
                on_retry=lambda: ask_why(access.api, repository),
                on_sent=sent.add,
            )
            break
        except RegistryError as error:
            if not error.transient or is_last:
                raise
            report(f"{error.what}; tries again with the layers that are not there yet")
            wait_until_back(access.api, clock)
            ask_why(access.api, repository)
    return frozenset(sent)


def ask_why(api: RegistryApi, repository: str) -> None:
    """Ask the registry itself what is wrong; raise it if it is something that a retry will not mend.

    Raises one of FINAL; returns if an upload works, or is refused for reasons of its own.
    """
    try:
        api.check()
        api.try_upload(repository)
    except FINAL:
        raise
    except RegistryError:
        # What Docker was told counts more than what happened to our attempt.
        return


def wait_until_back(api: RegistryApi, clock: Clock) -> None:
    """Wait for a registry that went away. Raises what it last said when it stays away."""
    give_up = clock.now() + AWAY_SECONDS
    while True:
        try:
            return api.check()
        except RegistryError as error:
            if not error.transient or clock.now() >= give_up:
                raise
        clock.sleep(ASK_EVERY)


def _calmly(report: Callable[[str], None], clock: Clock) -> Callable[[str], None]:
    """Return `report`, called every few seconds: in the first moments Docker has not even counted its layers."""
    told = [clock.now()]

    def calm(text: str) -> None:
        if clock.now() - told[0] >= TELL_EVERY:
            told[0] = clock.now()
            report(text)

    return calm
