"""API errors as Kubernetes `Status` objects: code, reason, message, and causes with field paths.

Everything the HTTP layer and admission refuse is an `ApiError`; `ApiError.body` is what goes over the wire, and its
message is the same text that the command line prints.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.validation.fields import FieldError


class StatusCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cause: a field's error, or a reason such as DisruptionBudget."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The subject of the status."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class ListMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Empty metadata, present because clients expect the field."""


class Status(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """meta/v1 Status."""

    status: str
    code: int
    kind: str = ""
    api_version: str = ""
    metadata: ListMeta | None = None
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None


def encodable(text: str) -> str:
    """Return the text with `?` for what UTF-8 cannot encode: bytes of a header that are no text become lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def status_object(
    code: int, reason: str, message: str, details: StatusDetails | None = None, *, status: str = "Failure"
) -> Status:
    """Return a complete Status."""
    return Status(
        kind="Status",
        api_version="v1",
        metadata=ListMeta(),
        status=status,
        message=encodable(message),
        reason=reason,
        details=details,
        code=code,
    )


class ApiError(Exception):
    """A request that is answered with a failure Status."""

    def __init__(self, code: int, reason: str, message: str, details: StatusDetails | None = None) -> None:
        super().__init__(message)
        self.status = status_object(code, reason, message, details)

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self.status)


def _about(kind: Kind, name: str, causes: Sequence[StatusCause] = ()) -> StatusDetails:
    return StatusDetails(name=name, group=kind.group, kind=kind.plural, causes=tuple(causes))


def _causes(errors: Sequence[FieldError]) -> tuple[StatusCause, ...]:
    return tuple(StatusCause(reason=error.reason.value, message=error.message, field=error.field) for error in errors)


def bad_request(message: str, errors: Sequence[FieldError] = ()) -> ApiError:
    """400: the request cannot be understood."""
    return ApiError(400, "BadRequest", message, StatusDetails(causes=_causes(errors)) if errors else None)


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no such object."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', _about(kind, name))


def no_such_path() -> ApiError:
    """404: the server does not have this resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", StatusDetails())


def method_not_allowed(message: str) -> ApiError:
    """405: the resource exists, the verb does not."""
    return ApiError(405, "MethodNotAllowed", message)


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: an object of this name exists, possibly still terminating."""
    return ApiError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _about(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409: the object changed under the writer."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(kind, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def expired(wanted: int, oldest: int) -> ApiError:
    """410: a watch or continued list below this gateway's oldest change."""
    return ApiError(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def too_large(limit: int, what: str = "request body") -> ApiError:
    """413: more bytes than the server accepts."""
    return ApiError(
        413,
        "RequestEntityTooLarge",
        f"{what} is too large: at most {limit} bytes are accepted; split the object or keep bulk data elsewhere",
    )


def unsupported_media(given: str, accepted: Sequence[str]) -> ApiError:
    """415: the verb does not accept the body's type."""
    message = f'the body of the request was in an unknown format "{given}" - accepted media types include: '
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def invalid_object(kind: Kind, name: str, errors: Sequence[FieldError], changed: Sequence[str] = ()) -> ApiError:
    """422: the object can be read but breaks rules; every violation is a cause. `changed`: what admission changed before."""
    texts = [str(error) for error in errors]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    subject = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = StatusDetails(name=name, group=kind.group, kind=kind.kind, causes=_causes(errors))
    before = f" (after admission changed the object: {'; '.join(changed)})" if changed else ""
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {listed}{before}', details)


def forbidden(kind: Kind, name: str, why: str, errors: Sequence[FieldError] = ()) -> ApiError:
    """403: understood, well formed, not allowed."""
    message = f'{kind.resource} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _about(kind, name, _causes(errors)))


def budget_refuses(kind: Kind, name: str, message: str) -> ApiError:
    """429 with the cause DisruptionBudget, as pods/eviction answers when a budget has no disruption left."""
    cause = StatusCause(reason="DisruptionBudget", message=message)
    return ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        _about(kind, name, (cause,)),
    )


def too_many(message: str) -> ApiError:
    """429: the gateway's bounds, or this client's share of them, are reached; the client may retry."""
    return ApiError(429, "TooManyRequests", message, StatusDetails(retry_after_seconds=1))


def request_timeout(message: str) -> ApiError:
    """408: the client did not send its request in time."""
    return ApiError(408, "RequestTimeout", message)


def internal(message: str) -> ApiError:
    """500: the server's own fault, with its details."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")


def unavailable(message: str, retry_after_seconds: int = 1) -> ApiError:
    """503: not ready, or the log does not answer; the client may retry."""
    return ApiError(503, "ServiceUnavailable", message, StatusDetails(retry_after_seconds=retry_after_seconds))


def insufficient_storage(message: str) -> ApiError:
    """507: LOG, or its disk, is full. Without Retry-After, as a retry alone does not help."""
    return ApiError(507, "InsufficientStorage", message)


def timeout(message: str) -> ApiError:
    """504: the awaited state was not reached in time."""
    return ApiError(504, "Timeout", message, StatusDetails(retry_after_seconds=1))
