"""Promise 16: an admitted pod carries what the colocation profiles in force demand; an invalid profile is never admitted.

Which version of a profile a gateway had folded is not on the log: any that was in force within LAG before the pod was stored is
accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from cotenant.api.objects.colocation_profile import ClusterColocationProfile, ClusterColocationProfileSpec
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.model.names import ANNOTATION_COLOCATION_PROFILES, BATCH_CPU, CPU, LABEL_QOS_CLASS
from cotenant.model.subjects import object_subject, tokens
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.workload.manifests import PROFILE_REVISION

LAG = timedelta(minutes=3)
"""A gateway may be behind: late, or with a gap of a minute, and then behind again."""
ALL = 100
BATCH_PRIORITY = 5_000
_PROFILE = msgspec.json.Decoder(ClusterColocationProfile)
_GROUP, _PLURAL = "config.koordinator.sh", "clustercolocationprofiles"


def admitted_pods_carry_their_profile(view: LogView, event: Event) -> Wrong:
    """A new pod carries marks, QoS class, priority and resources of a version of its profile that was in force; none where
    there was none, or where its probability leaves pods out.
    """
    data = event.data
    parts = tokens(event.subject)
    if not isinstance(data, ObjectStored) or parts[1:3] != ("core", "pods"):
        return
    pod = decode_pod(data.object)
    profile = pod.metadata.labels.get("app", "")
    subject = object_subject(_GROUP, _PLURAL, "", profile)
    before = view.before(event)
    if subject not in view.declared[_PLURAL] or (before is not None and not before.tombstone):
        return
    versions = list(_in_force(view, subject, event))
    if not any(_carries(pod, profile, version) for version in versions):
        in_force = ", ".join("none" if version is None else version.labels.get(PROFILE_REVISION, "?") for version in versions)
        yield event.subject, (
            f"{event.ref} admits {parts[3]}/{parts[4]} with revision {pod.metadata.labels.get(PROFILE_REVISION)} of profile "
            f"{profile}, QoS {pod.metadata.labels.get(LABEL_QOS_CLASS)} and {pod_requests(pod)}; in force: {in_force}"
        )


def _in_force(view: LogView, subject: str, event: Event) -> Iterator[ClusterColocationProfileSpec | None]:
    """The versions of a profile, newest first, that were in force within LAG before an event; None: there was none."""
    assert event.time is not None
    for version in reversed(view.versions[subject]):
        if isinstance(version.data, ObjectStored) and not version.tombstone:
            yield _PROFILE.decode(version.data.object).spec
        else:
            yield None
        if version.time is None or version.time < event.time - LAG:
            return
    yield None


def _carries(pod: Pod, name: str, version: ClusterColocationProfileSpec | None) -> bool:
    labels, requests = pod.metadata.labels, pod_requests(pod)
    recorded = pod.metadata.annotations.get(ANNOTATION_COLOCATION_PROFILES)
    left_out = PROFILE_REVISION not in labels and recorded is None and labels.get(LABEL_QOS_CLASS) == "LS" and CPU in requests
    if version is None or version.probability == 0:
        return left_out
    if version.probability != ALL and left_out:
        return True
    if recorded != name or labels.get(PROFILE_REVISION) != version.labels[PROFILE_REVISION]:
        return False
    if version.qos_class:
        return labels.get(LABEL_QOS_CLASS) == "BE" and pod.spec.priority == BATCH_PRIORITY and BATCH_CPU in requests
    return labels.get(LABEL_QOS_CLASS) == "LS" and CPU in requests


def invalid_profiles_are_refused(_: LogView, event: Event) -> Wrong:
    """No profile on the log contradicts itself."""
    data = event.data
    if not isinstance(data, ObjectStored) or event.tombstone or tokens(event.subject)[2] != _PLURAL:
        return
    spec = _PROFILE.decode(data.object).spec
    if spec.qos_class == "BE" and spec.priority_class_name == "koord-prod":
        yield event.subject, f"{event.ref} declares a profile whose classes exclude each other"
