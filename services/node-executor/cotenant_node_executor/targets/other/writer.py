"""The writer of targets outside of control groups.

In: the map place -> attribute -> value of a cycle. Out: completed writes with old and new value as read back, and refusals, in
the form of the cgroup writer's report. Every target is read in every cycle, so a change by another process is repaired. A
refused write is tried again every cycle and reported when it is new; a missing place is skipped. Sysctls that become 0 are
written before all others: of two switches that exclude each other the kernel refuses one while the other is on.

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
from cotenant_node_executor.targets.other.accessors import Accessor, Restoring
from cotenant_node_executor.targets.other.held import HeldValues

Values = Mapping[NonCgroup, Mapping[Attribute, str]]

_GONE = (errno.ENOENT, errno.ESRCH)


class OtherWriter:
    """Keeps the refusals of the last cycle, and the former values of written places."""

    def __init__(self, accessors: Mapping[type, Accessor], held: HeldValues | None = None) -> None:
        self._accessors = accessors
        self._held = HeldValues() if held is None else held
        self._known: dict[tuple[NonCgroup, Attribute], RefusedValue] = {}

    @property
    def holding(self) -> bool:
        """Whether any value is held for restoring."""
        return bool(self._held)

    def apply(self, values: Mapping[NonCgroup, Mapping[Attribute, str]]) -> WriteReport:
        """Write the values. Never raises for a single target; a kind of place without an accessor is skipped."""
        written: list[WrittenValue] = []
        refused: dict[tuple[NonCgroup, Attribute], RefusedValue] = {}
        unchanged = skipped = 0
        self._note_threads(values)
        for place, attributes in _switched_off_first(values):
            accessor = self._accessors.get(type(place))
            for attribute, value in attributes.items():
                try:
                    old = accessor.read(place, attribute) if accessor is not None else None
                    if accessor is None or old is None:
                        skipped += 1
                    elif accessor.holds(attribute, value, old):
                        unchanged += 1
                    else:
                        self._held.note(place, attribute, old)
                        accessor.write(place, attribute, value)
                        present = accessor.read(place, attribute) or ""
                        if present != old:
                            written.append(WrittenValue(place, attribute, attribute.value, _brief(old), _brief(present)))
                        if not accessor.holds(attribute, value, present):
                            raise InvalidValueError(f"written, but the kernel shows {present!r}")
                except (OSError, ValueError) as error:
                    number = (error.errno or 0) if isinstance(error, OSError) else 0
                    if number in _GONE:
                        skipped += 1
                        continue
                    message = os.strerror(number) if number else str(error)
                    refused[place, attribute] = RefusedValue(place, attribute, attribute.value, value, number, message)
        if self._held:
            with self._held.together():
                self._restore(values, written, refused)
        new = tuple(each for key, each in refused.items() if self._known.get(key) != each)
        self._known = refused
        return WriteReport(tuple(written), new, unchanged, skipped, len(refused) - len(new))

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

    def _restore(
        self,
        values: Mapping[NonCgroup, Mapping[Attribute, str]],
        written: list[WrittenValue],
        refused: dict[tuple[NonCgroup, Attribute], RefusedValue],
    ) -> None:
        """Restore places without a desired value; a refusal is tried again in the next cycle."""
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
                        written.append(WrittenValue(place, attribute, attribute.value, _brief(old), _brief(present)))
            except (OSError, ValueError) as error:
                number = (error.errno or 0) if isinstance(error, OSError) else 0
                if number not in _GONE:
                    message = os.strerror(number) if number else str(error)
                    refused[place, attribute] = RefusedValue(place, attribute, attribute.value, _brief(text), number, message)
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
