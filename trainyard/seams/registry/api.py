"""A container registry's API: manifests, repositories, tags.

Docker pushes and pulls images; this module asks the registry for its content
(OCI distribution specification 1.1).
"""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from trainyard.errors import PrerequisiteError
from trainyard.seams.addresses import is_loopback
from trainyard.seams.registry.auth import ChallengeAuth, Login
from trainyard.seams.registry.errors import NOT_A_REGISTRY, RegistryError, refused

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
PAGE = 500
TRIAL_BYTES = 1024 * 1024
# No registry gives these statuses for GET /v2/ (OCI distribution specification, "end-1").
NO_REGISTRY = (404, 405, 501)
# Docker Hub's API has another host name than its references (distribution/reference, Docker's
# RegistryInfo).
API_HOSTS = {"docker.io": "registry-1.docker.io"}
# Docker's own media types and OCI's are similar enough for one reader (OCI image specification
# 1.1).
MEDIA_TYPES = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
)


class Blob(NamedTuple):
    """An image's config or layer; `size` is that of the compressed bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """A manifest as the registry gave it.

    The index of a multi-platform image has no config or layers, but
    `platforms`: the digests of the platforms' manifests.
    """

    digest: str
    media_type: str
    config: Blob | None
    layers: tuple[Blob, ...]
    platforms: tuple[str, ...]
    content: bytes = field(repr=False, default=b"")


class RegistryApi:
    """A connection to one registry, a context manager that threads may share.

    `address` is HOST[:PORT]; `insecure` means plain HTTP. `ca_file` is the CA
    of the registry's certificate; None trusts the CAs of certifi and of this
    system, as Docker does. `transport` replaces the network in tests. Every
    method may raise a RegistryError; its class names the cause (GoneError,
    CertificateError, LoginError...).
    """

    def __init__(
        self,
        address: str,
        *,
        insecure: bool = False,
        ca_file: Path | None = None,
        login: Login | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = address
        self._login = login
        scheme = "https"
        if insecure:
            scheme = "http"
            # Only its token server may have TLS, which the usual CAs verify.
            ca_file = None
        self._http = httpx.Client(
            base_url=f"{scheme}://{API_HOSTS.get(address, address)}/v2/",
            auth=ChallengeAuth(login),
            verify=trusting(ca_file),
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            # httpx drops the Authorization header when a redirect leads to another host.
            follow_redirects=True,
            # A proxy from the environment must not get loopback traffic.
            trust_env=not is_loopback(urlsplit(f"//{address}").hostname or ""),
            transport=transport,
        )

    def __enter__(self) -> RegistryApi:
        return self

    def __exit__(self, *ended: object) -> None:
        self._http.close()

    def check(self) -> None:
        """Check that a registry answers and accepts the login."""
        doing = "ask whether a registry is there"
        answer = self._send("GET", "", doing=doing, accept=NO_REGISTRY)
        if answer.status_code in NO_REGISTRY:
            raise self._refused(answer, doing, before=f"{NOT_A_REGISTRY}: ")

    def manifest(self, name: str, reference: str) -> Manifest | None:
        """Return a tag's or digest's manifest; None if the registry has none.

        Raises DamagedError if the manifest is malformed, or does not match its
        digest.
        """
        doing = f"read the manifest {name}:{reference}"
        headers = {"Accept": ", ".join(MEDIA_TYPES)}
        answer = self._send(
            "GET", f"{name}/manifests/{reference}", doing=doing, accept=(404,), headers=headers
        )
        if answer.status_code == 404:
            return None

        try:
            manifest = read_manifest(answer.content, answer.headers.get("Content-Type", ""))
            if reference.startswith("sha256:"):
                claimed = reference
            else:
                claimed = answer.headers.get("Docker-Content-Digest")
            if claimed and claimed != manifest.digest:
                raise ValueError(f"expected {claimed}, got {manifest.digest}")
        except (ValueError, KeyError, TypeError) as error:
            raise refused(f"digest mismatch: {error}", self.address, doing=doing) from error

        return manifest

    def repositories(self) -> Iterator[str]:
        """Yield all repository names, which ECR and Docker Hub refuse."""
        return self._listed("_catalog", "repositories", doing="list the repositories")

    def tags(self, name: str) -> tuple[str, ...]:
        """Return a repository's tags; none without the repository."""
        return tuple(self._listed(f"{name}/tags/list", "tags", doing=f"list the tags of {name}"))

    def put_manifest(self, name: str, tag: str, manifest: Manifest) -> None:
        headers = {"Content-Type": manifest.media_type}
        doing = f"tag {name}@{manifest.digest} as {tag}"
        self._send(
            "PUT", f"{name}/manifests/{tag}", doing=doing, content=manifest.content, headers=headers
        )

    def try_upload(self, name: str) -> None:
        """Try an upload, to learn why a push fails, which Docker hides.

        Raises RegistryError with the registry's reason, such as a full disk.
        """
        doing = f"try an upload to {name}"
        begun = self._send("POST", f"{name}/blobs/uploads/", doing=doing)
        upload = begun.url.join(begun.headers["Location"])
        headers = {"Content-Type": "application/octet-stream"}
        try:
            self._send("PATCH", upload, doing=doing, content=bytes(TRIAL_BYTES), headers=headers)
        finally:
            with suppress(RegistryError):
                self._send("DELETE", upload, doing=doing)

    def _listed(self, path: str, key: str, *, doing: str) -> Iterator[str]:
        """Yield the names of all pages, which have Link headers (RFC 5988)."""
        url: str | httpx.URL | None = f"{path}?n={PAGE}"
        while url is not None:
            answer = self._send("GET", url, doing=doing, accept=(404,))
            if answer.status_code == 404:
                return
            try:
                names = answer.json()[key]
            except (ValueError, KeyError, TypeError) as error:
                raise self._refused(answer, doing, before=f"{NOT_A_REGISTRY}: ") from error
            yield from names or ()
            target = answer.links.get("next", {}).get("url")
            url = None
            if target:
                url = answer.url.join(target)

    def _send(
        self,
        method: str,
        path: str | httpx.URL,
        *,
        doing: str,
        accept: tuple[int, ...] = (),
        **request: Any,
    ) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise refused(str(error) or type(error).__name__, self.address, doing=doing) from error
        if not answer.is_success and answer.status_code not in accept:
            raise self._refused(answer, doing)
        return answer

    def _refused(self, answer: httpx.Response, doing: str, *, before: str = "") -> RegistryError:
        """Return the error for an answer."""
        text = f"{before}{answer.status_code} {answer.reason_phrase}: {answer.text.strip()}"
        if self._login:
            return refused(text, self.address, doing=doing, who=self._login.who)
        if answer.status_code == 401:
            text = f"no basic auth credentials ({text})"
        return refused(text, self.address, doing=doing)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def read_manifest(content: bytes, media_type: str) -> Manifest:
    """Read a manifest; its digest is computed, never taken from a header.

    Raises ValueError, KeyError or TypeError for other bytes.
    """
    document = dict(json.loads(content))
    if document["schemaVersion"] != 2:
        raise ValueError("not a manifest of schema version 2")
    return Manifest(
        digest=digest_of(content),
        media_type=str(document.get("mediaType") or media_type),
        config=_blob(document["config"]) if "config" in document else None,
        layers=tuple(_blob(layer) for layer in document.get("layers", ())),
        platforms=tuple(str(entry["digest"]) for entry in document.get("manifests", ())),
        content=content,
    )


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Return the context that checks a registry's certificate.

    Raises PrerequisiteError for an unreadable CA.
    """
    if ca_file is None:
        # The system's store may have a company's CA, but some systems keep none where OpenSSL
        # looks, so certifi's are loaded, too.
        context = httpx.create_ssl_context()
        context.load_default_certs()
        return context

    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:  # ssl.SSLError is an OSError, too
        raise PrerequisiteError(
            f"the CA of the registry cannot be read: {error}",
            where=str(ca_file),
            hint="registry.ca_file must be a PEM file with the CA of the registry's certificate.",
        ) from error


def _blob(entry: dict[str, Any]) -> Blob:
    return Blob(str(entry["digest"]), int(entry["size"]))
