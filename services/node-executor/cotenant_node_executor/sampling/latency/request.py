"""One request for a service's own latency.

In: the endpoint, the processes of the pod. Out: the figures, or RequestFailedError with the reason. A GET of HTTP/1.0 without
credentials; redirects are not followed. A unix socket is looked up among the pod's own files, and its listener must be a
process of the pod, so that no pod can make the executor, which may be root, connect to a foreign socket.

Bounds: MOST_BYTES of an answer with its headers, TIMEOUT_SECONDS for all of it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Collection

from cotenant.domain.service_latency import LatencyEndpoint, LatencyFigures, parse_latency_figures

TIMEOUT_SECONDS = 0.25
MOST_BYTES = 4096
_UCRED = struct.Struct("3i")


class RequestFailedError(Exception):
    """Why a service did not report its latency."""


async def ask(endpoint: LatencyEndpoint, pids: Collection[int]) -> LatencyFigures:
    """Raises RequestFailedError. `pids`: of the pod, at least one."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return _figures(await _answer(endpoint, pids))
    except TimeoutError:
        raise RequestFailedError(f"no answer within {1000 * TIMEOUT_SECONDS:.0f} ms") from None
    except (OSError, ValueError) as error:
        raise RequestFailedError(str(error) or type(error).__name__) from error


async def _answer(endpoint: LatencyEndpoint, pids: Collection[int]) -> bytes:
    if endpoint.socket:
        reader, writer = await asyncio.open_unix_connection(f"/proc/{min(pids)}/root{endpoint.socket}")
    else:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        if endpoint.socket and _listener(writer) not in pids:
            raise ValueError(f"{endpoint.socket} is listened to by another process than the pod's")
        head = f"GET {endpoint.path} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
        writer.write(head.encode("ascii"))
        answer = b""
        while not _complete(answer) and (more := await reader.read(MOST_BYTES)):
            answer += more
            if len(answer) > MOST_BYTES:
                raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
        return answer
    finally:
        writer.close()


def _listener(writer: asyncio.StreamWriter) -> int:
    """The process that listens at the other end."""
    found: socket.socket = writer.get_extra_info("socket")
    return int(_UCRED.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0])


def _complete(answer: bytes) -> bool:
    """Whether the body is as long as the headers say; without such a header it ends with the connection."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value.strip()[:9])
    return False


def _figures(answer: bytes) -> LatencyFigures:
    head, found, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split()
    if not found or len(status) < 2 or not status[0].startswith(b"HTTP/1."):
        raise ValueError("the answer is not one of HTTP")
    if status[1] != b"200":
        raise ValueError(f"the answer's status is {status[1][:10].decode('ascii', 'replace')}")
    return parse_latency_figures(body)
