"""Initial values for targets that no strategy desires a value for any more, as long as they are there.

In: the targets that were dropped, the existing groups. Out: desired values that every strategy takes precedence over. A thread
may have ended, and its number be another's: it is left as it is. Bound: the places that strategies have set and that are
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from cotenant_node_executor.strategies.situation import NodeFacts
from cotenant_node_executor.strategies.strategy import RESTORE, Desired, DesiredValues
from cotenant_node_executor.targets.address import (
    INITIAL_VALUES,
    Attribute,
    EgressClass,
    Knob,
    Place,
    Processes,
    RealtimeThreads,
    Thread,
)
from cotenant_node_executor.targets.cpulist import format_cpu_list
from cotenant_node_executor.targets.interface import ROOT_GROUP


class InitialValues:
    """Of one node."""

    def __init__(self, facts: NodeFacts) -> None:
        self._of_attribute: dict[Attribute, str] = {
            **INITIAL_VALUES,
            Knob.CPUSET_CPUS: format_cpu_list(processor.cpu for processor in facts.processors),
        }
        if facts.kubelet_pods:
            # What kubelet's files held before is kept with them.
            self._of_attribute = {each: text for each, text in self._of_attribute.items() if not isinstance(each, Knob)}
        self._desired: dict[Place, dict[Attribute, Desired]] = {}

    def __bool__(self) -> bool:
        return bool(self._desired)

    def add(self, dropped: Iterable[tuple[Place, Attribute]], groups: Set[str]) -> None:
        """Take targets that were dropped; `groups`: those that exist."""
        for place, attribute in dropped:
            value = self._of_attribute.get(attribute)
            if value is not None and not isinstance(place, Thread) and _is_there(place, groups):
                desired = Desired(attribute, value, RESTORE.name, "nothing else desired")
                self._desired.setdefault(place, {})[attribute] = desired

    def keep(self, groups: Set[str]) -> None:
        """Forget the groups that are gone."""
        self._desired = {place: own for place, own in self._desired.items() if _is_there(place, groups)}

    @property
    def values(self) -> DesiredValues:
        """The initial values by place."""
        return {place: (*own.values(),) for place, own in self._desired.items()}


def _is_there(place: Place, groups: Set[str]) -> bool:
    group = place.group if isinstance(place, (Processes, RealtimeThreads, EgressClass)) else place
    return not isinstance(group, str) or group == ROOT_GROUP or group in groups
