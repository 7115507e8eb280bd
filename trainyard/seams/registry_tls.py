"""Whose certificates a registry may have."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from trainyard.errors import PrerequisiteError


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Return what a registry's certificate is checked with. Raises PrerequisiteError for a CA that cannot be read."""
    if ca_file is None:
        # certifi's, for systems that keep none where OpenSSL looks for them; then a company's, from the system's store.
        context = httpx.create_ssl_context()
        context.load_default_certs()
        return context
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:  # ssl.SSLError is one too
        raise PrerequisiteError(
            f"the CA of the registry cannot be read: {error}",
            where=str(ca_file),
            hint="registry.ca_file must be a PEM file with the CA of the registry's certificate.",
        ) from error
