"""What the Kubernetes API refuses, and how it fails."""

from __future__ import annotations

from trainyard.errors import OutsideError, PrerequisiteError


class KubeError(OutsideError):
    """The Kubernetes API refused or broke."""


class GoneError(KubeError):
    """Nobody answers, the connection broke, or the API server is only just starting."""


class InvalidError(KubeError):
    """The API does not take what we sent: a wrong field, or an admission rule that it breaks."""


class ConflictError(KubeError):
    """Somebody else changed or made the object meanwhile, or its namespace is being removed."""


class MissingError(KubeError):
    """What should be changed, or the namespace for it, is not there."""


class QuotaError(PrerequisiteError):
    """The namespace's quota has no room for it."""


class UnknownUserError(PrerequisiteError):
    """The API server does not know who we are (any more)."""


class ForbiddenError(PrerequisiteError):
    """The user may not do that. `kind` is the plural of what it is about; `namespace` is None for the whole cluster."""

    def __init__(
        self, what: str, *, verb: str, kind: str, namespace: str | None, user: str, where: str | None, hint: str | None
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.verb = verb
        self.kind = kind
        self.namespace = namespace
        self.user = user
