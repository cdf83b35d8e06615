"""The names of a kind: group, version, plural and scope, the URL paths that follow, and how users abbreviate it."""

from __future__ import annotations

from urllib.parse import quote

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
    """True if the object may exist without a document, derived from other services' facts."""
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

    @property
    def qualified(self) -> str:
        """The name that kubectl prints before an object's: `pod`, `elasticquota.scheduling.sigs.k8s.io`."""
        return f"{self.singular}.{self.group}" if self.group else self.singular

    def is_named(self, word: str) -> bool:
        """Return whether a user's word means this kind: plural, singular or short name, with or without `.group`; any case."""
        wanted = word.lower()
        if self.group:
            wanted = wanted.removesuffix(f".{self.group}")
        return wanted in (self.plural, self.singular, *self.short_names)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection or of one object; no namespace means all of them."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)
