"""Walks the resource requests of a pod's spec: init containers, containers, overhead.

In: the members of a spec, functions that change one container and the overhead's amounts. Out: whether anything was changed;
the rest stays byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cotenant.api.splices import Members, elements, is_array, member_object, raw


def change_requests(
    spec: Members, container: Callable[[msgspec.Raw], msgspec.Raw | None], overhead: Callable[[Members], bool]
) -> bool:
    """Change a spec in place. `container` returns the changed container, None where there is nothing to change; `overhead`
    changes its amounts in place, and returns whether it did."""
    changed = False
    for section in ("initContainers", "containers"):
        if section in spec and is_array(spec[section]):
            given = elements(spec[section])
            made = [container(one) for one in given]
            if any(one is not None for one in made):
                spec[section] = raw([new or old for new, old in zip(made, given, strict=True)])
                changed = True
    amounts = member_object(spec, "overhead")
    if overhead(amounts):
        spec["overhead"] = raw(amounts)
        changed = True
    return changed
