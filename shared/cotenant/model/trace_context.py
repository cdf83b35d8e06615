"""The trace that an event belongs to, as W3C traceparents: `00-<trace id>-<span id>-<flags>`.

The rule: an event has the trace id and the flags of its first cause, and a span id of its own, a digest of its event id. What
has no cause, or one that is not known any more, begins a trace whose id is a digest of the first cause's name (of its own id
where it has none). So `replay --verify` can recompute every id, and one trace leads from a request or a sample to everything
that followed from it. Source: https://www.w3.org/TR/trace-context/, version 00; what else a later version adds is left out.

In: texts. Out: the traceparent of a new event. `CURRENT` is the one that belongs to what a task does, for what it writes and
logs. `log.traces` remembers those of causes.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from hashlib import blake2b

CURRENT: ContextVar[str] = ContextVar("traceparent", default="")
"""Empty outside of a trace."""

_MARK = b'"traceparent":"'
_W3C = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_is_plain = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01]").fullmatch
"""What `parsed` returns as it is, as nearly all are."""
LENGTH = 55
"""Of a traceparent of version 00."""


def trace_id(first_cause: str, event_id: str) -> str:
    """Return the 16-byte trace id as hex: a digest of the first cause (of the event's own id where there is none)."""
    return blake2b((first_cause or event_id).encode(), digest_size=16).hexdigest()


def span_id(event_id: str) -> str:
    """Return the 8-byte span id as hex: a digest of the event id."""
    return blake2b(event_id.encode(), digest_size=8).hexdigest()


def traceparent_of(causes: tuple[str, ...], event_id: str) -> str:
    """Return the traceparent that follows from causes and id alone, where the first cause's own is not known."""
    return f"00-{trace_id(causes[0] if causes else '', event_id)}-{span_id(event_id)}-01"


def parsed(text: str) -> str:
    """Return a foreign traceparent in the form of version 00; empty if it is invalid."""
    if _W3C.fullmatch(text) is None or (text.startswith("00") and len(text) != LENGTH):
        return ""
    return f"00-{text[3:53]}{'01' if int(text[53:55], 16) & 1 else '00'}"


def continued(parent: str, event_id: str) -> str:
    """Return the traceparent of an event that follows from another; empty where that one has none, or no valid one."""
    known = parent if _is_plain(parent) is not None else parsed(parent)
    return f"{known[:36]}{span_id(event_id)}{known[52:]}" if known else ""


def found_in(message: bytes) -> str:
    """Return the traceparent in the beginning of a message that cannot be decoded, empty where none is seen."""
    start = message.find(_MARK, 0, 1024) + len(_MARK)
    return parsed(message[start : start + LENGTH].decode(errors="replace")) if start >= len(_MARK) else ""


def trace_of(traceparent: str) -> str:
    """Return the trace id of a traceparent, empty of none."""
    return traceparent[3:35]
