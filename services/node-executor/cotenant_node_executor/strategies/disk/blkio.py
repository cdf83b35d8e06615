"""Shares of disks: of the best-effort class, of single pods, and of the root.

In: the `blkioQOS` of the classes, pods' annotation `koordinator.sh/blkioQOS`, this machine's storage. Out: the files of the
best-effort group, of the pods' groups, and of the root group (`blkio_plan`).

A class that is not enabled, and an empty annotation, reset former values; a level without configuration is left
alone. `lsrClass` and `lsClass` have no blkio. A pod needs a QoS label. A level with a block that names no disk of this machine
keeps its last values, with the reason; so does a pod until its containers show the disks of its claims. After a start every
disk counts as listed, so that an earlier executor's values are reset. Source: blkio, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant.domain.qos import QoSClass
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.disk.blkio_plan import (
    BlkioPlan,
    Block,
    Level,
    PodVolumes,
    blkio_plan,
    configured,
    listed,
    v2_plan,
)
from cotenant_node_executor.strategies.disk.pod_volumes import claims_of, is_awaited, volumes_of
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.sections import (
    QOS,
    ROOT_CLASS,
    annotation_as,
    fitted,
    lower_name,
    object_of,
    of_classes,
    raw_section,
)
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.interface import BESTEFFORT, ROOT_GROUP, CgroupVersion, Knob, NodeCapabilities

NAME = "blkio"
PART = "blkioQOS"
ANNOTATION = "koordinator.sh/blkioQOS"
MAX_BLOCKS = 64
KNOBS = (
    Knob.BLKIO_READ_IOPS,
    Knob.BLKIO_READ_BPS,
    Knob.BLKIO_WRITE_IOPS,
    Knob.BLKIO_WRITE_BPS,
    Knob.BLKIO_COST_WEIGHT,
    Knob.BLKIO_COST_QOS,
    Knob.BLKIO_COST_MODEL,
    Knob.IO_MAX,
    Knob.IO_WEIGHT,
    Knob.IO_LATENCY,
)


class BlkioQOS(Struct, frozen=True, kw_only=True, rename=lower_name):
    """Blocks of a level; None: nothing is stated."""

    enable: bool | None = None
    blocks: list[Block] | None = None


class BlkioRule(Struct, frozen=True):
    """Blocks of the best-effort class and of the root; None: the level is left alone."""

    best_effort: list[Block] | None = None
    root: list[Block] | None = None


Texts = Mapping[str, str]
"""By file."""


class Configured(Struct, frozen=True):
    """The values written to each configured group's files by this process."""

    texts: Mapping[str, Texts] = {}


def blocks_of(config: BlkioQOS) -> list[Block]:
    """Return the blocks in force: none of a level that is not enabled."""
    return (config.blocks or [])[:MAX_BLOCKS] if config.enable else []


@by_identity
def _rule(slo: NodeSLORendered) -> BlkioRule:
    strategy = raw_section(slo, QOS)

    def level(field: str) -> list[Block] | None:
        part = object_of(strategy, field)
        if part.get(PART.lower()) is None:
            return None
        return blocks_of(fitted(object_of(part, PART), BlkioQOS, f"{field}.{PART}"))

    return BlkioRule(level("beclass"), level(ROOT_CLASS))


class PodBlocks(Struct, frozen=True):
    """The blocks of a pod's annotation; None: none. `problem`: why it cannot be read."""

    blocks: tuple[Block, ...] | None = None
    problem: str = ""


@by_identity
def pod_blocks(pod: Pod) -> PodBlocks:
    """Return a pod's blocks; an empty text has none, which resets former values."""
    text = pod.metadata.annotations.get(ANNOTATION)
    if text is None:
        return PodBlocks()
    if not text:
        return PodBlocks(())
    try:
        config = annotation_as(ANNOTATION, text, BlkioQOS)
    except ValueError as error:
        return PodBlocks(problem=str(error))
    return PodBlocks(tuple((config.blocks or [])[:MAX_BLOCKS]))


