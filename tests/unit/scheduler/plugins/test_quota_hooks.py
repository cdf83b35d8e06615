"""An operator's own rules of quota admission."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from cotenant.domain.quota.hooks import GROUP, AskingPod, HookArgs, HookError, HookPlugin, QuotaHook, made_hooks
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.definition import DEFINITION
from tests.unit.scheduler.builders_scheduler import Story, node, pod


class Reserve:
    """Keeps a part of each quota free for pods that must not be pre-empted."""

    def __init__(self, args: HookArgs) -> None:
        self._percent = float(args["percent"])
        self.asked: list[AskingPod] = []

    def check_pod(self, pod: AskingPod) -> str:
        self.asked.append(pod)
        own = pod.levels[0]
        left = own.max["cpu"] - own.used.get("cpu", 0) - pod.request.get("cpu", 0)
        if pod.preemptible and left < own.max["cpu"] * self._percent / 100:
            return f"{self._percent:g}% of {own.name} are for pods that stay"
        return ""


class HookedStory(Story):
    """A scheduler with hooks."""

    def __init__(self, **hooks: QuotaHook) -> None:
        self._hooks: Mapping[str, QuotaHook] = hooks
        super().__init__()

    def _new_core(self) -> SchedulerCore:
        return SchedulerCore(quota_hooks=self._hooks)


def in_team(name: str, cpu: str = "1") -> dict[str, object]:
    return pod(name, cpu=cpu, labels={LABEL_QUOTA: "team"})


def test_a_hook_refuses_a_pod_that_its_quota_has_room_for() -> None:
    story = HookedStory(reserve=Reserve({"percent": 25}))
    story.nodes(node("a", cpu="64"))
    story.quota("org", max={"cpu": 20_000})
    story.quota("team", max={"cpu": 8_000}, parent="org")
    story.pods(*(in_team(f"p{number:02}") for number in range(20)))
    story.settle()
    assert sorted(story.placed()) == [f"p{number:02}" for number in range(6)], "two of its eight cores stay free"
    waiting = story.waiting("p06")
    assert waiting is not None
    refusal = "CheckPod failed for hook plugin reserve, err: 25% of team are for pods that stay"
    assert waiting.message == f"0/1 nodes are available: {refusal}."
    assert [(reason.code, reason.detail) for reason in waiting.reasons] == [("quota", f"quota team: {refusal}")]
    assert {"quotas._.team", "quotas._.org"} < set(waiting.wakes_on), "it may have looked at any level"


def test_what_a_hook_refused_is_tried_again_when_its_quota_changes() -> None:
    story = HookedStory(reserve=Reserve({"percent": 50}))
    story.nodes(node("a", cpu="64"))
    story.quota("team", max={"cpu": 1_000})
    story.pods(in_team("p"))
    story.settle()
    assert story.placed() == {}
    story.quota("team", max={"cpu": 2_000})
    story.settle()
    assert story.placed() == {"p": "a"}


def test_a_hook_is_not_asked_about_pods_that_the_rules_refuse_or_that_are_in_no_quota() -> None:
    hook = Reserve({"percent": 0})
    story = HookedStory(reserve=hook)
    story.nodes(node("a", cpu="64"))
    story.pods(pod("free"))
    story.settle()
    story.quota("team", max={"cpu": 1_000})
    story.pods(in_team("big", cpu="2"))
    story.settle()
    waiting = story.waiting("big")
    assert waiting is not None
    assert waiting.message.startswith("0/1 nodes are available: Insufficient quotas, quotaName: team")
    assert hook.asked == []


class Closed:
    """Closes a quota."""

    def __init__(self, quota: str) -> None:
        self._quota = quota

    def check_pod(self, pod: AskingPod) -> str:
        return f"{self._quota} is closed" if pod.levels[0].name == self._quota else ""


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({}, "Insufficient quotas, quotaNameTopo: [org b], runtime: cpu:2, used: cpu:2, "),
        (
            {"other": Closed("c"), "one": Closed("b"), "two": Closed("b")},
            "CheckPod failed for hook plugin one, err: b is closed",
        ),
    ],
)
def test_hooks_are_asked_before_the_ancestors_and_the_first_refusal_is_the_answer(
    hooks: Mapping[str, QuotaHook], message: str
) -> None:
    story = HookedStory(**hooks)
    story.nodes(node("n", cpu="64"))
    story.quota("org", max={"cpu": 2_000})
    for name in ("a", "b"):
        story.quota(name, max={"cpu": 2_000}, parent="org")
    story.pods(*(pod(name, cpu="1", labels={LABEL_QUOTA: "a"}) for name in ("a0", "a1")))
    story.settle()
    story.pods(pod("b0", cpu="1", labels={LABEL_QUOTA: "b"}))
    story.settle()
    assert sorted(story.placed()) == ["a0", "a1"]
    waiting = story.waiting("b0")
    assert waiting is not None
    assert waiting.message.startswith(f"0/1 nodes are available: {message}")


def factory(args: HookArgs) -> QuotaHook:
    return Reserve(args)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that offers the factory above, and one that is not there."""
    info = folder / "acme_quotas-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-quotas\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nreserve = {__name__}:factory\nbroken = {__name__}:no_such_thing\n")
    monkeypatch.syspath_prepend(folder)


def configured(*plugins: dict[str, object]) -> object:
    return DEFINITION.config_from(msgspec.json.encode({"hookPlugins": plugins}))


def test_hooks_come_from_installed_packages_by_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    args = {"percent": 25}
    config = configured({"key": "reserve", "factoryKey": "reserve", "factoryArgs": args})
    assert isinstance(DEFINITION.make_core(config), SchedulerCore)
    with pytest.raises(SystemExit, match=r"configuration: hookPlugins\[0\]\.factoryKey: no installed package .* 'other'"):
        DEFINITION.make_core(configured({"key": "reserve", "factoryKey": "other"}))
    with pytest.raises(SystemExit, match=r"hookPlugins\[0\] \(reserve\): its factory failed: AttributeError"):
        DEFINITION.make_core(configured({"key": "reserve", "factoryKey": "broken"}))
    with pytest.raises(SystemExit, match=r"hookPlugins\[0\] \(reserve\): its factory failed: KeyError\('percent'\)"):
        DEFINITION.make_core(configured({"key": "reserve", "factoryKey": "reserve"}))


@pytest.mark.parametrize("wrong", [{"key": "reserve"}, {"factoryKey": "reserve"}, {"key": "a", "factoryKey": "b", "args": {}}])
def test_a_hook_without_key_or_factory_is_no_configuration(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        configured(wrong)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (("",), r"hookPlugins\[0\]\.key: '' names nothing; each hook needs its own key"),
        (("a", "a"), r"hookPlugins\[1\]\.key: 'a' is given twice; each hook needs its own key"),
    ],
)
def test_each_hook_has_its_own_key(keys: tuple[str, ...], error: str) -> None:
    plugins = [HookPlugin(key=key, factory_key="reserve", factory_args={"percent": 1}) for key in keys]
    with pytest.raises(HookError, match=error):
        made_hooks(plugins, lambda _: factory)
