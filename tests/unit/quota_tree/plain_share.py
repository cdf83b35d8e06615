"""The sharing of one resource written out plainly, round by round: the fast one is held against it."""

from __future__ import annotations

from collections.abc import Sequence


def plain_share(
    total: int, weights: Sequence[int], requests: Sequence[int], floors: Sequence[int], lends: Sequence[bool]
) -> list[int]:
    runtime: list[int] = []
    competing: list[int] = []
    for index, (request, floor) in enumerate(zip(requests, floors, strict=True)):
        if request > floor:
            runtime.append(floor)
            competing.append(index)
        else:
            runtime.append(request if lends[index] else floor)
    rest = total - sum(runtime)
    while rest > 0:
        competing = [index for index in competing if weights[index] > 0 and runtime[index] < requests[index]]
        if not competing:
            break
        whole = sum(weights[index] for index in competing)
        parts = {index: weights[index] * rest // whole for index in competing}
        left = rest - sum(parts.values())
        for index in sorted(competing, key=lambda index: (-(weights[index] * rest % whole), index))[:left]:
            parts[index] += 1
        rest = 0
        for index, part in parts.items():
            granted = min(runtime[index] + part, requests[index])
            rest += runtime[index] + part - granted
            runtime[index] = granted
    return runtime