class _Levels:
    """Collects the values of one decision."""

    def __init__(self, situation: Situation, knobs: frozenset[Knob], before: Configured | None) -> None:
        self._situation = situation
        self._knobs = knobs
        self._before = before
        self._v2 = situation.capabilities.version is CgroupVersion.V2
        self._everything = set(situation.storage.disks.values())
        self.values: dict[Place, tuple[Desired, ...]] = {}
        self.texts: dict[str, Texts] = {}
        self.problems: list[str] = []

    def keep(self, group: str, where: str) -> None:
        """Keep a group's last values; after a start there are none, and the group is left alone."""
        texts = self._before.texts.get(group, {}) if self._before is not None else {}
        if texts:
            self.texts[group] = texts
        if texts and not (self._v2 and group == ROOT_GROUP):
            self.values[group] = tuple([Desired(Knob(name), text, NAME, where) for name, text in texts.items()])

    def add(self, level: Level, group: str, blocks: Iterable[Block] | None, where: str, pod: PodVolumes | None = None) -> None:
        """Add a level's lines; without blocks (None) only earlier ones are reset."""
        texts = self._before.texts.get(group, {}) if self._before is not None else {}
        known = self._everything if self._before is None else listed(texts)
        if blocks is None and not known:
            return
        try:
            configs = configured(list(blocks or ()), self._situation.storage, pod)
        except ValueError as error:
            self.problems.append(f"{where}: {error}")
            self.keep(group, where)
            return
        plan = blkio_plan(level, configs, known) if not self._v2 else v2_plan(configs, known)
        values = self._desired(plan, where)
        if blocks is not None:
            self.texts[group] = {each.attribute.value: each.value for each in values}
        if values and not (self._v2 and level is Level.ROOT):
            self.values[group] = values

    def _desired(self, plan: BlkioPlan, where: str) -> tuple[Desired, ...]:
        lines: dict[Knob, list[str]] = {}
        for disks in (plan.reset_lines, plan.set_lines):
            for disk in disks:
                for knob, line in disks[disk].items():
                    if knob in self._knobs:
                        lines.setdefault(knob, []).append(line)
        return tuple([Desired(knob, "\n".join(own), NAME, where) for knob, own in lines.items()])


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """The files of all levels."""
    knobs, slo = _supported(situation.capabilities), situation.slo
    if slo is None or not knobs or not situation.storage.disks:
        return StrategyDecision(memory=memory)
    rule = _rule(slo)
    levels = _Levels(situation, knobs, memory if isinstance(memory, Configured) else None)
    levels.add(Level.CLASS, BESTEFFORT, rule.best_effort, f"{PART} of BE")
    levels.add(Level.ROOT, ROOT_GROUP, rule.root, f"{PART} of the root")
    for _, pod in sorted(situation.pods.items()):
        _add_pod(levels, situation, pod)
    return StrategyDecision(levels.values, memory=Configured(levels.texts), problems=tuple(levels.problems))


def _add_pod(levels: _Levels, situation: Situation, pod: PodView) -> None:
    where = f"annotation of {pod.namespace}/{pod.name}"
    asked = pod_blocks(pod.manifest)
    if asked.problem:
        levels.problems.append(f"pod {pod.namespace}/{pod.name}: {asked.problem}")
    blocks = asked.blocks if pod.qos is not QoSClass.NONE else None
    volumes = None
    if blocks:
        claims, devices = claims_of(pod.manifest, situation.storage.mounts), situation.volumes.get(pod.uid, {})
        volumes = volumes_of(pod.manifest, claims, devices)
        if situation.node.kubelet_pods and is_awaited(pod.manifest, blocks, volumes):
            levels.keep(pod.group, where)
            return
    levels.add(Level.POD, pod.group, blocks, where, volumes)


@by_identity
def _supported(capabilities: NodeCapabilities) -> frozenset[Knob]:
    return frozenset(knob for knob in KNOBS if capabilities.supports(knob))


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    return frozenset((Input.PODS,) if _supported(policy.capabilities) else ())


STRATEGY = Strategy(
    name=NAME,
    topic="blkio",
    sets=KNOBS,
    decide=decide,
    inputs=_inputs,
    section=QOS,
    part=PART,
    reads=of_classes(PART, BlkioQOS),
)
