"""core/v1 ServiceAccount: the identity of a program. Its tokens are issued by the subresource `token` and not stored.

Source: Kubernetes' validation and printer of service accounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition, Subresource
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.snapshots import Snapshot

SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",))
DEFAULT_ACCOUNT = "default"
"""Every namespace has this one; a pod that names none belongs to it."""
TOKEN = "token"
"""The subresource that issues a token."""


class _Reference(View, frozen=True, kw_only=True):
    name: str = ""


class ServiceAccount(View, frozen=True, kw_only=True):
    """What is checked of a service account; `secrets` and `imagePullSecrets` are kept as they are given."""

    metadata: ObjectMeta = ObjectMeta()
    secrets: list[_Reference] | None = None
    image_pull_secrets: list[_Reference] | None = None
    automount_service_account_token: bool | None = None


_decode = msgspec.json.Decoder(ServiceAccount).decode


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _decode(snapshot.document)
    return snapshot.address.name, str(len(shown.secrets or ())), age(shown.metadata.creation_timestamp, now)


DEFINITION = KindDefinition(
    SERVICE_ACCOUNTS,
    decode=_decode,
    layout=Layout((NAME, Column("Secrets"), AGE), _cells),
    subresources=(Subresource(TOKEN, "TokenRequest", ("create",), "authentication.k8s.io", "v1"),),
)
