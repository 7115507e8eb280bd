"""What `image.verify` found out, on whatever hosts a cluster has."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.errors import OutsideError, TrainyardError

LINT = "See what is wrong with it: invoke image.lint"


@dataclass(frozen=True)
class HostResult:
    """One host, and whether it pulled and ran the image."""

    host: str
    reference: str
    seconds: float
    result: str
    error: TrainyardError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Verified:
    """Every host of a cluster; `remark` says which could not be tried, or only under which name."""

    hosts: tuple[HostResult, ...]
    remark: str = ""

    @property
    def ok(self) -> bool:
        return all(host.ok for host in self.hosts)

    def check(self) -> None:
        """Raise what is wrong: the host's own error if it is one, else how many they are."""
        failed = [host for host in self.hosts if host.error]
        if len(failed) == 1 and failed[0].error:
            raise failed[0].error
        if failed:
            names = ", ".join(host.host for host in failed)
            raise OutsideError(f"{len(failed)} of {len(self.hosts)} hosts cannot run the image", where=names)
