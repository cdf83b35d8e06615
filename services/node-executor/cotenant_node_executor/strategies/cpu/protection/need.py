"""Which real-time pods the class helps, by the latency that their services report, else by run delay (`lateness`).

In: the pods that request the class and have a latency goal, those that have the class now, how long each was late. Out: how
long each is late now, and the decision:

    has the class, late for LATE_SAMPLES while its threads wait   loses it: its budget or other real-time threads delay it, and
                                                                  it gets more time in the fair class
    has the class, late, its threads do not wait                  kept: it does not lack CPU time
    lost the class, on time in the fair class                     stays there, after the cool-down too
    lost the class, late there for LATE_SAMPLES                   gets the class again after the cool-down
    late, and more pods request the class than there are places   gets the next free place

A pod without a goal is not judged. One sample counts once, and a change of class starts the count again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from cotenant_node_executor.strategies.cpu.protection.lateness import Lateness, lateness
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.situation import Situation

LATE_SAMPLES = 3


class Need(Struct, frozen=True):
    """`late`: by pod's group, the samples in a row that count against its present class; `sample`: when the newest of them
    was taken, in monotonic ns; `judged`: the pods with a goal, as they are now."""

    late: dict[str, int] = {}
    sample: int = 0
    judged: dict[str, Lateness] = {}

    def let_go(self, having: Iterable[str]) -> dict[str, str]:
        """The pods with the class that it does not help, with the reason."""
        return {group: self._text(group) for group in sorted(having) if self._long(group)}

    def stays_fair(self, group: str) -> bool:
        """Whether a pod that lost the class does not need it back."""
        return group in self.judged and not self._long(group)

    def by_need(self, pods: Sequence[PodView], having: Collection[str], waiting: Collection[str]) -> list[PodView]:
        """The order in which places are assigned: pods that have one, that need not wait, that are late, and then by name."""
        return sorted(pods, key=lambda pod: (pod.group not in having, pod.group in waiting, not self._long(pod.group)))

    def after(self, changed: frozenset[str]) -> Need:
        """The same without the counts of pods whose class was changed."""
        return Need({group: count for group, count in self.late.items() if group not in changed}, self.sample, self.judged)

    def _long(self, group: str) -> bool:
        return self.late.get(group, 0) >= LATE_SAMPLES

    def _text(self, group: str) -> str:
        found = self.judged[group]
        waited = "" if found.figure_ms is None else f", its threads waited for {found.wait_percent or 0} % of their run time"
        return f"late for {self.late[group]} samples in the real-time class: {found.text}{waited}"


def need(situation: Situation, before: Need, asking: Sequence[PodView], having: frozenset[str]) -> Need:
    """This need updated by a sample. `having`: the groups that have the class since the last decision."""
    groups = {pod.group for pod in asking}
    judged = {each.group: each for each in lateness(situation) if each.group in groups and each.goal_ms > 0}
    sample = situation.snapshot.monotonic_ns if situation.snapshot is not None else 0
    if sample == before.sample:
        return Need({group: count for group, count in before.late.items() if group in judged}, sample, judged)
    counting = [group for group, each in judged.items() if each.late and (each.waits or group not in having)]
    return Need({group: before.late.get(group, 0) + 1 for group in counting}, sample, judged)


NO_NEED = Need()
