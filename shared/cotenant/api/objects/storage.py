"""Typed views of Kubernetes' storage kinds: claims, volumes, storage classes, and CSI drivers of a node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.metadata import LabelSelector, ObjectMeta, View
from cotenant.api.objects.pod import NodeSelector, Resources
from cotenant.model.bounds import Int32
from cotenant.model.quantities import QuantityError, Scalar, resource_amount

BIND_MODE_WAIT = "WaitForFirstConsumer"
BIND_MODE_NOW = "Immediate"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of a class whose volumes exist beforehand."""
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its volume is provisioned."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
"""On a claim or a volume: the name of its class, before there was a field."""
STORAGE = "storage"


def storage_of(amounts: Mapping[str, Scalar]) -> int:
    """Return the storage in bytes; 0 where it is not given or cannot be read."""
    try:
        return resource_amount(STORAGE, amounts[STORAGE]) if STORAGE in amounts else 0
    except QuantityError:
        return 0


class ObjectRef(View, frozen=True, kw_only=True):
    """The claim that a volume is for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class ClaimSpec(View, frozen=True, kw_only=True):
    """A claim's spec. `volume_name`: the volume that it is bound to; `storage_class_name` None: that of the default class."""

    access_modes: list[str] = []
    selector: LabelSelector | None = None
    resources: Resources = Resources()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None


class ClaimStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    access_modes: list[str] = []
    capacity: dict[str, Scalar] = {}


class PersistentVolumeClaim(View, frozen=True, kw_only=True):
    """core/v1 PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def class_name(self) -> str:
        """The name of its storage class; empty: none."""
        return self.metadata.annotations.get(BETA_CLASS) or self.spec.storage_class_name or ""


class VolumeNodeAffinity(View, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class CsiVolume(View, frozen=True, kw_only=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(View, frozen=True, kw_only=True):
    """A volume's spec. `csi` None: it is of another kind, as the document states."""

    capacity: dict[str, Scalar] = {}
    access_modes: list[str] = []
    claim_ref: ObjectRef | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiVolume | None = None


class VolumeStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""


class PersistentVolume(View, frozen=True, kw_only=True):
    """core/v1 PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def class_name(self) -> str:
        """The name of its storage class; empty: none."""
        return self.metadata.annotations.get(BETA_CLASS) or self.spec.storage_class_name


class TopologyExpression(View, frozen=True, kw_only=True):
    key: str = ""
    values: list[str] = []


class TopologyTerm(View, frozen=True, kw_only=True):
    """All expressions must hold."""

    match_label_expressions: list[TopologyExpression] = []


class StorageClass(View, frozen=True, kw_only=True):
    """storage.k8s.io/v1 StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    parameters: dict[str, str] = {}
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = BIND_MODE_NOW
    allow_volume_expansion: bool = False
    mount_options: list[str] = []
    allowed_topologies: list[TopologyTerm] = []

    @property
    def is_default(self) -> bool:
        """Whether claims without a class get this one."""
        return self.metadata.annotations.get(DEFAULT_CLASS) == "true"


class VolumeLimit(View, frozen=True, kw_only=True):
    count: Int32 | None = None


class CsiDriver(View, frozen=True, kw_only=True):
    """A CSI driver on a node; `allocatable` None: no limit."""

    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: list[str] = []
    allocatable: VolumeLimit | None = None


class CsiNodeSpec(View, frozen=True, kw_only=True):
    drivers: list[CsiDriver] = []


class CsiNode(View, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSINode."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


decode_claim = msgspec.json.Decoder(PersistentVolumeClaim).decode
decode_volume = msgspec.json.Decoder(PersistentVolume).decode
decode_storage_class = msgspec.json.Decoder(StorageClass).decode
decode_csi_node = msgspec.json.Decoder(CsiNode).decode
