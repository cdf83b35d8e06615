"""A service's own latency: the annotations by which a pod exposes it, and the document that it answers with.

In: texts of annotations, the body of an answer. Out: the endpoint, the goal, the figures; ValueError says what is wrong.

    cotenant.io/latency-endpoint  http://127.0.0.1:8080/latency           loopback, by IPv4, [::1] or localhost; a port
                                  http://unix:/run/web.sock:/latency      a socket as the pod sees it (the form of nginx)
    cotenant.io/latency-goal      20ms                                    above this the service is late

    answer  {"p99Ms": 12.5, "oldestRequestMs": 3}   either member may be missing, others are ignored; 0 to MOST_MS
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec
from msgspec import Struct

from cotenant.model.durations import parse_duration

ANNOTATION_ENDPOINT = "cotenant.io/latency-endpoint"
ANNOTATION_GOAL = "cotenant.io/latency-goal"
LONGEST_SOCKET = 80
"""Characters: the kernel accepts 107, part of which the path to the pod's files needs."""
LONGEST_PATH = 256
MOST_MS = 3_600_000.0
LEAST_GOAL_MS = 0.1
_FORMS = "expected http://127.0.0.1:PORT/PATH or http://unix:/SOCKET:/PATH"
_PATH = re.compile(r"/[!-~]*")
_LOOPBACK = re.compile(r"http://(127(?:\.[0-9]{1,3}){3}|\[::1\]|localhost):([0-9]{1,5})(/.*)?")
_SOCKET = re.compile(r"http://unix:(/[^:\s\0]+)(?::(/.*))?")


class LatencyEndpoint(Struct, frozen=True):
    """Where a service answers: a unix socket, or a host and a port; and the path of the request."""

    socket: str = ""
    host: str = ""
    port: int = 0
    path: str = "/"


class LatencyFigures(Struct, frozen=True):
    """Milliseconds; None where the service does not report it."""

    p99_ms: float | None = msgspec.field(default=None, name="p99Ms")
    oldest_request_ms: float | None = msgspec.field(default=None, name="oldestRequestMs")


@lru_cache(maxsize=256)
def parse_latency_endpoint(text: str) -> LatencyEndpoint:
    """Raises ValueError."""
    if found := _SOCKET.fullmatch(text):
        made = LatencyEndpoint(socket=found[1], path=found[2] or "/")
        if len(made.socket) > LONGEST_SOCKET:
            raise ValueError(f"the socket's name has {len(made.socket)} characters, at most {LONGEST_SOCKET} are allowed")
        if ".." in made.socket.split("/"):
            raise ValueError("the socket's name must not contain '..'")
    elif found := _LOOPBACK.fullmatch(text):
        host = found[1].strip("[]")
        made = LatencyEndpoint(host="127.0.0.1" if host == "localhost" else host, port=int(found[2]), path=found[3] or "/")
        if any(int(part) > 255 for part in made.host.split(".") if part.isdigit()):
            raise ValueError(f"{made.host} is not an address; {_FORMS}")
        if not 0 < made.port < 65536:
            raise ValueError(f"port {made.port}: expected 1 to 65535")
    else:
        raise ValueError(_FORMS)
    if len(made.path) > LONGEST_PATH or not _PATH.fullmatch(made.path):
        raise ValueError(f"the path must be at most {LONGEST_PATH} visible ASCII characters")
    return made


@lru_cache(maxsize=256)
def parse_latency_goal(text: str) -> float:
    """Milliseconds. Raises ValueError."""
    goal = parse_duration(text).total_seconds() * 1e3
    if not LEAST_GOAL_MS <= goal <= MOST_MS:
        raise ValueError(f"expected a duration from {LEAST_GOAL_MS}ms to 1h")
    return goal


def parse_latency_figures(body: bytes) -> LatencyFigures:
    """Raises ValueError."""
    try:
        found = msgspec.json.decode(body, type=LatencyFigures)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the answer cannot be read: {error}") from error
    given = [each for each in (found.p99_ms, found.oldest_request_ms) if each is not None]
    if not given:
        raise ValueError("the answer has neither p99Ms nor oldestRequestMs")
    if any(not 0 <= each <= MOST_MS for each in given):
        raise ValueError(f"the answer's milliseconds are not from 0 to {MOST_MS:.0f}")
    return found


def latency_annotation_errors(annotations: dict[str, str]) -> list[tuple[str, str, str]]:
    """Errors in a pod's annotations: name, value, reason."""
    found: list[tuple[str, str, str]] = []
    for name, parse in ((ANNOTATION_ENDPOINT, parse_latency_endpoint), (ANNOTATION_GOAL, parse_latency_goal)):
        if name in annotations:
            try:
                parse(annotations[name])
            except ValueError as error:
                found.append((name, annotations[name], str(error)))
    if ANNOTATION_ENDPOINT in annotations and ANNOTATION_GOAL not in annotations:
        found.append((ANNOTATION_ENDPOINT, annotations[ANNOTATION_ENDPOINT], f"needs {ANNOTATION_GOAL} beside it"))
    return found
