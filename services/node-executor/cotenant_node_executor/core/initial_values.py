"""Initial values for existing targets that no strategy desires a value for any more.

In: the dropped targets, the existing groups. Once, LEFT_OVER_NS after the first sample, as strategies need some samples to
decide: values that an earlier executor may have set, that is every file of tiers and pods that strategies may set and none
does. Out: desired values that every strategy takes precedence over. A thread may have ended, and its number been reused:
its former value is restored elsewhere (`targets.other.held`). Bound: the existing places that strategies have set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set

from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.situation import LocalNode
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
from cotenant_node_executor.targets.cgroup.files import BY_DEVICE, unset_text
from cotenant_node_executor.targets.cpulist import format_cpu_list
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, NodeCapabilities

LEFT_OVER_NS = 10_000_000_000
Desires = Callable[[Place, Attribute], Desired | None]
"""The desired value of a target, if there is one."""


class InitialValues:
    """Of one node."""

    def __init__(self, facts: LocalNode, capabilities: NodeCapabilities, settable: Collection[Attribute]) -> None:
        """`settable`: what strategies may set."""
        self._of_attribute: dict[Attribute, str] = {
            **INITIAL_VALUES,
            Knob.CPUSET_CPUS: format_cpu_list(processor.cpu for processor in facts.processors),
        }
        self._of_kubelet = facts.kubelet_pods
        if facts.kubelet_pods:
            # The former values of kubelet's files are kept with them.
            self._of_attribute = {each: text for each, text in self._of_attribute.items() if not isinstance(each, Knob)}
        known = [each for each in Knob if each in settable and each in self._of_attribute]
        self._set_by_strategies = [each for each in known if capabilities.supports(each)]
        self._desired: dict[Place, dict[Attribute, Desired]] = {}
        self._began_ns: int | None = None
        """When the first sample was taken, monotonic."""
        self._due = self._looked = False

    def __bool__(self) -> bool:
        return bool(self._desired)

    def text(self, attribute: Attribute) -> str:
        """What an attribute holds that no strategy has set; "" where that is not known."""
        return self._of_attribute.get(attribute, "")

    def add(self, dropped: Mapping[tuple[Place, Attribute], str], groups: Set[str]) -> None:
        """Take targets that were dropped, with their last values; `groups`: those that exist."""
        for (place, attribute), last in dropped.items():
            value = self._initial(attribute, last)
            if value is not None and not isinstance(place, Thread) and _is_there(place, groups):
                desired = Desired(attribute, value, RESTORE.name, "nothing else desired")
                self._desired.setdefault(place, {})[attribute] = desired

    def _initial(self, attribute: Attribute, last: str) -> str | None:
        """The initial value of an attribute whose last value this was; None where there is none, or it is restored elsewhere.
        Of a file with a line for each device: that of the devices which were set."""
        if isinstance(attribute, Knob) and attribute in BY_DEVICE and not self._of_kubelet:
            text = unset_text(attribute, last)
            return text if text and text != last else None
        return self._of_attribute.get(attribute)

    def is_time(self, snapshot: UsageSnapshot | None) -> bool:
        """Whether it is time to undo an earlier executor's values; False once that was done."""
        if snapshot is None or self._looked:
            return False
        self._began_ns = snapshot.monotonic_ns if self._began_ns is None else self._began_ns
        self._due = snapshot.monotonic_ns - self._began_ns >= LEFT_OVER_NS
        return self._due

    def add_left_over(self, pods: Iterable[PodView], groups: Set[str], desires: Desires) -> None:
        """Take the files without a desired value, if it is time. `pods`: the existing ones."""
        if not self._due or self._looked:
            return
        self._looked = True
        for group in [BURSTABLE, BESTEFFORT, *(group for pod in pods for group in pod.groups)]:
            for knob in self._set_by_strategies if group in groups else ():
                if desires(group, knob) is None:
                    why = "no strategy desires the value that an earlier executor may have set"
                    desired = Desired(knob, self._of_attribute[knob], RESTORE.name, why)
                    self._desired.setdefault(group, {})[knob] = desired

    def keep(self, groups: Set[str]) -> None:
        """Drop the groups that are gone."""
        self._desired = {place: own for place, own in self._desired.items() if _is_there(place, groups)}

    @property
    def values(self) -> DesiredValues:
        """The initial values by place."""
        return {place: (*own.values(),) for place, own in self._desired.items()}


def _is_there(place: Place, groups: Set[str]) -> bool:
    group = place.group if isinstance(place, (Processes, RealtimeThreads, EgressClass)) else place
    return not isinstance(group, str) or group == ROOT_GROUP or group in groups
