"""The volumes of a pod that a scheduler looks at: claims, and CSI volumes that are part of the pod.

In: a pod. Out: `VolumesAsked`, None for a pod without any. The claim of a generic ephemeral volume is named
`<pod>-<volume>`, and made for the pod by somebody else. Source: Kubernetes' volume sources.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.objects.pod import Pod

ClaimKey = tuple[str, str]
"""Namespace and name."""
MARKS = (b'"persistentVolumeClaim"', b'"ephemeral"', b'"csi"')
"""Volumes without any of these are no concern of the scheduler."""


class VolumesAsked(msgspec.Struct, frozen=True):
    """What a pod uses. Hashable."""

    claims: tuple[ClaimKey, ...] = ()
    """Each once, in the order of the volumes."""
    ephemeral: frozenset[ClaimKey] = frozenset()
    """Those of them that are made for the pod."""
    inline: tuple[str, ...] = ()
    """CSI drivers of volumes that are part of the pod, once for each volume."""


class _Made(View, frozen=True):
    """Its template is somebody else's."""


class _Claim(View, frozen=True, kw_only=True):
    claim_name: str = ""


class _Csi(View, frozen=True, kw_only=True):
    driver: str = ""


class _Volume(View, frozen=True, kw_only=True):
    name: str = ""
    persistent_volume_claim: _Claim | None = None
    ephemeral: _Made | None = None
    csi: _Csi | None = None


_VOLUME = msgspec.json.Decoder(_Volume)


def volumes_asked(pod: Pod) -> VolumesAsked | None:
    """Return the volumes of a pod that matter to where it is placed. Raises msgspec.DecodeError."""
    claims: dict[ClaimKey, bool] = {}
    inline: list[str] = []
    namespace = pod.metadata.namespace
    for document in pod.spec.volumes:
        if not any(mark in bytes(document) for mark in MARKS):
            continue
        volume = _VOLUME.decode(document)
        if volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name:
            claims.setdefault((namespace, volume.persistent_volume_claim.claim_name), False)
        elif volume.ephemeral is not None:
            claims.setdefault((namespace, f"{pod.metadata.name}-{volume.name}"), True)
        elif volume.csi is not None and volume.csi.driver:
            inline.append(volume.csi.driver)
    if not claims and not inline:
        return None
    return VolumesAsked(tuple(claims), frozenset(key for key, made in claims.items() if made), tuple(inline))
