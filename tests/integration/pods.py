"""Facts as the gateway stores them, for tests that need no gateway."""

from __future__ import annotations

import msgspec

from cotenant.events import Event, ObjectStored
from cotenant.model.subjects import pod_subject


def stored_pod(name: str, namespace: str = "default") -> Event:
    """A pod of any image that asks for a core."""
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}]},
    }
    return Event(
        subject=pod_subject(namespace, name),
        data=ObjectStored(object=msgspec.Raw(msgspec.json.encode(document))),
        id=f"pod/{namespace}/{name}",
        source="/cell/gateway/0",
    )
