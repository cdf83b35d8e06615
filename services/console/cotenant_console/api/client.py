"""A plain client of the gateway's Kubernetes-shaped API, on the standard library alone so that it starts fast.

In: method, path, query, body. Out: decoded JSON documents, text, or a stream of watch events. A `Status` answer of
the server becomes `StatusError`, with the message, the reason and the field causes that the server gave.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeAlias
from urllib.parse import urlencode, urlsplit

from cotenant_console.api.credentials import Server

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Document: TypeAlias = "dict[str, Json]"

ACCEPT_JSON = "application/json"
ACCEPT_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
MERGE_PATCH = "application/merge-patch+json"
STRICT = {"fieldValidation": "Strict"}
MAX_ERROR_BYTES = 1 << 20


@dataclass(frozen=True)
class FieldCause:
    """One field that the server refused, and why."""

    field_path: str
    message: str
    reason: str = ""


class UnreachableError(Exception):
    """The server does not answer."""


@dataclass
class StatusError(Exception):
    """The server refused a request: the content of its `Status`."""

    code: int
    reason: str
    message: str
    causes: tuple[FieldCause, ...] = field(default_factory=tuple)

    def __str__(self) -> str:
        return f"Error from server ({self.reason or self.code}): {self.message}"


def text_at(document: Json, *path: str | int, default: str = "") -> str:
    """The text at a path of a document; numbers as text; `default` where the path does not lead to a scalar."""
    found = value_at(document, *path)
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) else default


def value_at(document: Json, *path: str | int) -> Json:
    """The value at a path of a document, None where the path ends early."""
    here: Json = document
    for step in path:
        if isinstance(here, dict) and isinstance(step, str):
            here = here.get(step)
        elif isinstance(here, list) and isinstance(step, int) and -len(here) <= step < len(here):
            here = here[step]
        else:
            return None
    return here


def mapping_at(document: Json, *path: str | int) -> Document:
    """The mapping at a path, empty where there is none."""
    found = value_at(document, *path)
    return found if isinstance(found, dict) else {}


def list_at(document: Json, *path: str | int) -> list[Json]:
    """The list at a path, empty where there is none."""
    found = value_at(document, *path)
    return found if isinstance(found, list) else []


def error_from(code: int, body: bytes, fallback: str) -> StatusError:
    """The server's `Status` as an error; a body that is no Status is quoted, cut to 300 characters."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        quoted = body.decode("utf-8", "replace").strip()[:300]
        return StatusError(code, fallback, quoted or f"the server answered {code} {fallback} without a reason")
    causes = tuple(
        FieldCause(text_at(cause, "field"), text_at(cause, "message"), text_at(cause, "reason"))
        for cause in list_at(status, "details", "causes")
    )
    return StatusError(code, text_at(status, "reason"), text_at(status, "message"), causes)


class Client:
    """One keep-alive connection to the gateway. Not for use by several threads at once."""

    def __init__(self, server: Server, timeout_seconds: float = 60.0) -> None:
        """Raises UnreachableError for an address that is none, CredentialsError."""
        split = urlsplit(server.url)
        if split.scheme != "https" or not split.hostname:
            raise UnreachableError(f"{server.url} is not an address like https://127.0.0.1:8001")
        self.url = server.url
        self._host = split.hostname
        self._port = split.port or 443
        self._context = server.credentials.context()
        self._headers = server.credentials.headers
        self._timeout = timeout_seconds
        self._connection: http.client.HTTPSConnection | None = None
        self.warn: Callable[[str], None] = lambda _: None
        """Called with the server's warnings in an answer (the header `Warning`, as kubectl prints it)."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, query: Mapping[str, str] | None = None, accept: str = ACCEPT_JSON) -> Document:
        """GET a document."""
        return self._document("GET", path, query, None, accept)

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """GET a body as text (logs, version)."""
        return self._exchange("GET", path, query, None, "*/*", "").decode("utf-8", "replace")

    def create(self, path: str, document: Document, *, strict: bool = False) -> Document:
        """POST a document to a collection. `strict`: members that its kind does not have refuse it."""
        return self._document("POST", path, STRICT if strict else None, document)

    def merge_patch(self, path: str, patch: Document, *, strict: bool = False) -> Document:
        """PATCH an object with a JSON merge patch."""
        return self._document("PATCH", path, STRICT if strict else None, patch, content=MERGE_PATCH)

    def delete(self, path: str, options: Document | None = None) -> Document:
        """DELETE an object."""
        return self._document("DELETE", path, None, options)

    def stream(self, path: str, query: Mapping[str, str] | None = None, accept: str = ACCEPT_JSON) -> Iterator[bytes]:
        """GET an unbounded body line by line as it arrives: watches and followed logs."""
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=None, context=self._context)
        try:
            response = self._send(connection, "GET", path, query, None, accept, "")
            if response.status >= 300:
                raise error_from(response.status, response.read(MAX_ERROR_BYTES), response.reason)
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"the stream from {self.url} ended: {error}") from error
        finally:
            connection.close()

    def watch(self, path: str, query: Mapping[str, str], accept: str = ACCEPT_JSON) -> Iterator[Document]:
        """Watch a collection: events `{type, object}` as they come; an ERROR event becomes ApiError."""
        for line in self.stream(path, {**query, "watch": "1"}, accept):
            if not line.strip():
                continue
            event = json.loads(line)
            if event.get("type") == "ERROR":
                status = event.get("object")
                raise error_from(int(mapping_at(status).get("code") or 500), json.dumps(status).encode(), "Error")  # type: ignore[arg-type]
            yield event

    def _document(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Document | None,
        accept: str = ACCEPT_JSON,
        content: str = ACCEPT_JSON,
    ) -> Document:
        raw = self._exchange(method, path, query, body, accept, content)
        decoded = json.loads(raw) if raw else {}
        if not isinstance(decoded, dict):
            raise StatusError(200, "Unexpected", f"{method} {path} answered with JSON that is not an object")
        return decoded

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Document | None, accept: str, content: str
    ) -> bytes:
        """One request; a keep-alive connection that the server had closed meanwhile is opened again, once."""
        for fresh in (self._connection is None, True):
            if self._connection is None or fresh:
                self.close()
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout, context=self._context
                )
            try:
                response = self._send(self._connection, method, path, query, body, accept, content)
                raw = response.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
                self.close()
                if fresh:
                    raise UnreachableError(f"{self.url} closed the connection: {error}") from error
                continue
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise UnreachableError(
                    f"{self.url} shows a certificate that is not trusted ({error.verify_message}): name the kubeconfig that "
                    "belongs to it (--kubeconfig), or its CA (--certificate-authority)"
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise UnreachableError(f"{self.url} does not answer: {error}. Is `cotenant up` running?") from error
            if response.status >= 300:
                raise error_from(response.status, raw[:MAX_ERROR_BYTES], response.reason)
            return raw
        raise AssertionError("the second attempt either returns or raises")

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Document | None,
        accept: str,
        content: str,
    ) -> http.client.HTTPResponse:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": accept, "User-Agent": "cotenant-console", **self._headers}
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = content
        connection.request(method, target, body=payload, headers=headers)
        response = connection.getresponse()
        for warning in response.headers.get_all("Warning") or ():
            self.warn(warning.removeprefix("299 - ").strip('"'))
        return response
