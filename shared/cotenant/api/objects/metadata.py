"""ObjectMeta and what all objects share: the view that every reader starts with."""

from __future__ import annotations

from typing import Protocol

from cotenant.model.bounds import Int64
from cotenant.model.values import Value


class View(Value, frozen=True, kw_only=True, rename="camel"):
    """Base of typed views: unknown fields are ignored, so the raw document stays authoritative.

    Views hold plain data without reference cycles: the garbage collector does not track them.
    """


class OwnerReference(View, frozen=True, kw_only=True):
    """Who owns the object; `controller` marks the managing one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(View, frozen=True, kw_only=True):
    """Metadata as users and the gateway write it; times are RFC 3339 text in UTC."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class LabelSelectorRequirement(View, frozen=True, kw_only=True):
    """One expression: key, operator (In, NotIn, Exists, DoesNotExist; Gt and Lt in node selectors), values."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(View, frozen=True, kw_only=True):
    """All of match_labels and match_expressions must hold; empty selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class AnyObject(View, frozen=True, kw_only=True):
    """The head of any object."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class Headed(Protocol):
    """Any typed view with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
