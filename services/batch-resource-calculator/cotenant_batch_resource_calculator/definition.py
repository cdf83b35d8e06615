"""The service definition for its process, the simulator and replay."""

from __future__ import annotations

from datetime import timedelta

from cotenant.engine.definition import GATHERED, Question, ServiceDefinition
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources
from cotenant_batch_resource_calculator.core import CORE_VERSION, FILTERS, BatchResourceCalculator, CalculatorConfig
from cotenant_batch_resource_calculator.gauges import GAUGES
from cotenant_batch_resource_calculator.metric_view import NodeMetricView
from cotenant_batch_resource_calculator.trial import effect_of

PACE = timedelta(seconds=1)
"""Starting pods change a node's figures many times a second, while consumers act within seconds."""
HURRIED = ("metrics.*",)
"""Changes caused by a metric are stored within 20 ms; all others are not urgent (PACE)."""


def is_urgent(event: Event) -> bool:
    """Whether a node's figures changed because of its metric, the first of the event's causes: it is the newest of them."""
    if not isinstance(event.data, NodeResources) or event.data.update_time is None or not event.causes:
        return False
    sequences = [int(ref.rpartition(":")[2]) for ref in event.causes]
    return sequences[0] == max(sequences)

DEFINITION = ServiceDefinition(
    name="batch-resource-calculator",
    core_version=CORE_VERSION,
    filters=FILTERS,
    config_type=CalculatorConfig,
    make_core=BatchResourceCalculator,
    pace=PACE,
    urgent=is_urgent,
    traced=("metrics.", "objects."),
    gather=GATHERED,
    hurried=HURRIED,
    views=(NodeMetricView,),
    gauges=GAUGES,
    questions=(Question("dry-run", effect_of),),
    summary="decides how much of each node batch pods may use, and renders its NodeSLO",
)
