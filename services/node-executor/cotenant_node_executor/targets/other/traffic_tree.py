"""The HTB classes of a network device, as one value, by the `tc` command of iproute2.

In: a device, `id prio rate ceil` of each class with semicolons between, bits a second, the root class 1:1 first; "" for none.
Out: the same. The queueing discipline is `htb`, handle 1:, whose packets without a class are in 1:2. A device keeps a
discipline of another program: only the kernel's own (handle 0:) is replaced, and is restored by "". Classes that are not
wanted any more are deleted, after the groups in them have another one: packets of a class that does not exist are in 1:2, which
is served first. `tc` shows rates in rounded units, so a present rate holds a wanted one within one per mille.

Bound: COMMAND_SECONDS a command, MOST_CLASSES.
"""

from __future__ import annotations

import re

from cotenant_node_executor.targets.address import Attribute, EgressClass, NonCgroup, TcTree
from cotenant_node_executor.targets.interface import InvalidValueError
from cotenant_node_executor.targets.other.traffic import bits_per_second, run_tc

ROOT_CLASS, DEFAULT_MINOR = "1:1", "2"
MOST_CLASSES = 512
"""Also of what is wanted together with what was."""
_DEVICE = re.compile(r"[A-Za-z0-9_.@-]{1,15}")
_CLASS = re.compile(r"1:[0-9a-f]{1,4} [0-7] [0-9]{1,15} [0-9]{1,15}")
_SHOWN = re.compile(
    r"^class htb (?P<id>1:[0-9a-f]+) (?:root|parent 1:1)(?: leaf \S+)?(?: prio (?P<prio>\d+))?(?: quantum \d+)?"
    r" rate (?P<rate>\S+) ceil (?P<ceil>\S+)",
    re.MULTILINE,
)
_QDISC = re.compile(r"^qdisc (?P<kind>\S+) (?P<handle>[0-9a-f]*:) root", re.MULTILINE)

Classes = dict[str, tuple[int, int, int]]
"""Priority, rate and ceiling by class id."""


class TrafficTreeAccessor:
    """The hierarchies of this host's devices; `prefix` runs the command elsewhere, such as in a network namespace."""

    users = EgressClass
    """See `accessors.Used`."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        self._prefix = prefix

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The classes; "" where the device has none of ours, None where there is no such device."""
        device = _checked(place)
        kind = self._discipline(device)
        if kind is None:
            return None
        return _text(self._classes(device)) if kind == "htb 1:" else ""

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Set the device's hierarchy. Raises InvalidValueError if it belongs to another program."""
        device, wanted = _checked(place), parsed(value)
        kind = self._discipline(device) or ""
        present = self._classes(device) if kind == "htb 1:" else {}
        ours = kind == "htb 1:" and (ROOT_CLASS in present or not present)
        if not ours and not kind.endswith(" 0:"):
            raise InvalidValueError(f"{device} has the queueing discipline {kind.strip()} of somebody else, which is kept")
        if not wanted:
            if ours:
                self._changed("qdisc", "del", "dev", device, "root")
            return
        if not ours:
            self._changed("qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", DEFAULT_MINOR)
        for classid, (prio, rate, ceiling) in wanted.items():
            parent = "1:" if classid == ROOT_CLASS else ROOT_CLASS
            ranked = () if classid == ROOT_CLASS else ("prio", str(prio))
            where = ("class", "replace", "dev", device, "parent", parent, "classid", classid)
            self._changed(*where, "htb", "rate", f"{rate}bit", "ceil", f"{ceiling}bit", *ranked)
        for classid in sorted(present.keys() - wanted.keys()):
            self._changed("class", "del", "dev", device, "classid", classid)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether two hierarchies are the same as `tc` shows them."""
        one, other = parsed(wanted), parsed(present)
        return one.keys() == other.keys() and all(_same(one[each], other[each]) for each in one)

    def together(self, _attribute: Attribute, wanted: str, present: str) -> str:
        """The wanted classes, and beside them the present ones that are not wanted any more."""
        if not wanted:
            return present
        classes = parsed(wanted)
        return _text(classes | {each: own for each, own in parsed(present).items() if each not in classes})

    def restore(self, place: NonCgroup, attribute: Attribute, _text: str) -> None:
        """Remove the hierarchy, if it is still ours."""
        if self.read(place, attribute):
            self.write(place, attribute, "")

    def _discipline(self, device: str) -> str | None:
        """Kind and handle of the root discipline; None without such a device."""
        shown = run_tc(self._prefix, "qdisc", "show", "dev", device)
        if shown.returncode:
            return None
        found = _QDISC.search(shown.stdout)
        return f"{found['kind']} {found['handle']}" if found is not None else "none 0:"

    def _classes(self, device: str) -> Classes:
        shown = run_tc(self._prefix, "class", "show", "dev", device)
        return {
            found["id"]: (int(found["prio"] or 0), bits_per_second(found["rate"]), bits_per_second(found["ceil"]))
            for found in _SHOWN.finditer(shown.stdout)
        }

    def _changed(self, *arguments: str) -> None:
        done = run_tc(self._prefix, *arguments)
        if done.returncode:
            raise InvalidValueError(f"tc {' '.join(arguments)}: {done.stderr.strip() or 'refused'}")


def parsed(value: str) -> Classes:
    """The classes of a text. Raises InvalidValueError."""
    found: Classes = {}
    for text in filter(None, value.split(";")):
        if not _CLASS.fullmatch(text):
            raise InvalidValueError(f"class {text[:40]!r}: expected a class id of 1:, a priority 0..7, rate and ceiling")
        classid, prio, rate, ceiling = text.split()
        if not 8 <= int(rate) <= int(ceiling):
            raise InvalidValueError(f"class {classid}: rate {rate} is not between 8 and the ceiling {ceiling}")
        found[classid] = int(prio), int(rate), int(ceiling)
    if found and (next(iter(found)) != ROOT_CLASS or len(found) > MOST_CLASSES):
        raise InvalidValueError(f"expected the root class {ROOT_CLASS} first, and at most {MOST_CLASSES} classes")
    return found


def _text(classes: Classes) -> str:
    ordered = sorted(classes, key=lambda each: (each != ROOT_CLASS, int(each[2:], 16)))
    return ";".join(f"{each} {' '.join(str(part) for part in classes[each])}" for each in ordered)


def _same(wanted: tuple[int, int, int], present: tuple[int, int, int]) -> bool:
    near = all(abs(one - other) * 1000 <= one for one, other in zip(wanted[1:], present[1:], strict=True))
    return near and wanted[0] == present[0]


def _checked(place: NonCgroup) -> str:
    assert isinstance(place, TcTree)
    if not _DEVICE.fullmatch(place.device):
        raise InvalidValueError(f"{place.device[:20]!r} is not the name of a network device")
    return place.device
