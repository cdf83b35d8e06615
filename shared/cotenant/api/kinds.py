"""The names of a kind: group, version, plural and scope, and how users abbreviate it."""

from __future__ import annotations

import msgspec


class Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """One kind of object. `group` is empty for core."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    composed: bool = False
    """True where the object may exist without a document of its own, made of other services' facts."""
    label_names: bool = False
    """True where a name is a DNS label, not a subdomain."""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The qualified resource name, `plural.group`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
