"""What this service is, for its process, the simulator and replay."""

from __future__ import annotations

from datetime import timedelta

from cotenant.engine.definition import Question, ServiceDefinition
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.cycle.folding import FILTERS
from cotenant_scheduler.debugging import answer
from cotenant_scheduler.gauges import GAUGES
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.state.stored_placements import PlacementView

PACE = timedelta(milliseconds=100)


def urgent(event: Event) -> bool:
    """Return whether an event is urgent: a node waits for a placement. Endings and waiting reasons go with the
    next placement, or a little later."""
    return isinstance(event.data, Placement) and event.data.phase is PlacementPhase.BOUND


DEFINITION = ServiceDefinition(
    name="scheduler",
    core_version="9",
    filters=FILTERS,
    views=(PlacementView,),
    config_type=SchedulerConfig,
    make_core=SchedulerCore,
    pace=PACE,
    traced=("objects.core.pods.",),
    urgent=urgent,
    gauges=GAUGES,
    questions=(Question("debug", answer),),
    summary="Places pods on nodes, in batches over arrays.",
)
