"""TokenReview: the user of a token, for the service that received it. Source: Kubernetes' TokenReview and its REST storage.

In: the review's document. Out: the document with `status`: the user, and the audiences that the token and the question share.
All kinds of tokens are reviewed; those that name no audience are tokens for this API. The token is left out
of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.times import rfc3339
from cotenant.kinds.reviews import TOKEN_REVIEWS
from cotenant_gateway.access.authentication import Authenticator, RefusedTokenError
from cotenant_gateway.access.reviews import user_info
from cotenant_gateway.access.tokens.account_tokens import AccountTokens
from cotenant_gateway.access.tokens.bearer_tokens import MAX_TOKEN_BYTES, TokenError
from cotenant_gateway.access.users import User
from cotenant_gateway.statuses import bad_request


class _Spec(View, frozen=True, kw_only=True):
    token: str = ""
    audiences: tuple[str, ...] | None = None


class _Review(View, frozen=True, kw_only=True):
    api_version: str = TOKEN_REVIEWS.api_version
    kind: str = TOKEN_REVIEWS.kind
    spec: _Spec = _Spec()


_REVIEW = msgspec.json.Decoder(_Review)


class TokenReviews:
    """Answers reviews. `audiences`: those of this API."""

    def __init__(self, authenticator: Authenticator, accounts: AccountTokens | None, audiences: Sequence[str]) -> None:
        self._authenticator = authenticator
        self._accounts = accounts
        self._audiences = tuple(audiences)

    async def answer(self, body: bytes, now: datetime) -> bytes:
        """Return a review with its answer, as JSON. Raises ApiError."""
        try:
            review = _REVIEW.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise bad_request(f"a TokenReview cannot be read: {error}") from error
        if (review.api_version, review.kind) != (TOKEN_REVIEWS.api_version, TOKEN_REVIEWS.kind):
            expected = f"{TOKEN_REVIEWS.api_version}, Kind=TokenReview"
            raise bad_request(f"expected {expected}, found {review.api_version}, Kind={review.kind}")
        if not review.spec.token:
            raise bad_request("spec.token: Required value: the token to review")
        wanted = review.spec.audiences or self._audiences
        try:
            user, audiences = await self._found(review.spec.token, wanted)
        except (TokenError, RefusedTokenError) as error:
            status: dict[str, Any] = {"authenticated": False, "user": {}, "error": str(error)}
        else:
            status = {"authenticated": True, "user": user_info(user), "audiences": audiences}
        return msgspec.json.encode(
            {
                "apiVersion": TOKEN_REVIEWS.api_version,
                "kind": TOKEN_REVIEWS.kind,
                "metadata": {"creationTimestamp": rfc3339(now)},
                "spec": {"audiences": wanted},
                "status": status,
            }
        )

    async def _found(self, token: str, wanted: Sequence[str]) -> tuple[User, tuple[str, ...]]:
        """Return whose token it is, and for which of the wanted audiences. Raises TokenError, RefusedTokenError."""
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenError(f"a token has {MAX_TOKEN_BYTES} bytes at most")
        found = self._accounts.of_audience(token, wanted) if self._accounts is not None else None
        if found is not None:
            return found.user, found.audiences
        common = tuple(each for each in self._audiences if each in wanted)
        if not common:
            raise TokenError(f"it is meant for this API, and for none of {', '.join(wanted)[:500]}")
        try:
            return self._authenticator.of_token(token), common
        except RefusedTokenError as refused:
            if not await refused.may_be_known_now():
                raise
        return self._authenticator.of_token(token), common
