"""What another configuration would change: the answer to `CONFIG_DRY_RUN`.

In: a core, the time, the JSON of a ConfigMap's `data`. Out: how many nodes' offers would change, by how many percent the sum
of each resource over all nodes, how many NodeSLOs would change, and which sections would be rejected (of these the value in
force is used on both sides); or why that is unknown. Both sides are computed now by the rules of `deciding` and `rendering`, so
that the difference is the configuration's alone. The core's state does not change.

Nodes are looked at SLICE at a time; between slices the service does other work, and a node that ends meanwhile is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import msgspec

from cotenant.events.requests import ConfigEffect
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from cotenant_batch_resource_calculator.deciding import offered_by, offered_under
from cotenant_batch_resource_calculator.rendering import Renderer

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
    renderer = Renderer(configuration)
    changed = slos = 0
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for count, name in enumerate(core.nodes()):
        if count and count % SLICE == 0:
            yield None
        state = core.node(name)
        if state is None:
            continue
        resources, slo = core.wanted(state, now)
        offers, would_offer = offered_by(state, resources), offered_under(state, configuration, core.pools, now)
        changed += offers != would_offer
        before.update(offers)
        after.update(would_offer)
        would = renderer.render(name, state.labels, state.annotations, state.reservation(), state.published_slo)
        slos += bytes(would.spec) != bytes(slo.spec)
    changes = {
        resource.rpartition("/")[2]: _percent(before[resource], after[resource])
        for resource in sorted({*before, *after}, key=lambda name: ("/" in name, name))
        if before[resource] != after[resource]
    }
    yield _answer(ConfigEffect(nodes=changed, changes=changes, slos=slos, rejected=configuration.rejected))


def _percent(before: int, after: int) -> float:
    return round(100.0 * (after - before) / before, 2) if before else NEW_PERCENT


def _answer(effect: ConfigEffect) -> bytes:
    return msgspec.json.encode(effect)
