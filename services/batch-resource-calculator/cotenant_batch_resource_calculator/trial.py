"""What another configuration would change: the answer to `CONFIG_DRY_RUN`.

In: a core, the time, the JSON of a ConfigMap's `data`. Out: how many nodes' offers would change, and by how many percent
the sum of each resource over all nodes, and which sections would be rejected (of these the value in force is used on both
sides); or why that is unknown. Both sides are computed now by the rules of
`deciding`, so that the difference is the configuration's alone. The core's state does not change.

Nodes are looked at SLICE at a time; between slices the service does other work, and a node that ends meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from cotenant.events.requests import ConfigEffect
from cotenant.model.tiers import OVERCOMMITTED
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_batch_resource_calculator.core import BatchResourceCalculator

SLICE = 50
NEW_PERCENT = 100.0
"""The change of a resource with no present offer."""

_DATA = msgspec.json.Decoder(dict[str, str])


def effect_of(core: BatchResourceCalculator, now: datetime, data: bytes) -> Iterator[bytes | None]:
    """Yield None between slices, and the answer at the end."""
    try:
        configuration = load_configuration(_DATA.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        yield _answer(ConfigEffect(error=f"the request is not the data of a ConfigMap: {error}"))
        return
    changed = 0
    before, after = dict.fromkeys(OVERCOMMITTED, 0), dict.fromkeys(OVERCOMMITTED, 0)
    for count, name in enumerate(core.nodes()):
        if count and count % SLICE == 0:
            yield None
        now_offered, would_offer = core.offered(name, None, now), core.offered(name, configuration, now)
        if now_offered is None or would_offer is None:
            continue
        changed += now_offered != would_offer
        for resource in OVERCOMMITTED:
            before[resource] += now_offered[resource]
            after[resource] += would_offer[resource]
    changes = {
        resource.rpartition("/")[2]: _percent(before[resource], after[resource])
        for resource in OVERCOMMITTED
        if before[resource] != after[resource]
    }
    yield _answer(ConfigEffect(nodes=changed, changes=changes, rejected=configuration.rejected))


def _percent(before: int, after: int) -> float:
    return round(100.0 * (after - before) / before, 2) if before else NEW_PERCENT


def _answer(effect: ConfigEffect) -> bytes:
    return msgspec.json.encode(effect)
