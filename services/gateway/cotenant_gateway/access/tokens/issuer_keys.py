"""The keys of an OpenID issuer, fetched over HTTPS.

In: the issuer's URL. Out: the keys that its discovery document leads to. They are fetched at the start, every RENEW_SECONDS,
and when a token names a key that is not among them. While the issuer does not answer, the keys fetched before stay in use;
its tokens are refused if there are none, and the log says why, once for each reason.

Bounds: one fetch at a time, RETRY_SECONDS between two, FETCH_SECONDS for one, MAX_DOCUMENT_BYTES a document, MAX_KEYS keys.
Source: OpenID Connect Discovery 1.0; kube-apiserver's oidc authenticator.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from cotenant_gateway.access.tokens.jwts import VerificationKey, keys_of_set

logger = logging.getLogger(__name__)

FETCH_SECONDS = 10.0
RETRY_SECONDS = 10.0
RENEW_SECONDS = 3600.0
MAX_DOCUMENT_BYTES = 1 << 20
DISCOVERY = "/.well-known/openid-configuration"


class IssuerError(Exception):
    """The issuer's answer is missing or invalid; the text states what was requested and what is wrong."""


class _Configuration(msgspec.Struct):
    issuer: str = ""
    jwks_uri: str = ""


_CONFIGURATION = msgspec.json.Decoder(_Configuration)


class IssuerKeys:
    """The keys of one issuer. `on_change` is called when they have changed."""

    def __init__(
        self,
        issuer: str,
        algorithms: Sequence[str],
        ca_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the CA file; None: the system's CAs. Raises OSError, ssl.SSLError."""
        self.issuer = issuer
        self.keys: tuple[VerificationKey, ...] = ()
        self.problem = f"the keys of {issuer} are not fetched yet"
        """Why the last fetch failed; empty if it did not."""
        self.fetched = self.failed = 0
        self.on_change: Callable[[], None] = lambda: None
        self._algorithms = tuple(algorithms)
        self._context = ssl.create_default_context(cafile=ca_file)
        self._clock = clock
        self._began: float | None = None
        self._fetching: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Keep the keys current, forever."""
        while True:
            await self.fetch()
            await asyncio.sleep(RETRY_SECONDS if self.problem else RENEW_SECONDS)

    async def fetch(self) -> bool:
        """Fetch the keys, unless a fetch began less than RETRY_SECONDS ago; returns whether they were fetched. Callers
        during a fetch waits for it."""
        if self._fetching is None:
            now = self._clock()
            if self._began is not None and now - self._began < RETRY_SECONDS:
                return False
            self._began = now
            self._fetching = asyncio.ensure_future(self._renew())
            self._fetching.add_done_callback(self._over)
        return await asyncio.shield(self._fetching)

    def _over(self, _: object) -> None:
        self._fetching = None

    async def _renew(self) -> bool:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                keys = await self._ask()
        except Exception as error:  # noqa: BLE001 - whatever an issuer sends, the gateway goes on without it
            self.failed += 1
            late = isinstance(error, TimeoutError)
            text = f"no answer within {FETCH_SECONDS:.0f} s" if late else str(error) or type(error).__name__
            problem = f"the keys of {self.issuer} cannot be fetched: {text}"
            if problem != self.problem:
                logger.warning("%s; %d keys are known", problem, len(self.keys))
            self.problem = problem
            return False
        self.fetched += 1
        if self.problem:
            logger.info("%s: %d keys", self.issuer, len(keys))
        self.problem = ""
        if [key.jwk for key in keys] != [key.jwk for key in self.keys]:
            self.keys = keys
            self.on_change()
        return True

    async def _ask(self) -> tuple[VerificationKey, ...]:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            address = self.issuer.rstrip("/") + DISCOVERY
            found = _CONFIGURATION.decode(await _document(session, address))
            if found.issuer != self.issuer:
                raise IssuerError(f"{address} is of the issuer {found.issuer[:200]!r}")
            if not found.jwks_uri.startswith("https://"):
                raise IssuerError(f"{address}: jwks_uri is not an https URL")
            keys = keys_of_set(await _document(session, found.jwks_uri), self._algorithms)
        if not keys:
            raise IssuerError(f"{found.jwks_uri} has no key for {', '.join(self._algorithms)} (--oidc-signing-algs)")
        return keys


async def _document(session: aiohttp.ClientSession, address: str) -> bytes:
    async with session.get(address, allow_redirects=False) as answer:
        if answer.status != 200:
            raise IssuerError(f"{address} answers {answer.status}")
        body = bytearray()
        async for piece in answer.content.iter_chunked(1 << 16):
            body += piece
            if len(body) > MAX_DOCUMENT_BYTES:
                raise IssuerError(f"{address} sends more than {MAX_DOCUMENT_BYTES} bytes")
    return bytes(body)
