"""A pod's own resctrl group, by its annotation `node.koordinator.sh/resctrl`.

In: the annotation, the machine's resctrl facts. Out: the schemata of the group `koordlet-<uid>`, which exists while the pod
does.

    {"llc": {"schemata": {"range": [0, 50]}, "schemataPerCache": [{"cacheID": 1, "range": [50, 100]}]},
     "mb": {"schemata": {"percent": 40}, "schemataPerCache": [{"cacheID": 1, "percent": 60}]}}

The default is the whole cache and the whole bandwidth. The pod is then not in its class's group. Source: resctrl
hook of koordlet, v1.6.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant_node_executor.strategies.cache.schemata import l3_lines, l3_share, mb_line, mba_value
from cotenant_node_executor.strategies.sections import annotation_as, lower_name
from cotenant_node_executor.strategies.situation import ResctrlFacts

ANNOTATION_RESCTRL = "node.koordinator.sh/resctrl"
GROUP_PREFIX = "koordlet-"
MAX_CACHES = 64


class _Schemata(Struct, frozen=True, kw_only=True, rename=lower_name):
    range: list[int] | None = None
    percent: int | None = None


class _OfCache(Struct, frozen=True, kw_only=True, rename=lower_name):
    cache_id: int
    range: list[int] | None = None
    percent: int | None = None


class _Part(Struct, frozen=True, kw_only=True, rename=lower_name):
    schemata: _Schemata = _Schemata()
    schemata_per_cache: list[_OfCache] = []


class _Asked(Struct, frozen=True, kw_only=True, rename=lower_name):
    llc: _Part | None = None
    mb: _Part | None = None


def pod_schemata(annotation: str, facts: ResctrlFacts) -> str:
    """Return the schemata of the pod's group. Raises ValueError that says what is wrong."""
    asked = annotation_as(ANNOTATION_RESCTRL, annotation, _Asked)
    return (_cache(asked.llc, facts) if asked.llc is not None else "") + (
        _bandwidth(asked.mb, facts) if asked.mb is not None else ""
    )


def _mask(found: list[int] | None, facts: ResctrlFacts) -> str:
    low, high = found if found is not None and len(found) == 2 else (0, 100)
    return l3_share(facts, low, high)


def _cache(part: _Part, facts: ResctrlFacts) -> str:
    of_cache = {each.cache_id: _mask(each.range, facts) for each in part.schemata_per_cache[:MAX_CACHES]}
    return l3_lines(facts, _mask(part.schemata.range, facts), of_cache)


def _value(percent: int | None, facts: ResctrlFacts) -> str:
    if facts.in_mbps:
        raise ValueError(f"annotation {ANNOTATION_RESCTRL}: mb: percent does not apply where memory bandwidth is in MB/s")
    value = mba_value(facts.vendor, 100 if percent is None else percent)
    if value is None:
        raise ValueError(f"annotation {ANNOTATION_RESCTRL}: mb: {percent}% is outside 1..100")
    return value


def _bandwidth(part: _Part, facts: ResctrlFacts) -> str:
    of_cache = {each.cache_id: _value(each.percent, facts) for each in part.schemata_per_cache[:MAX_CACHES]}
    return mb_line(facts, _value(part.schemata.percent, facts), of_cache)
