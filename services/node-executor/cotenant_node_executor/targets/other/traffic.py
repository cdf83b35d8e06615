"""Rates of HTB classes of a network device, by the `tc` command of iproute2.

In: a class that exists, the attribute, bits a second as text. Out: the same. A class is read by listing its device's; a write
changes the class in place with both its rates, as `tc` requires. `tc` shows rates in rounded units, so a present rate holds
a wanted one within one per mille. Classes and queueing disciplines are created by the owner of the device's hierarchy.

Bounds: COMMAND_SECONDS a command.
"""

from __future__ import annotations

import errno
import re
import subprocess

from cotenant_node_executor.targets.address import Attribute, NonCgroup, TcAttribute, TcClass
from cotenant_node_executor.targets.interface import InvalidValueError

COMMAND_SECONDS = 2.0
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,15}")
_CLASS = re.compile(r"[0-9a-f]{1,4}:[0-9a-f]{1,4}")
_SHOWN = re.compile(r"^class htb (?P<id>[0-9a-f]+:[0-9a-f]+) .*?\brate (?P<rate>\S+) ceil (?P<ceil>\S+)", re.MULTILINE)
_UNITS = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}


class TrafficAccessor:
    """HTB classes of this host's devices; `prefix` runs the command elsewhere, such as in a network namespace."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        self._prefix = prefix

    def read(self, place: NonCgroup, attribute: Attribute) -> str | None:
        """The rate in bits a second; None where there is no such device or class."""
        rates = self._rates(_checked(place))
        return str(rates[attribute]) if rates is not None else None

    def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
        """Change one of the class's rates."""
        of_class = _checked(place)
        if not value.isascii() or not value.isdigit() or len(value) > 15 or int(value) < 8:
            raise InvalidValueError(f"{attribute.value} {value[:20]!r}: expected bits a second, at least 8")
        rates = self._rates(of_class)
        if rates is None:
            raise ProcessLookupError(errno.ESRCH, f"no class {of_class.classid} on {of_class.device}")
        rates[attribute] = int(value)
        if rates[TcAttribute.CEIL] < rates[TcAttribute.RATE]:
            raise InvalidValueError(f"rate {rates[TcAttribute.RATE]} would be above the ceiling {rates[TcAttribute.CEIL]}")
        rate, ceiling = (f"{rates[each]}bit" for each in (TcAttribute.RATE, TcAttribute.CEIL))
        change = ("class", "change", "dev", of_class.device, "classid", of_class.classid)
        done = run_tc(self._prefix, *change, "htb", "rate", rate, "ceil", ceiling)
        if done.returncode:
            raise OSError(errno.EINVAL, done.stderr.strip() or "tc refused the change")

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether two rates are the same as `tc` shows them."""
        return abs(int(wanted) - int(present)) * 1000 <= int(wanted)

    def _rates(self, of_class: TcClass) -> dict[Attribute, int] | None:
        shown = run_tc(self._prefix, "class", "show", "dev", of_class.device)
        for found in _SHOWN.finditer(shown.stdout):
            if found["id"] == of_class.classid:
                return {TcAttribute.RATE: bits_per_second(found["rate"]), TcAttribute.CEIL: bits_per_second(found["ceil"])}
        return None


def run_tc(prefix: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tc behind a prefix (`ip netns exec NAME`), within COMMAND_SECONDS. Raises InvalidValueError, TimeoutError."""
    try:
        return subprocess.run((*prefix, "tc", *arguments), capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except FileNotFoundError:
        raise InvalidValueError("the command tc (iproute2) is not installed") from None
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(errno.ETIMEDOUT, "tc did not answer") from error


def _checked(place: NonCgroup) -> TcClass:
    assert isinstance(place, TcClass)
    if not _NAME.fullmatch(place.device) or not _CLASS.fullmatch(place.classid):
        raise InvalidValueError(f"{place.device[:20]} {place.classid[:20]}: expected a device and a class such as eth0 1:10")
    return place


def bits_per_second(shown: str) -> int:
    """A rate as `tc` shows it. Raises InvalidValueError."""
    match = re.fullmatch(r"([0-9.]+)([KMGT]?bit)", shown)
    if match is None:
        raise InvalidValueError(f"tc shows the rate {shown!r}: expected a number of bits")
    return round(float(match[1]) * _UNITS[match[2]])
