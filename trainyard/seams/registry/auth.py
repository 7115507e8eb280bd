"""Answer a registry's challenge: Basic, or Bearer with its realm's token.

A login is sent only after the registry asks for one, and only to a host that
the registry names (distribution's token authentication).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
CLIENT = "trainyard"


@dataclass(frozen=True)
class Login:
    """A login to a registry; `source` is where the login was found."""

    source: str
    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def who(self) -> str:
        """Return what messages add to "the login": " of ray from $PASSWORD"."""
        if self.username:
            return f" of {self.username} from {self.source}"
        return f" from {self.source}"

    def for_engine(self, registry: str) -> dict[str, str]:
        if self.identity_token:
            return {"identitytoken": self.identity_token, "serveraddress": registry}
        return {"username": self.username, "password": self.password, "serveraddress": registry}


class ChallengeAuth(httpx.Auth):
    """Answers one 401 per request; keeps a login until it is rejected."""

    requires_response_body = True

    def __init__(self, login: Login | None) -> None:
        self._login = login
        self._accepted: dict[str, str] = {}

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request, again with a login if the registry asks for one."""
        # A token is valid for one repository.
        repository = re.sub(r"^/v2/|/(manifests|blobs|tags)/.*$", "", request.url.path)
        if repository in self._accepted:
            request.headers["Authorization"] = self._accepted[repository]

        answer = yield request
        # After a redirect to another host (a blob store), the challenge is not the registry's.
        if answer.status_code != 401 or answer.url.host != request.url.host:
            return

        scheme, _, parameters = answer.headers.get("WWW-Authenticate", "").partition(" ")
        authorization = None
        if scheme.lower() == "bearer":
            challenge = dict(_PARAMETER.findall(parameters))
            token_answer = yield self._token_request(challenge, answer.url)
            authorization = _bearer(token_answer)
        elif scheme.lower() == "basic" and self._login and self._login.password:
            authorization = _basic(self._login)

        if authorization:
            self._accepted[repository] = authorization
            request.headers["Authorization"] = authorization
            yield request

    def _token_request(self, parameters: dict[str, str], registry: httpx.URL) -> httpx.Request:
        """Return the request for a token, with the login's secret, if any."""
        realm = registry.join(parameters.get("realm", ""))
        scope = {key: parameters[key] for key in ("service", "scope") if parameters.get(key)}
        login = self._login
        # A registry with TLS must not redirect the login to a realm without TLS.
        if registry.scheme != "http" and realm.scheme != "https":
            login = None

        if login and login.identity_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.identity_token,
                "client_id": CLIENT,
            }
            return httpx.Request("POST", realm, data={**scope, **form})

        headers = {}
        if login and login.password:
            headers["Authorization"] = _basic(login)
        return httpx.Request("GET", realm.copy_merge_params(scope), headers=headers)


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()


def _bearer(answer: httpx.Response) -> str | None:
    with suppress(ValueError, AttributeError):
        document = answer.json()
        token = document.get("token") or document.get("access_token")
        if token and answer.status_code == 200:
            return f"Bearer {token}"
    return None
