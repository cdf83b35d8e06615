"""Sections of the node configuration that cannot be used. Written by batch-resource-calculator."""

from __future__ import annotations

from cotenant.events.envelope import Part, Payload


class RejectedSection(Part, frozen=True, kw_only=True):
    """`key`: the section's key in the ConfigMap. `reason`: a code, Koordinator's reason of the Event. `message`: what is wrong
    and where, at most 900 characters."""

    key: str
    reason: str
    message: str


class ConfigurationRejected(Payload, frozen=True, kw_only=True):
    """Subject `configmaps.<namespace>.<name>`: the rejected sections of a ConfigMap, in the order in which they are read; of
    each the previous value stays in force. One event a version of the ConfigMap; a tombstone follows once no section is
    rejected, or the ConfigMap is deleted. `uid`: of the ConfigMap's object. `config`: that version's event.
    """

    TYPE = "cotenant.configuration.rejected.v1"
    SUBJECT = "configmaps.{namespace}.{name}"

    namespace: str
    name: str
    uid: str = ""
    config: str = ""
    sections: tuple[RejectedSection, ...] = ()
