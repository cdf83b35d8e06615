"""Metrics of refusals: TLS handshakes, requests over their rate, tokens and keys of an OpenID issuer."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from cotenant_gateway.access.tokens.oidc import OidcTokens
from cotenant_gateway.http.auth.access import AccessControl
from cotenant_gateway.http.clients.tls import Handshakes


def register_access(meter: Meter, access: AccessControl, handshakes: Handshakes, oidc: OidcTokens | None) -> None:
    """Register the instruments, which are read on demand."""

    def observed_handshakes(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(handshakes.count)]

    def observed_refusals(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(handshakes.refused)]

    def observed_limits(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(access.of_users.refused, {"of": "users"}),
            Observation(access.of_strangers.refused, {"of": "strangers"}),
        ]

    meter.create_observable_gauge(
        "cotenant_gateway_tls_handshakes", [observed_handshakes], description="TLS handshakes in progress"
    )
    meter.create_observable_counter(
        "cotenant_gateway_tls_handshakes_refused",
        [observed_refusals],
        description="Connections closed because too many handshakes were in progress",
    )
    meter.create_observable_counter(
        "cotenant_gateway_requests_limited",
        [observed_limits],
        description="Requests answered with 429: of users over their rate, of addresses with wrong credentials",
    )
    if oidc is not None:
        _register_issuer(meter, oidc)


def _register_issuer(meter: Meter, oidc: OidcTokens) -> None:
    def observed_keys(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(len(oidc.keys.keys))]

    def observed_fetches(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(oidc.keys.fetched, {"outcome": "fetched"}),
            Observation(oidc.keys.failed, {"outcome": "failed"}),
        ]

    def observed_tokens(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(oidc.refused)]

    meter.create_observable_gauge(
        "cotenant_gateway_oidc_keys", [observed_keys], description="Keys of the OpenID issuer; 0: all its tokens are refused"
    )
    meter.create_observable_counter(
        "cotenant_gateway_oidc_key_fetches", [observed_fetches], description="Fetches of the OpenID issuer's keys by outcome"
    )
    meter.create_observable_counter(
        "cotenant_gateway_oidc_tokens_refused",
        [observed_tokens],
        description="Checks of the OpenID issuer's tokens that failed",
    )
