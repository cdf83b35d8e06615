"""The socket below a connection: its peer, the kernel's timeouts, and an answer without a request.

In: asyncio's transport. Out: the peer that the kernel or the client's certificate names; bytes of a refusal.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from cotenant_gateway.access.authentication import Peer, peer_uid
from cotenant_gateway.statuses import ApiError

KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""Seconds until the first probe, seconds between probes, probes without an answer."""
USER_TIMEOUT_MILLISECONDS = 30_000


def plain_answer(error: ApiError) -> bytes:
    """Return an answer as bytes, for a connection without a request; it closes the connection."""
    head = (
        f"HTTP/1.1 {error.code} {error.status.reason}\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        f"Connection: close\r\nContent-Length: {len(error.body)}\r\n\r\n"
    )
    return head.encode() + error.body


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Return the connection's own information about its peer."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_UNIX:
        return Peer(uid=peer_uid(sock))
    certificate = transport.get_extra_info("peercert") or {}
    return Peer(tuple((name, value) for part in certificate.get("subject", ()) for name, value in part))


def keep_alive(sock: Any) -> None:
    """Have the kernel close a TCP connection whose other machine has vanished."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MILLISECONDS)
