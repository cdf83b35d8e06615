"""Label selectors written as text: `pool=batch,zone in (a, b),!spot`.

In: the text. Out: a LabelSelector, None for an empty text, or a ValueError that says which part is malformed. Parts:
`key=value`, `key==value`, `key!=value`, `key in (a, b)`, `key notin (a, b)`, `key` and `!key`.

Source: Kubernetes label selectors (`labels.Parse`).
"""

from __future__ import annotations

import re

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement

_PART = re.compile(
    r"\s*(?:!\s*(?P<absent>[^\s,!=()]+)"
    r"|(?P<set_key>[^\s,!=()]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<key>[^\s,!=()]+)\s*(?:(?P<operator>==?|!=)\s*(?P<value>[^\s,!=()]*))?)\s*"
)


def _requirement(match: re.Match[str]) -> LabelSelectorRequirement:
    if match["absent"]:
        return LabelSelectorRequirement(key=match["absent"], operator="DoesNotExist")
    if match["set_key"]:
        values = sorted({value.strip() for value in match["values"].split(",")})
        return LabelSelectorRequirement(key=match["set_key"], operator="In" if match["set"] == "in" else "NotIn", values=values)
    if match["operator"]:
        operator = "NotIn" if match["operator"] == "!=" else "In"
        return LabelSelectorRequirement(key=match["key"], operator=operator, values=[match["value"]])
    return LabelSelectorRequirement(key=match["key"], operator="Exists")


def parse_selector(text: str) -> LabelSelector | None:
    """Return the selector. Raises ValueError."""
    if not text.strip():
        return None
    found, at = [], 0
    while True:
        match = _PART.match(text, at)
        if match is None:
            raise ValueError(f"{text!r} is not a label selector: cannot be read from {text[at:]!r} on")
        found.append(_requirement(match))
        at = match.end()
        if at == len(text):
            return LabelSelector(match_expressions=found)
        if text[at] != ",":
            raise ValueError(f"{text!r} is not a label selector: expected ',' before {text[at:]!r}")
        at += 1


def both(one: LabelSelector | None, other: LabelSelector | None) -> LabelSelector | None:
    """Return the selector of what both select; None selects everything."""
    if one is None or other is None:
        return one if other is None else other
    labels = [
        LabelSelectorRequirement(key=key, operator="In", values=[value])
        for selector in (one, other)
        for key, value in selector.match_labels.items()
    ]
    return LabelSelector(match_expressions=[*labels, *one.match_expressions, *other.match_expressions])
