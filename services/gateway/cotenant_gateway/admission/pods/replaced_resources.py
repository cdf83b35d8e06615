"""Resources of a pod under other names: the annotation `pod.koordinator.sh/replace-resources`.

In: a pod whose annotation says `from:to,from:` (an empty `to` erases). Out: the pod whose containers, init containers and
overhead request `to` instead of `from`, the amount as it is written. No name may be on both sides, so the order of the
pairs does not matter. A live pod whose manifest is applied again is treated alike. Source: Koordinator 1.8 (a transformer of
pods as its scheduler and its quota webhook see them; here the translated pod is stored, and all services see the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from cotenant.api.splices import EMPTY_OBJECT, Members, member_object, members, raw
from cotenant.api.validation.fields import FieldError, invalid, qualified_name
from cotenant_gateway.admission.pods.containers import change_requests
from cotenant_gateway.admission.review import Mutation, Review
from cotenant_gateway.statuses import invalid_object

ANNOTATION_REPLACE_RESOURCES = "pod.koordinator.sh/replace-resources"
_FIELD = f"metadata.annotations[{ANNOTATION_REPLACE_RESOURCES}]"
MAX_PAIRS = 100


def replace_resources(review: Review) -> Mutation | None:
    """Replace the resources that the annotation names. Raises ApiError if it cannot be read."""
    annotations = review.view.metadata.annotations
    if ANNOTATION_REPLACE_RESOURCES not in annotations:
        return None
    text = annotations[ANNOTATION_REPLACE_RESOURCES]
    pairs, errors = read_pairs(text)
    if errors:
        raise invalid_object(review.kind, review.view.metadata.name, errors)
    top = members(review.document)
    spec = members(top.get("spec", EMPTY_OBJECT))
    if not change_requests(spec, partial(_replaced_container, pairs=pairs), partial(_replaced_amounts, pairs=pairs)):
        return None
    top["spec"] = raw(spec)
    replaced = ", ".join(f"{old} by {new}" if new else f"{old} by nothing" for old, new in pairs.items())
    return Mutation(raw(top), (f"resources replaced: {replaced}",))


def read_pairs(text: str) -> tuple[Mapping[str, str], list[FieldError]]:
    """Return the replacements by the name that is replaced, and what is wrong in them."""
    pairs: dict[str, str] = {}
    given = [part for part in (piece.strip() for piece in text.split(",", MAX_PAIRS)) if part]
    if len(given) > MAX_PAIRS:
        return {}, [invalid(_FIELD, text, f"must have at most {MAX_PAIRS} pairs")]
    for part in given:
        old, colon, new = (piece.strip() for piece in part.partition(":"))
        if not colon or qualified_name(_FIELD, old) or (new and qualified_name(_FIELD, new)) or old in pairs or old == new:
            detail = "must be pairs of resource names such as `nvidia.com/gpu:koordinator.sh/gpu`, each name replaced once"
            return {}, [invalid(_FIELD, text, detail)]
        pairs[old] = new
    if any(new in pairs for new in pairs.values()):
        return {}, [invalid(_FIELD, text, "must not replace the replacement of another")]
    return pairs, []


def _replaced_container(container: msgspec.Raw, pairs: Mapping[str, str]) -> msgspec.Raw | None:
    inner = members(container)
    resources = member_object(inner, "resources")
    changed = False
    for section in ("requests", "limits"):
        amounts = member_object(resources, section)
        if _replaced_amounts(amounts, pairs):
            resources[section] = raw(amounts)
            changed = True
    if not changed:
        return None
    inner["resources"] = raw(resources)
    return raw(inner)


def _replaced_amounts(amounts: Members, pairs: Mapping[str, str]) -> bool:
    taken = {old: amounts.pop(old) for old in pairs if old in amounts}
    amounts.update((pairs[old], amount) for old, amount in taken.items() if pairs[old])
    return bool(taken)
