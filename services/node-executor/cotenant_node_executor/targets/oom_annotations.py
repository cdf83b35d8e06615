"""`oom_score_adj` in a pod's annotations.

In: a pod, a container's name. Out: -1000 to 1000, or None. `koordinator.sh/oom-score-adj` is a number for all containers,
`koordinator.sh/oom-score-adj-spec` a JSON object of numbers for containers by name, which count first. A value that cannot be
read or is out of range counts as absent. Source: OOM score adjustment of koordlet, newest rule.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.pod import Pod

ANNOTATION = "koordinator.sh/oom-score-adj"
ANNOTATION_SPEC = "koordinator.sh/oom-score-adj-spec"
LOWEST, HIGHEST = -1000, 1000


def annotated_score(pod: Pod, container: str) -> int | None:
    """The annotations' value for a container ("" for the pod as a whole); None if they state none."""
    annotations = pod.metadata.annotations
    if ANNOTATION not in annotations and ANNOTATION_SPEC not in annotations:
        return None
    try:
        named = msgspec.json.decode(annotations.get(ANNOTATION_SPEC, "{}"), type=dict[str, int]).get(container)
    except msgspec.MsgspecError:
        named = None
    if named is not None and LOWEST <= named <= HIGHEST:
        return named
    text = annotations.get(ANNOTATION, "")
    if len(text) > 5 or not text.isascii() or not text.removeprefix("-").isdecimal():
        return None
    return int(text) if LOWEST <= int(text) <= HIGHEST else None
