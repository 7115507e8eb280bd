"""What gives tokens for a registry, as those of GitHub, GitLab or Harbor do (distribution's token authentication)."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from trainyard.registry.certificates import KeyPair

ISSUER, SERVICE = "bed", "bed-registry"


class TokenServer(ThreadingHTTPServer):
    """Signs a token for whoever has the password; counts them."""

    def __init__(self, signer: KeyPair, *, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.signer = signer
        self.basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.given = 0

    @property
    def realm(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"

    def token(self, scopes: list[str]) -> str:
        """Return a JSON Web Token for what was asked, signed with ES256."""
        certificate = x509.load_pem_x509_certificate(self.signer.certificate)
        der = certificate.public_bytes(serialization.Encoding.DER)
        now = int(time.time())
        header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
        access = [_access(scope) for one in scopes for scope in one.split()]
        claims = {
            "iss": ISSUER,
            "aud": SERVICE,
            "sub": "ray",
            "nbf": now - 60,
            "iat": now,
            "exp": now + 300,
            "jti": "1",
        }
        signed = b".".join(_packed(json.dumps(part).encode()) for part in (header, {**claims, "access": access}))
        return f"{signed.decode()}.{_packed(self._signature(signed)).decode()}"

    def _signature(self, signed: bytes) -> bytes:
        key = serialization.load_pem_private_key(self.signer.key, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


class _Handler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        allowed = self.headers.get("Authorization") == self.server.basic
        body = json.dumps({"access_token": self.server.token(asked.get("scope", []))}) if allowed else "{}"
        self.server.given += allowed
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: tokens are no business of a log."""


@contextmanager
def token_server(signer: KeyPair, *, user: str, password: str) -> Iterator[TokenServer]:
    """Run a token server."""
    server = TokenServer(signer, user=user, password=password)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _access(scope: str) -> dict[str, object]:
    kind, name, actions = scope.split(":")
    return {"type": kind, "name": name, "actions": actions.split(",")}


def _packed(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")
