"""core/v1 ConfigMap: keys are file names. Source: Kubernetes' validation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.objects.policies import ConfigMap
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, invalid

CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True, ("cm",))
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def config_map_errors(config: ConfigMap) -> list[FieldError]:
    """Keys are file names."""
    found: list[FieldError] = []
    for key in config.data:
        if not _DATA_KEY.fullmatch(key) or key in (".", "..") or len(key) > 253:
            detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.', at most 253 of them"
            found.append(invalid(f"data[{key}]", key, detail))
    return found


decode_config_map = msgspec.json.Decoder(ConfigMap).decode


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, msgspec.Raw] = {}


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    return snapshot.address.name, str(len(shown.data)), age(shown.metadata.creation_timestamp, now)


DEFINITION = KindDefinition(
    CONFIG_MAPS,
    decode=decode_config_map,
    errors=lambda config, _: config_map_errors(config),
    layout=Layout((NAME, Column("Data"), AGE), _cells),
)
