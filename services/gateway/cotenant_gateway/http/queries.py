"""The parameters of a list or watch request, read from its query string."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

import msgspec

from cotenant.api.definitions import FIELD_LABELS, KindDefinition
from cotenant.api.snapshots import Snapshot
from cotenant.domain.selectors import SelectorError
from cotenant_gateway.http.routing import RequestTarget
from cotenant_gateway.read_model.selectors import (
    EVERYTHING,
    Selector,
    parse_field_selector,
    parse_label_selector,
)
from cotenant_gateway.statuses import ApiError, bad_request

MAX_LIMIT = 100_000
MAX_WATCH_SECONDS = 3600


class Continue(msgspec.Struct, frozen=True):
    """Where a list continues: after which object, and the version of its first page."""

    version: int
    namespace: str
    name: str


_CONTINUE = msgspec.json.Decoder(Continue)


class Query(msgspec.Struct, frozen=True):
    """Selection and paging of a list or watch. `version` -1: none was given."""

    labels: Selector = EVERYTHING
    fields: Selector = EVERYTHING
    name: str = ""
    limit: int = 0
    after: Continue | None = None
    version: int = -1
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool = False
    timeout_seconds: int = MAX_WATCH_SECONDS
    include_object: str = "Metadata"

    @property
    def selects_everything(self) -> bool:
        return not self.labels.requirements and not self.fields.requirements

    def predicate(self, target: RequestTarget) -> Callable[[Snapshot], bool]:
        """Return the test of an object for this query below a target."""
        namespace = target.namespace
        if self.selects_everything:
            return lambda snapshot: not namespace or snapshot.address.namespace == namespace

        def selected(snapshot: Snapshot) -> bool:
            if namespace and snapshot.address.namespace != namespace:
                return False
            if self.labels.requirements and not self.labels.matches(snapshot.labels):
                return False
            return not self.fields.requirements or self.fields.matches(snapshot.fields)

        return selected


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")


def _number(query: Mapping[str, str], name: str, default: int, highest: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise bad_request(f"{name}: Invalid value: {text[:40]!r}: must be a number that is not negative")
    return min(int(text), highest)


def read_query(definition: KindDefinition, query: Mapping[str, str]) -> Query:
    """Return the parsed query string. Raises ApiError."""
    try:
        labels = parse_label_selector(query.get("labelSelector", ""))
        fields = parse_field_selector(query.get("fieldSelector", ""), FIELD_LABELS | definition.field_labels)
    except SelectorError as error:
        raise bad_request(str(error)) from error
    return Query(
        labels=labels,
        fields=fields,
        limit=_number(query, "limit", 0, MAX_LIMIT),
        after=_read_continue(query.get("continue", "")),
        version=_number(query, "resourceVersion", -1, 2**63 - 1),
        watch=_flag(query, "watch"),
        bookmarks=_flag(query, "allowWatchBookmarks"),
        initial_events=_flag(query, "sendInitialEvents"),
        timeout_seconds=_number(query, "timeoutSeconds", MAX_WATCH_SECONDS, MAX_WATCH_SECONDS) or MAX_WATCH_SECONDS,
        include_object=query.get("includeObject", "") or "Metadata",
    )


def _read_continue(token: str) -> Continue | None:
    if not token:
        return None
    try:
        return _CONTINUE.decode(base64.urlsafe_b64decode(token))
    except (ValueError, msgspec.MsgspecError) as error:
        raise _bad_token() from error


def _bad_token() -> ApiError:
    return bad_request("continue key is not valid: use the one that the last page gave")


def continue_token(version: int, last: Snapshot) -> str:
    """Return the token for the page after `last`."""
    where = Continue(version, last.address.namespace, last.address.name)
    return base64.urlsafe_b64encode(msgspec.json.encode(where)).decode()
