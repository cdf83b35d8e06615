"""The effect of a ClusterColocationProfile on existing pods, for dry runs (`dryRun`).

In: the profile as it would be stored, and the pods of the read model. Out: a tally, pod by pod, so that the caller may
pause between them; and the tally as text. A pod counts as changed if the profile alone changes its document. Bound: the first
TRIED matching pods are computed, the others are counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cotenant.api.edits import same_json
from cotenant.api.snapshots import Snapshot, stored_document
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.kinds.pods import PODS
from cotenant_gateway.admission.namespaces import LABEL_CONTROL_PLANE
from cotenant_gateway.admission.profiles.applying import changed_by
from cotenant_gateway.admission.profiles.selection import ReadyProfile, draw, ready_profile
from cotenant_gateway.admission.review import Review
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.waiting_pods import waits
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError

TRIED = 500


class ProfileTally(msgspec.Struct):
    """Pods so far: all, those that the profile selects, and the outcomes of the first TRIED of these."""

    pods: int = 0
    matched: int = 0
    tried: int = 0
    changed: int = 0
    refused: int = 0
    waiting: int = 0
    """Changed ones that are waiting to be placed."""
    refusal: str = ""
    """Why the first refused one is."""


def proposed_profile(planned: Planned) -> ReadyProfile:
    """Return the profile of a write request."""
    return ready_profile(Snapshot(planned.address, stored_document(planned.document, 0, None), {}, 0, None))


def tally_pods(core: GatewayCore, profile: ReadyProfile, tally: ProfileTally) -> Iterator[None]:
    """Count pod by pod."""
    for pod in core.objects(PODS):
        if pod.stored is not None:
            tally.pods += 1
            if _matches(core, profile, pod):
                tally.matched += 1
                if tally.tried < TRIED:
                    tally.tried += 1
                    _try(core, profile, pod, tally)
        yield


def _matches(core: GatewayCore, profile: ReadyProfile, pod: Snapshot) -> bool:
    if not profile.selects_pod(pod.meta.labels):
        return False
    namespace = core.get(NAMESPACES, "", pod.address.namespace)
    labels = {} if namespace is None else namespace.labels
    return LABEL_CONTROL_PLANE not in labels and profile.selects_namespace(labels)


def _try(core: GatewayCore, profile: ReadyProfile, pod: Snapshot, tally: ProfileTally) -> None:
    assert pod.stored is not None
    document = pod.stored.raw
    review = Review(core.kinds.of(PODS), document, pod.pod, None, core)
    try:
        change, applied = changed_by(review, [profile], draw, again=True)
    except ApiError as refusal:
        tally.refused += 1
        tally.refusal = tally.refusal or str(refusal)
        return
    if applied and not same_json(change.document, document):
        tally.changed += 1
        tally.waiting += waits(pod)


def in_words(profile: ReadyProfile, tally: ProfileTally) -> list[str]:
    """Return the warnings for the writer."""
    name = f"ClusterColocationProfile {profile.name}"
    of_tried = "" if tally.tried == tally.matched else f" of the first {tally.tried}"
    found = [f"{name}: {_pods(tally.matched)} of {tally.pods} match, it would change {tally.changed}{of_tried}"]
    if not tally.changed:
        pass
    elif profile.managed:
        found[0] += f": {tally.waiting} waiting to be placed would be changed now, the others when they are created again"
    else:
        found[0] += "; existing pods stay as they are, it is applied to new pods"
    if tally.refused:
        found.append(f"{name}: {_pods(tally.refused)} could not be created with it: {tally.refusal}")
    return found


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"
