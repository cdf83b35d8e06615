"""The service account `default` of every namespace, as Kubernetes' service account controller keeps it.

In: the read model. Out: a plan for each namespace that lacks it and is not ending. Apart from requests: neither a
namespace nor a pod waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.api.snapshots import Address
from cotenant.api.splices import raw
from cotenant.events.objects import ObjectStored
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.kinds.service_accounts import DEFAULT_ACCOUNT, SERVICE_ACCOUNTS
from cotenant.log.plans import Plan, object_write
from cotenant_gateway.read_model.core import GatewayCore

Seen = tuple[frozenset[str], frozenset[str]]
"""The namespaces that there are, and those with the account; the same objects until one changes."""


def seen_accounts(core: GatewayCore) -> Seen:
    """Return the plans' inputs."""
    return core.derived(NAMESPACES, _namespaces), core.derived(SERVICE_ACCOUNTS, _namespaces_with_default)


def missing_default_accounts(core: GatewayCore) -> Iterator[Plan]:
    """Yield the accounts to create, in order of the namespaces' names."""
    namespaces, with_default = seen_accounts(core)
    for namespace in sorted(namespaces - with_default):
        document = {
            "apiVersion": "v1",
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": DEFAULT_ACCOUNT, "namespace": namespace},
        }
        expected = core.own_sequence(SERVICE_ACCOUNTS, namespace, DEFAULT_ACCOUNT)
        address = Address(SERVICE_ACCOUNTS, namespace, DEFAULT_ACCOUNT)
        yield Plan((object_write(address, ObjectStored(object=raw(document)), expected),), creates=True)


def _namespaces(core: GatewayCore) -> frozenset[str]:
    return frozenset(
        found.address.name
        for found in core.objects(NAMESPACES)
        if found.stored is not None and found.stored.meta.deletion_timestamp is None
    )


def _namespaces_with_default(core: GatewayCore) -> frozenset[str]:
    return frozenset(
        found.address.namespace for found in core.objects(SERVICE_ACCOUNTS) if found.address.name == DEFAULT_ACCOUNT
    )
