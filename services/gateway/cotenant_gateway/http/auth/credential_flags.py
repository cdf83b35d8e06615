"""Accepted credentials: the flags, as kube-apiserver names them, and the sources that they configure.

In: the command line, the gateway's read model and clock. Out: `CredentialSources`: authenticator, issuer and reviewer of
tokens, the routes by which others verify them, and the tasks that keep files and keys current.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import uuid
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from cotenant_gateway.access.authentication import Authenticator
from cotenant_gateway.access.token_reviews import TokenReviews
from cotenant_gateway.access.tokens.account_keys import CONFIGURATION_PATH, JWKS_PATH, AccountKeys
from cotenant_gateway.access.tokens.account_tokens import AccountTokens
from cotenant_gateway.access.tokens.bearer_tokens import TokenSource
from cotenant_gateway.access.tokens.files import AccessFileError
from cotenant_gateway.access.tokens.issuer_keys import IssuerKeys
from cotenant_gateway.access.tokens.oidc import OidcError, OidcTokens, oidc_of
from cotenant_gateway.access.tokens.token_file import TokenFile
from cotenant_gateway.shell.gateway import Gateway

LOOK_SECONDS = 1.0


class CredentialError(Exception):
    """The flags, or the files that they name, cannot be used; the text states which and why."""


def add_credential_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""

    def several(flag: str, metavar: str, help_text: str) -> None:
        of_type = Path if metavar == "FILE" else str
        parser.add_argument(flag, type=of_type, action="append", default=[], metavar=metavar, help=help_text)

    def one(flag: str, metavar: str, help_text: str, default: str = "") -> None:
        parser.add_argument(flag, default=default, metavar=metavar, help=help_text)

    several("--token-auth-file", "FILE", 'bearer tokens: token,user,uid,"group1,group2"; read again when it changes')
    parser.add_argument(
        "--service-account-signing-key-file",
        type=Path,
        metavar="FILE",
        help="the private key that signs tokens of service accounts (PEM, 0600); without it none are issued",
    )
    several("--service-account-key-file", "FILE", "further keys whose tokens are accepted (PEM, one or several)")
    several(
        "--service-account-issuer",
        "URL",
        "issuers of tokens: new tokens get the first one, all are accepted; default https://<cell>.cotenant.internal",
    )
    one("--service-account-jwks-uri", "URL", "where others find the keys; default: below the issuer")
    one("--api-audiences", "NAMES", "accepted audiences of tokens, comma-separated; default: the issuer")
    one("--oidc-issuer-url", "URL", "an OpenID issuer whose ID tokens are accepted (https)")
    one("--oidc-client-id", "ID", "the audience (aud) that its tokens must have")
    one("--oidc-username-claim", "CLAIM", "which claim is the user's name", "sub")
    one("--oidc-username-prefix", "TEXT", "prefix of the name; default: the issuer and #, none for the claim email; -: none")
    one("--oidc-groups-claim", "CLAIM", "which claim has the user's groups")
    one("--oidc-groups-prefix", "TEXT", "prefix of each group")
    several("--oidc-required-claim", "CLAIM=VALUE", "a claim that a token must have")
    one("--oidc-signing-algs", "NAMES", "accepted signature algorithms, comma-separated", "RS256")
    parser.add_argument(
        "--oidc-ca-file", type=Path, metavar="FILE", help="CA of its certificate (PEM); default: the system's CAs"
    )


class CredentialSources:
    """All sources of token credentials."""

    def __init__(self, arguments: argparse.Namespace, gateway: Gateway, cell: str) -> None:
        """Read the files. Raises CredentialError."""
        self._jwks_uri = arguments.service_account_jwks_uri
        try:
            self._files = [TokenFile(path) for path in arguments.token_auth_file]
            issuers = arguments.service_account_issuer or [f"https://{cell}.cotenant.internal"]
            audiences = _names(arguments.api_audiences) or tuple(issuers)
            self.accounts = _accounts(arguments, issuers, audiences, gateway)
            self.oidc = _oidc(arguments, gateway)
        except (AccessFileError, OidcError) as error:
            raise CredentialError(str(error)) from error
        others: Sequence[TokenSource | None] = (self.accounts, self.oidc)
        self.authenticator = Authenticator([*self._files, *(each for each in others if each is not None)], os.getuid)
        self.reviews = TokenReviews(self.authenticator, self.accounts, audiences)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes by which others verify the tokens of this cell's service accounts."""
        accounts = self.accounts
        if accounts is None:
            return []

        async def configuration(_: web.Request) -> web.Response:
            body = accounts.keys.configuration(accounts.issuer, self._jwks_uri)
            return web.Response(body=body, content_type="application/json")

        async def jwks(_: web.Request) -> web.Response:
            return web.Response(body=accounts.keys.jwks, content_type="application/jwk-set+json")

        return [web.get(CONFIGURATION_PATH, configuration), web.get(JWKS_PATH, jwks)]

    async def keep_current(self) -> None:
        """Read files again whenever they change, and keep the issuer's keys, forever."""
        if self.oidc is None:
            await self._keep_files()
        else:
            await asyncio.gather(self._keep_files(), self.oidc.keys.run())

    async def _keep_files(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for file in self._files:
                file.look()
            if self.accounts is not None:
                self.accounts.look()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _accounts(
    arguments: argparse.Namespace, issuers: Sequence[str], audiences: Sequence[str], gateway: Gateway
) -> AccountTokens | None:
    signing = arguments.service_account_signing_key_file
    if signing is None:
        if arguments.service_account_key_file:
            raise AccessFileError("--service-account-key-file requires --service-account-signing-key-file")
        return None
    return AccountTokens(
        AccountKeys(signing, arguments.service_account_key_file),
        issuers,
        audiences,
        lambda: gateway.core,
        lambda: gateway.clock().timestamp(),
        lambda: str(uuid.uuid4()),
        gateway.follower.ready.is_set,
    )


def _oidc(arguments: argparse.Namespace, gateway: Gateway) -> OidcTokens | None:
    found = oidc_of(
        arguments.oidc_issuer_url,
        arguments.oidc_client_id,
        arguments.oidc_required_claim,
        _names(arguments.oidc_signing_algs),
        username_claim=arguments.oidc_username_claim,
        username_prefix=arguments.oidc_username_prefix,
        groups_claim=arguments.oidc_groups_claim,
        groups_prefix=arguments.oidc_groups_prefix,
    )
    if found is None:
        return None
    ca_file = arguments.oidc_ca_file
    try:
        keys = IssuerKeys(found.issuer, found.algorithms, ca_file)
    except (OSError, ssl.SSLError) as error:
        raise AccessFileError(f"--oidc-ca-file {ca_file}: {error}") from error
    return OidcTokens(found, keys, lambda: gateway.clock().timestamp())
