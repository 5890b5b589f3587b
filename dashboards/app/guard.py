"""Keeps the live page to the person who started it: hosts, origins, sizes, and what the page may load."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from flask import Flask

HOST = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost", "[::1]")
MAX_UPLOAD_BYTES = 32_000_000
"""Of one request: a file of 24 MB in base64."""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; "
    "form-action 'none'; base-uri 'none'"
)
"""Content security policy: nothing is fetched from or sent to other hosts.."""


def guard(server: Flask, port: int) -> None:
    """Refuse requests by another host name (DNS rebinding) or from another origin, and large ones."""
    from flask import abort, request

    hosts = {f"{name}:{port}" for name in _NAMES}
    server.config["MAX_CONTENT_LENGTH"] = MAX_UPLOAD_BYTES

    @server.before_request
    def refuse_strangers() -> None:
        if request.host not in hosts:
            abort(403, f"open http://{HOST}:{port}")
        origin = request.headers.get("Origin")
        if origin is not None and not is_own(origin, hosts):
            abort(403, "a page of another site may not ask this one")

    @server.after_request
    def restrict(response: Any) -> Any:
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response


def is_own(origin: str, hosts: Collection[str]) -> bool:
    """Whether an `Origin` header is that of this page."""
    parts = urlsplit(origin)
    return parts.scheme == "http" and parts.netloc in hosts
