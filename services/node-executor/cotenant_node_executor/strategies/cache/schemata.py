"""Cache masks and memory bandwidth as schemata lines of a resctrl group.

In: percentages of a class or a pod, the machine's resctrl facts. Out: lines such as `L3:0=7;1=7;` for all cache ids of the
root.

    ways = bits of cbm_mask;  mask = (1 << ceil(ways * end / 100)) - (1 << ceil(ways * start / 100))
    bandwidth   AMD: 100 % is 2048 (unlimited), else trunc(160 * percent / 100), in eighths of GB/s
                others: percent rounded up to a multiple of ten
                a mount in MB/s: the MB/s stated; a percentage does not apply

Where code and data have masks of their own (CDP) both get the same. Cache ids may have gaps. Source: resctrl, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from cotenant_node_executor.strategies.sections import lower_name
from cotenant_node_executor.strategies.situation import ResctrlFacts

AMD = "AuthenticAMD"
AMD_UNLIMITED = "2048"
AMD_UNITS = 160
L3_RESOURCES = ("L3", "L3CODE", "L3DATA")
MB_RESOURCE = "MB"
NO_WAY = "0"


class ResctrlQOS(Struct, frozen=True, kw_only=True, rename=lower_name):
    """A class's share of the cache and of the memory bandwidth; None: left alone. `mba_mbps`: on a mount in MB/s."""

    enable: bool | None = None
    cat_range_start_percent: int | None = None
    cat_range_end_percent: int | None = None
    mba_percent: int | None = None
    mba_mbps: int | None = None


def l3_mask(cbm: str, start_percent: int, end_percent: int) -> str:
    """Return the mask of the ways from start to end, in hexadecimal; "0" where the range holds no way, as 91..100 % of 11 ways.
    Raises ValueError for a mask of the machine that is not contiguous from bit 0, and for a range that does not ascend or lies
    outside of 0..100."""
    try:
        ways = int(cbm, 16)
    except ValueError as error:
        raise ValueError(f"cbm_mask {cbm[:40]!r}: expected hexadecimal digits") from error
    if ways <= 0 or ways & (ways + 1):
        raise ValueError(f"cbm_mask {cbm}: expected all bits from bit 0 on")
    if start_percent < 0 or end_percent > 100 or end_percent <= start_percent:
        raise ValueError(f"cache range {start_percent}..{end_percent}%: expected a range within 0..100")
    count = ways.bit_length()
    upper, lower = -(-count * end_percent // 100), -(-count * start_percent // 100)
    return f"{(1 << upper) - (1 << lower):x}"


def l3_share(facts: ResctrlFacts, start_percent: int, end_percent: int) -> str:
    """Return the same for this machine. Raises ValueError also where the range holds no way: the kernel refuses such a mask."""
    mask = l3_mask(facts.cbm_mask, start_percent, end_percent)
    if mask == NO_WAY:
        ways = int(facts.cbm_mask, 16).bit_length()
        raise ValueError(f"cache range {start_percent}..{end_percent}% holds none of this machine's {ways} ways: widen it")
    return mask


def mba_value(vendor: str, percent: int | None) -> str | None:
    """Return the bandwidth of this percentage; None where it is left alone."""
    if percent is None or percent <= 0 or percent > 100:
        return None
    if vendor == AMD:
        return AMD_UNLIMITED if percent == 100 else str(AMD_UNITS * percent // 100)
    return str(-(-percent // 10) * 10)


def cache_ids(root_schemata: str, resource: str) -> list[int]:
    """Return the ids of a resource's domains in the root's schemata, ascending; other lines may be there."""
    for line in root_schemata.splitlines():
        name, _, domains = line.strip().partition(":")
        if name.strip() == resource:
            return sorted(int(part.partition("=")[0]) for part in domains.split(";") if
            part.partition("=")[0].strip().isdecimal())
    return []


def schemata_line(resource: str, ids: Sequence[int], value: str, of_cache: Mapping[int, str] | None = None) -> str:
    """Return one line with this value for all ids; `of_cache`: ids that have another one."""
    other = of_cache or {}
    return f"{resource}:" + "".join([f"{cache}={other.get(cache, value)};" for cache in ids]) + "\n"


def l3_lines(facts: ResctrlFacts, mask: str, of_cache: Mapping[int, str] | None = None) -> str:
    """Return the lines of the cache. Raises ValueError where the machine has no cache control."""
    found = [(name, cache_ids(facts.root_schemata, name)) for name in L3_RESOURCES]
    lines = "".join([schemata_line(name, ids, mask, of_cache) for name, ids in found if ids])
    if not lines:
        raise ValueError("this machine's schemata have no line L3")
    return lines


def mb_line(facts: ResctrlFacts, value: str, of_cache: Mapping[int, str] | None = None) -> str:
    """Return the line of the memory bandwidth. Raises ValueError where the machine has no control of it."""
    ids = cache_ids(facts.root_schemata, MB_RESOURCE)
    if not ids:
        raise ValueError("this machine's schemata have no line MB")
    return schemata_line(MB_RESOURCE, ids, value, of_cache)


def class_l3(config: ResctrlQOS | None, facts: ResctrlFacts) -> str | None:
    """Return the cache lines of a class; None where it states no range. Raises ValueError."""
    if config is None or config.cat_range_start_percent is None or config.cat_range_end_percent is None:
        return None
    return l3_lines(facts, l3_share(facts, config.cat_range_start_percent, config.cat_range_end_percent))


def class_mb(config: ResctrlQOS | None, facts: ResctrlFacts) -> str | None:
    """Return the bandwidth line of a class; None where it is left alone. Raises ValueError."""
    if config is None:
        return None
    if facts.in_mbps:
        value = str(config.mba_mbps) if config.mba_mbps is not None and config.mba_mbps > 0 else None
    else:
        value = mba_value(facts.vendor, config.mba_percent)
    return None if value is None else mb_line(facts, value)
