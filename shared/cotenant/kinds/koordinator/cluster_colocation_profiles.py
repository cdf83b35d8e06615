"""config.koordinator.sh/v1alpha1 ClusterColocationProfile.

Its rules try its patch on a pod, so they are among the admission rules.
"""

from __future__ import annotations

import msgspec

from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.colocation_profile import ClusterColocationProfile

PROFILES = Kind("config.koordinator.sh", "v1alpha1", "clustercolocationprofiles", "ClusterColocationProfile", False)

decode_profile = msgspec.json.Decoder(ClusterColocationProfile).decode

DEFINITION = KindDefinition(PROFILES, decode=decode_profile)
