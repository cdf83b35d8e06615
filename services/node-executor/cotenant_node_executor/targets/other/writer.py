"""The writer of targets outside of control groups.

In: the map place -> attribute -> value of a cycle. Out: completed writes with old and new value as read back, and refusals, in
the form of the cgroup writer's report. Every target is read in every cycle, so a change by another process is repaired. A
refused write is tried again every cycle and reported when it is new; a missing place is skipped. What places name that others
contain, such as traffic classes, is added before these are written, and removed after them (`accessors.Used`). Sysctls that
become 0 are written before all others: of two switches that exclude each other the kernel refuses one while the other is on.

A place's value before its first write is kept (`held`). A place without a desired value is restored, also by the next
start after an executor was killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping

from cotenant_node_executor.targets.address import Attribute, NonCgroup, Sysctl, SysctlAttribute, Thread
from cotenant_node_executor.targets.interface import InvalidValueError, RefusedValue, WriteReport, WrittenValue
from cotenant_node_executor.targets.other.accessors import Accessor, Restoring, Used
from cotenant_node_executor.targets.other.held import HeldValues

Values = Mapping[NonCgroup, Mapping[Attribute, str]]

_GONE = (errno.ENOENT, errno.ESRCH)


class _Cycle:
    """The results of one call."""

    def __init__(self) -> None:
        self.written: list[WrittenValue] = []
        self.refused: dict[tuple[NonCgroup, Attribute], RefusedValue] = {}
        self.unchanged = 0
        self.skipped = 0


class OtherWriter:
    """Keeps the refusals of the last cycle, and the former values of written places."""

    def __init__(self, accessors: Mapping[type, Accessor], held: HeldValues | None = None) -> None:
        self._accessors = accessors
        self._used = {kind: accessor for kind, accessor in accessors.items() if isinstance(accessor, Used)}
        self._held = HeldValues() if held is None else held
        self._known: dict[tuple[NonCgroup, Attribute], RefusedValue] = {}

    @property
    def holding(self) -> bool:
        """Whether any value is held for restoring."""
        return bool(self._held)

    def apply(self, values: Mapping[NonCgroup, Mapping[Attribute, str]]) -> WriteReport:
        """Write the values. Never raises for a single target; a kind of place without an accessor is skipped."""
        cycle = _Cycle()
        self._note_threads(values)
        used = [place for place in values if type(place) in self._used] if self._used else []
        open_ones = [place for place in used if not self._settle(cycle, place, values[place], together=True)]
        without = {self._used[type(place)].users for place, _ in cycle.refused}
        for place, attributes in _switched_off_first(values):
            if type(place) in without:
                cycle.skipped += len(attributes)
            elif type(place) not in self._used:
                self._settle(cycle, place, attributes)
        if self._held:
            with self._held.together():
                self._restore(values, cycle)
        for place in open_ones:
            self._settle(cycle, place, values[place])
        new = tuple(each for key, each in cycle.refused.items() if self._known.get(key) != each)
        self._known = cycle.refused
        return WriteReport(tuple(cycle.written), new, cycle.unchanged, cycle.skipped, len(cycle.refused) - len(new))

    def _settle(
        self, cycle: _Cycle, place: NonCgroup, attributes: Mapping[Attribute, str], *, together: bool = False
    ) -> bool:
        """Write one place's values; returns whether they are in force. `together`: those that are not yet are written with
        everything that is present, and alone by a second call."""
        accessor, in_force = self._accessors.get(type(place)), True
        for attribute, value in attributes.items():
            try:
                old = accessor.read(place, attribute) if accessor is not None else None
                if accessor is None or old is None:
                    cycle.skipped += 1
                    continue
                if accessor.holds(attribute, value, old):
                    cycle.unchanged += 1
                    continue
                wanted = self._used[type(place)].together(attribute, value, old) if together else value
                self._held.note(place, attribute, old)
                accessor.write(place, attribute, wanted)
                present = accessor.read(place, attribute) or ""
                in_force = in_force and accessor.holds(attribute, value, present)
                if present != old:
                    cycle.written.append(WrittenValue(place, attribute, attribute.value, _brief(old), _brief(present)))
                if not accessor.holds(attribute, wanted, present):
                    raise InvalidValueError(f"written, but the kernel shows {present!r}")
            except (OSError, ValueError) as error:
                in_force = False
                number = (error.errno or 0) if isinstance(error, OSError) else 0
                if number in _GONE:
                    cycle.skipped += 1
                    continue
                message = os.strerror(number) if number else str(error)
                cycle.refused[place, attribute] = RefusedValue(place, attribute, attribute.value, value, number, message)
        return in_force

    def _note_threads(self, values: Mapping[NonCgroup, Mapping[Attribute, str]]) -> None:
        """Record threads' values before their first write, in one write of the file: there may be hundreds of threads."""
        new = [
            (place, attribute)
            for place, attributes in values.items()
            if isinstance(place, Thread)
            for attribute in attributes
            if (place, attribute) not in self._held
        ]
        accessor = self._accessors.get(Thread) if new else None
        if accessor is None:
            return
        with self._held.together():
            for place, attribute in new:
                with contextlib.suppress(OSError, ValueError):  # the write will report it
                    text = accessor.read(place, attribute)
                    if text is not None:
                        self._held.note(place, attribute, text)

    def _restore(self, values: Mapping[NonCgroup, Mapping[Attribute, str]], cycle: _Cycle) -> None:
        """Restore places without a desired value, the last written first; a refusal is tried again in the next cycle."""
        for (place, attribute), text in self._held.items():
            accessor = self._accessors.get(type(place))
            if attribute in values.get(place, _NO_VALUES) or not isinstance(accessor, Restoring):
                continue
            try:
                old = accessor.read(place, attribute)
                if old is not None and not (text and accessor.holds(attribute, text, old)):
                    accessor.restore(place, attribute, text)
                    present = accessor.read(place, attribute) or ""
                    if present != old:
                        cycle.written.append(WrittenValue(place, attribute, attribute.value, _brief(old), _brief(present)))
            except (OSError, ValueError) as error:
                number = (error.errno or 0) if isinstance(error, OSError) else 0
                if number not in _GONE:
                    message = os.strerror(number) if number else str(error)
                    cycle.refused[place, attribute] = RefusedValue(
                        place, attribute, attribute.value, _brief(text), number, message
                    )
                    continue
            self._held.forget(place, attribute)


def _switched_off_first(values: Values) -> Iterable[tuple[NonCgroup, Mapping[Attribute, str]]]:
    off: Values = {
        place: attributes
        for place, attributes in values.items()
        if isinstance(place, Sysctl) and attributes.get(SysctlAttribute.VALUE) == "0"
    }
    return [*off.items(), *(item for item in values.items() if item[0] not in off)] if off else values.items()


_NO_VALUES: Mapping[Attribute, str] = {}
MAX_SHOWN = 400


def _brief(text: str) -> str:
    """Return a text for reports: a group may have thousands of threads."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ... ({len(text.split())} words)"
