"""A container registry, as far as we ask one: manifests, blobs, repositories, tags.

Images are pushed and pulled by Docker; this is how we learn what the registry then really holds (OCI distribution
specification 1.1). Threads may share a connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from trainyard.seams.registry_auth import ChallengeAuth, Login
from trainyard.seams.registry_manifest import MEDIA_TYPES, Manifest, digest_of, read_manifest
from trainyard.seams.registry_refusals import NOT_A_REGISTRY, RegistryError, refused
from trainyard.seams.registry_tls import trusting

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
PAGE = 500
# What no registry answers to GET /v2/, which every registry has (OCI distribution specification, "end-1").
NO_REGISTRY = (404, 405, 501)
# The size of a blob that the registry has and says nothing more about.
UNKNOWN = -1
# Docker Hub's API is not at the name that references have (distribution/reference, Docker's RegistryInfo).
API_HOSTS = {"docker.io": "registry-1.docker.io"}
# An image's config is a few kilobytes of JSON; whatever claims to be one and is larger, is none.
CONFIG_LIMIT = 8 * 1024 * 1024


class RegistryApi:
    """A connection to one registry; use it as a context manager.

    `address` is HOST[:PORT]; `insecure` means plain HTTP. `ca_file` is the CA of the registry's certificate; None
    trusts the usual ones, and those that this system trusts, as Docker does. `transport` replaces the network in
    tests. Every method raises a RegistryError (seams/registry_refusals.py): gone, certificate, login...
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
        self._http = httpx.Client(
            base_url=f"{'http' if insecure else 'https'}://{API_HOSTS.get(address, address)}/v2/",
            auth=ChallengeAuth(login),
            # Also without TLS: blobs and tokens may be elsewhere.
            verify=trusting(None if insecure else ca_file),
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            # Blobs may be kept elsewhere; httpx drops our Authorization when another host is meant.
            follow_redirects=True,
            # A proxy from the environment must not get loopback traffic.
            trust_env=not _is_loopback(address),
            transport=transport,
        )

    def __enter__(self) -> RegistryApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def check(self) -> None:
        """Ask whether a registry is there that lets us in. Raises NoRegistryError for any other server."""
        doing = "ask whether a registry is there"
        answer = self._send("GET", "", doing=doing, accept=NO_REGISTRY)
        if answer.status_code in NO_REGISTRY or _is_page(answer):
            raise self._refused(answer, doing, before=f"{NOT_A_REGISTRY}: ")

    def digest_of(self, name: str, tag: str) -> str | None:
        """Return the digest that a tag points to now, or None if there is no such tag."""
        found = self.manifest(name, tag)
        return found.digest if found else None

    def manifest(self, name: str, reference: str) -> Manifest | None:
        """Return what a tag or digest points to, or None; the bytes are hashed and must be what was asked for.

        Raises DamagedError when they are not.
        """
        doing = f"read the manifest {name}:{reference}"
        headers = {"Accept": ", ".join(MEDIA_TYPES)}
        answer = self._send("GET", f"{name}/manifests/{reference}", doing=doing, accept=(404,), headers=headers)
        if answer.status_code == 404:
            return None
        try:
            found = read_manifest(answer.content, answer.headers.get("Content-Type", ""))
        except ValueError as error:
            raise refused(f"digest mismatch: {error}", self.address, doing=doing) from error
        claimed = reference if reference.startswith("sha256:") else answer.headers.get("Docker-Content-Digest")
        if claimed and claimed != found.digest:
            raise self._damaged(doing, expected=claimed, found=found.digest)
        return found

    def blob_size(self, name: str, digest: str) -> int | None:
        """Return how many bytes the registry holds of a blob, None if it does not have it, UNKNOWN if it does not say.

        What stands before a registry may answer HEAD without a length.
        """
        answer = self._send("HEAD", f"{name}/blobs/{digest}", doing=f"look for {name}@{digest}", accept=(404,))
        return None if answer.status_code == 404 else int(answer.headers.get("Content-Length", UNKNOWN))

    def config(self, name: str, digest: str) -> bytes:
        """Return an image's config, hashed and compared. Raises DamagedError."""
        doing = f"read {name}@{digest}"
        answer = self._send("GET", f"{name}/blobs/{digest}", doing=doing)
        if len(answer.content) > CONFIG_LIMIT or digest_of(answer.content) != digest:
            raise self._damaged(doing, expected=digest, found=digest_of(answer.content))
        return answer.content

    def repositories(self) -> Iterator[str]:
        """Yield every repository's name; a registry may refuse to list them (ECR and Docker Hub do)."""
        for page in self._pages("_catalog", doing="list the repositories"):
            yield from (str(name) for name in page.get("repositories") or ())

    def tags(self, name: str) -> tuple[str, ...]:
        """Return a repository's tags; none if there is no such repository."""
        pages = self._pages(f"{name}/tags/list", doing=f"list the tags of {name}")
        return tuple(str(tag) for page in pages for tag in page.get("tags") or ())

    def delete_manifest(self, name: str, digest: str) -> None:
        """Remove a manifest and every tag that points to it; its blobs go when the registry collects garbage."""
        self._send("DELETE", f"{name}/manifests/{digest}", doing=f"remove {name}@{digest}", accept=(202, 404))

    def put_manifest(self, name: str, tag: str, manifest: Manifest) -> None:
        """Let a tag point to a manifest that the registry has already."""
        headers = {"Content-Type": manifest.media_type}
        path, doing = f"{name}/manifests/{tag}", f"tag {name}@{manifest.digest} as {tag}"
        self._send("PUT", path, doing=doing, accept=(201,), content=manifest.content, headers=headers)

    def try_upload(self, name: str, *, size: int = 1024 * 1024) -> None:
        """Send some bytes and take them back: Docker keeps to itself why an upload fails, this answer says it.

        Raises RegistryError, such as FullError.
        """
        doing = f"try an upload to {name}"
        begun = self._send("POST", f"{name}/blobs/uploads/", doing=doing, accept=(202,))
        place = begun.url.join(begun.headers["Location"])
        try:
            headers = {"Content-Type": "application/octet-stream"}
            sent = self._send("PATCH", place, doing=doing, accept=(202,), content=bytes(size), headers=headers)
            place = sent.url.join(sent.headers.get("Location", str(place)))
        finally:
            with suppress(RegistryError):
                self._send("DELETE", place, doing=doing, accept=(202, 204, 404))

    def _pages(self, path: str, *, doing: str) -> Iterator[dict[str, Any]]:
        """Follow the Link headers (RFC 5988) to the end."""
        following: str | httpx.URL | None = f"{path}?n={PAGE}"
        while following is not None:
            answer = self._send("GET", following, doing=doing, accept=(404,))
            yield self._object(answer, doing) if answer.status_code == 200 else {}
            target = answer.links.get("next", {}).get("url")
            following = answer.url.join(target) if target else None

    def _object(self, answer: httpx.Response, doing: str) -> dict[str, Any]:
        with suppress(ValueError, RecursionError):
            if isinstance(found := answer.json(), dict):
                return found
        raise self._refused(answer, doing, before=f"{NOT_A_REGISTRY}: ")

    def _send(
        self, method: str, path: str | httpx.URL, *, doing: str, accept: tuple[int, ...] = (), **request: Any
    ) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise refused(_said(error), self.address, doing=doing) from error
        if answer.status_code != 200 and answer.status_code not in accept:
            raise self._refused(answer, doing)
        return answer

    def _refused(self, answer: httpx.Response, doing: str, *, before: str = "") -> RegistryError:
        """Return the error for an answer; a challenge that we could not answer is a missing login."""
        said = f"{before}{answer.status_code} {answer.reason_phrase}: {answer.text.strip()}"
        if answer.status_code == 401 and self._login is None:
            said = f"no basic auth credentials ({said})"
        return refused(said, self.address, doing=doing, who=self._login.who if self._login else "")

    def _damaged(self, doing: str, *, expected: str, found: str) -> RegistryError:
        return refused(f"digest mismatch: expected {expected}, got {found}", self.address, doing=doing)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _is_page(answer: httpx.Response) -> bool:
    return answer.content[:100].lstrip().lower().startswith((b"<!doctype", b"<html"))


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "localhost", "[::1]"))
