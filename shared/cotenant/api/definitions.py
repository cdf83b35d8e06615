"""The definition of a kind for the API: schema, columns, validation, defaulting, composition, status; and the registry of
kinds.

A kind is one file of `cotenant.kinds` that ends with its `KindDefinition`. The registry finds definitions by (group, plural),
so that two groups may use one plural, and by (apiVersion, kind). Rules that depend on other objects than the written one are
the gateway's (`admission/chain.py`), keyed by kind as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cotenant.api.columns import PLAIN, Layout
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import AnyObject, Headed
from cotenant.api.snapshots import Composer
from cotenant.api.validation.fields import FieldError
from cotenant.events.envelope import Event
from cotenant.model.subjects import tokens

PartKey = Callable[[Event], tuple[str, str] | None]
"""Namespace and name of the object that a fact belongs to; None if it belongs to none."""

FIELD_LABELS = frozenset({"metadata.name", "metadata.namespace"})
"""Fields that a field selector may name for every kind."""


READING = ("get", "list", "watch")


def node_of_subject(event: Event) -> tuple[str, str]:
    """A cluster-scoped object with the name in the subject's second token: `node.<name>.>`, `metrics.<name>`."""
    return "", tokens(event.subject)[1]


name_of_subject = node_of_subject
"""The same for `migrations.<name>`."""


def _no_errors(_: Any, __: Callable[[], Any]) -> list[FieldError]:
    return []


def _as_given(document: msgspec.Raw) -> msgspec.Raw:
    return document


class Subresource(msgspec.Struct, frozen=True):
    """A path below an object that is not an object itself, as discovery lists it."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


class KindDefinition(msgspec.Struct, frozen=True, eq=False):
    """One kind as the API serves it. Without optional members a document is stored and shown unchanged."""

    kind: Kind
    decode: Callable[[msgspec.Raw], Headed] = msgspec.json.Decoder(AnyObject).decode
    """The schema: the typed view of a document. Raises msgspec.ValidationError with the field's path."""
    decode_when_folded: bool = False
    """Decode the whole document when it arrives, not its metadata alone: for kinds whose view is needed to show them, or to
    admit pods. A stored document that does not fit the schema then counts as absent."""
    default: Callable[[msgspec.Raw], msgspec.Raw] = _as_given
    """Default members of a new object. Runs before admission. Must return the same Raw where
    nothing is added."""
    errors: Callable[[Any, Callable[[], Any]], list[FieldError]] = _no_errors
    """Validation of the view by itself; its argument returns the stored view, None for a creation."""
    compose: Composer | None = None
    """Members that other services' facts add."""
    compose_document_alone: bool = False
    """Compose objects without such facts too."""
    parts: Mapping[type, PartKey] = {}
    """The payloads of those facts, and the object of each."""
    made_by: frozenset[type] = frozenset()
    """Of a composed kind: the payloads that create an object without a document; empty: any of its parts."""
    makes: Callable[[Any], bool] | None = None
    """Whether a fact of those creates an object without a document; None: each does."""
    parts_carry_uid: bool = False
    """The facts name the uid of their object: those of another uid are left out."""
    stable_uid: bool = False
    """The uid follows from the name, so a recreated object is the same one to watches."""
    layout: Layout = PLAIN
    """The columns of `kubectl get`."""
    field_labels: frozenset[str] = frozenset()
    """Fields that a field selector may name beside name and namespace; `compose` returns their values."""
    has_status: bool = False
    """Served with the subresource `status`."""
    created_with_status: bool = False
    """A new object may bring a status; else only the subresource writes it."""
    read_only: bool = False
    """Derived from other services' facts alone: read-only."""
    declarable: bool = False
    """Derived from other services' facts; a write gives it a document, whose members are shown together with the facts,
    which win."""
    created_with_node: bool = False
    """Without a document it has the creationTimestamp of the node of its name."""
    ends_with_node: bool = False
    """Its document has the name of a node, and ends with the node."""
    create_only: bool = False
    """A review that is answered at its creation: it cannot be read, listed or changed."""
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of the kind."""
        if self.create_only:
            return ("create",)
        return READING if self.read_only else ("create", "delete", "deletecollection", *READING, "patch", "update")


class Registry:
    """Kinds by (group, plural) and by (apiVersion, kind). Raises ValueError where two definitions claim one of them."""

    def __init__(self, definitions: Sequence[KindDefinition]) -> None:
        self.definitions = tuple(definitions)
        self._by_resource = {(found.kind.group, found.kind.plural): found for found in self.definitions}
        self._by_type = {(found.kind.api_version, found.kind.kind): found for found in self.definitions}
        if not len(self._by_resource) == len(self._by_type) == len(self.definitions):
            raise ValueError("two definitions have the same group and plural, or the same apiVersion and kind")

    def __iter__(self) -> Iterator[KindDefinition]:
        return iter(self.definitions)

    def __getitem__(self, resource: tuple[str, str]) -> KindDefinition:
        """Return the definition of a (group, plural). Raises KeyError."""
        return self._by_resource[resource]

    def of(self, kind: Kind) -> KindDefinition:
        """Return the definition of a kind. Raises KeyError."""
        return self._by_resource[kind.group, kind.plural]

    def resource(self, group: str, plural: str) -> Kind | None:
        """Return the kind of a group's resource, None where there is none."""
        found = self._by_resource.get((group, plural))
        return found.kind if found is not None else None

    def type(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that a document's apiVersion and kind name, None where there is none."""
        found = self._by_type.get((api_version, kind))
        return found.kind if found is not None else None

    def find(self, word: str) -> Kind | None:
        """Return the first kind that a user's word names (`Kind.is_named`), None where there is none."""
        return next((definition.kind for definition in self.definitions if definition.kind.is_named(word)), None)
