"""Sessions with a gateway: HTTPS with its own CA, and a bearer token.

In: credentials, and arguments of aiohttp's sessions. Out: a session.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from cotenant_console.api.credentials import Credentials


def http_session(
    credentials: Credentials, base_url: str | None = None, *, connections: int = 100, **options: Any
) -> aiohttp.ClientSession:
    """Return a session with at most this many connections, to be used as a context."""
    connector = aiohttp.TCPConnector(limit=connections, ssl=credentials.context())
    return aiohttp.ClientSession(base_url, connector=connector, headers=credentials.headers, **options)
