"""The cell's base objects, which `cotenant up` declares once the gateway answers.

In: a client. Out: missing objects are created. Existing ones are not changed, so a second `up` on
the same data folder keeps a user's changes. Nodes are not among them: executors register themselves.
"""

from __future__ import annotations

from importlib.resources import files

from cotenant.kinds.registry import REGISTRY
from cotenant_console.api.client import Client, Document, StatusError, text_at
from cotenant_console.manifests.documents import parse_manifests
from cotenant_console.manifests.three_way import annotated


def base_objects(client: Client) -> int:
    """Create the missing base objects. Returns how many were missing."""
    raw = files("cotenant_console.up").joinpath("base.yaml").read_bytes()
    return sum(create_if_absent(client, manifest.document) for manifest in parse_manifests(raw, "base.yaml"))


def create_if_absent(client: Client, document: Document) -> bool:
    """Create one object. Returns False if it exists already."""
    kind = REGISTRY.type(text_at(document, "apiVersion"), text_at(document, "kind"))
    assert kind is not None, document
    try:
        client.create(kind.path(text_at(document, "metadata", "namespace")), annotated(document))
    except StatusError as error:
        if error.code != 409:
            raise
        return False
    return True
