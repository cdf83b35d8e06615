"""Facts as the gateway stores them, for tests that need no gateway."""

from __future__ import annotations

from cotenant.events import Event
from cotenant.model.subjects import pod_subject
from tests.builders import pod_document, stored


def stored_pod(name: str, namespace: str = "default") -> Event:
    """A pod of any image that asks for a core."""
    document = pod_document(name, namespace=namespace, created="2026-01-01T00:00:00Z", image="app", requests={"cpu": "1"})
    return Event(
        subject=pod_subject(namespace, name),
        data=stored(document),
        id=f"pod/{namespace}/{name}",
        source="/cell/gateway/0",
    )
