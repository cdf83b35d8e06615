"""The service definition for its process, the simulator and replay."""

from __future__ import annotations

from datetime import timedelta

from cotenant.engine.definition import GATHERED, Definition, Question
from cotenant_batch_resource_calculator.core import CORE_VERSION, FILTERS, BatchResourceCalculator, CalculatorConfig
from cotenant_batch_resource_calculator.gauges import GAUGES
from cotenant_batch_resource_calculator.trial import effect_of

PACE = timedelta(seconds=1)
"""Starting and ending pods change a node's figures many times a second, while consumers act within seconds."""

DEFINITION = Definition(
    name="batch-resource-calculator",
    core_version=CORE_VERSION,
    filters=FILTERS,
    config_type=CalculatorConfig,
    make_core=BatchResourceCalculator,
    pace=PACE,
    traced=("metrics.", "objects."),
    gather=GATHERED,
    gauges=GAUGES,
    questions=(Question("dry-run", effect_of),),
    summary="decides how much of each node batch pods may use, and renders its NodeSLO",
)
