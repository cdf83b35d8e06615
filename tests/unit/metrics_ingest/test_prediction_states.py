"""The stored state of a node's prediction models: what it holds, how it is made to fit, and what is refused."""

from __future__ import annotations

from uuid import UUID

import msgspec
import numpy as np
import pytest

from cotenant.events.envelope import encode_payload
from cotenant.events.node.predictions import HistogramState, PredictionState
from cotenant_metrics_ingest import varints
from cotenant_metrics_ingest.prediction.checkpoints import MAX_BYTES, StoredModels, restored, states_of
from cotenant_metrics_ingest.prediction.models import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    OWN_MODELS,
    IntervalFigures,
    ModelStore,
    NodeModels,
    Training,
    tier_places,
)
from tests.unit.metrics_ingest.builders_metrics_ingest import START, state_of
from tests.unit.metrics_ingest.test_prediction import models, stored, train

NOW = 1_767_225_600
GIB = 1 << 30
UID = "0000000a-0000-4000-8000-00000000000b"


def of_pods(pods: dict[str, int], weight: float = 1.0) -> tuple[ModelStore, NodeModels]:
    """The models of a node of 16 cores and 8 GiB in use after one training; each pod uses these milli-cores and a GiB."""
    store, found = ModelStore(), NodeModels()
    values = np.array([list(pods.values()), [GIB] * len(pods)], dtype=np.int64).reshape(2, -1)
    tiers = tier_places(pods, dict.fromkeys(pods, "koord-prod"))
    store.train([Training(found, IntervalFigures(list(pods), tiers, values, (16_000, 8 * GIB)), NOW, weight)])
    return store, found


def state_in(store: ModelStore, found: NodeModels, node: str = "n1") -> PredictionState:
    return state_of(node, store, found, int(found.trained_at * 1000), START)


def size(state: PredictionState) -> int:
    return len(encode_payload(state))


def changed(state: PredictionState, reference_seconds: int, trained_ms: int) -> PredictionState:
    cpu, memory = (msgspec.structs.replace(each, reference_seconds=reference_seconds) for each in (state.cpu, state.memory))
    return msgspec.structs.replace(state, cpu=cpu, memory=memory, trained_ms=trained_ms)


def test_the_integers_of_a_state_are_those_that_the_event_documents() -> None:
    store, found = of_pods({"a": 1000}, weight=2.5)
    state = state_in(store, found)
    assert (state.models, state.pods, state.packed_pods) == (OWN_MODELS, ("a",), b"")
    # Node, system, the tiers prod, mid, batch, free and none, the pod; all in one bucket each, so as heavy as the heaviest.
    cpu = [CPU_BUCKETS.find(cores) for cores in (16, 15, 1, 0, 0, 0, 0, 1)]
    memory = [MEMORY_BUCKETS.find(gib * GIB) for gib in (8, 7, 1, 0, 0, 0, 0, 1)]
    for buckets, histograms in ((cpu, state.cpu), (memory, state.memory)):
        decoded = varints.decode(histograms.models).tolist()
        assert decoded == [*[1] * 8, *buckets, *[10_000] * 8, *[2500] * 8]
        assert (histograms.reference_seconds, histograms.heaviest) == (NOW, 10_000)


def test_a_state_too_large_by_a_byte_is_scaled_to_1000_then_to_120_and_then_loses_its_smallest_pod() -> None:
    store, found = models(10, 60)
    length = 0
    for heaviest in (10_000, 1_000, 120):
        length += MAX_BYTES - size(state_in(store, found, "n" * length))
        state = state_in(store, found, "n" * length)
        assert (size(state), state.cpu.heaviest, state.memory.heaviest, state.dropped) == (MAX_BYTES, heaviest, heaviest, 0)
        length += 1
    state = state_in(store, found, "n" * length)
    assert (state.cpu.heaviest, state.memory.heaviest, state.dropped) == (120, 120, 1)
    (predicted,) = store.predicted([found])
    smallest = min(predicted.pods, key=lambda uid: (predicted.pods[uid].cpu_milli, predicted.pods[uid].memory_bytes))
    assert UUID(smallest).bytes not in {state.packed_pods[at : at + 16] for at in range(0, len(state.packed_pods), 16)}
    # Without that pod, and with the field that counts it, it may have just so many bytes.
    length += MAX_BYTES - size(state)
    assert [(size(each), each.dropped) for each in (state_in(store, found, "n" * length),)] == [(MAX_BYTES, 1)]
    assert state_in(store, found, "n" * (length + 1)).dropped > 1
    assert MAX_BYTES == 7_400, "with the envelope at most 8 KiB"


def test_a_pod_whose_uid_is_no_uuid_as_it_is_written_is_stored_by_name() -> None:
    pods = {UID.upper(): 1000, UID: 2000, "x" * 36: 3000, UID.replace("-", ""): 4000, "static": 5000}
    store, found = of_pods(pods)
    state = state_in(store, found)
    assert state.packed_pods == UUID(UID).bytes
    assert state.pods == tuple(uid for uid in pods if uid != UID)
    new_store = ModelStore()
    after = restored(state, pods, new_store)
    assert after is not None
    assert set(after.rows) == set(found.rows)
    (predicted,) = new_store.predicted([after])
    assert {uid: CPU_BUCKETS.find((predicted.pods[uid].cpu_milli - 1) / 1000) for uid in pods} == {
        uid: CPU_BUCKETS.find(cpu / 1000) for uid, cpu in pods.items()
    }


def test_a_stored_model_without_weights_takes_part_and_changes_no_other() -> None:
    state = state_in(*of_pods({"a": 1000, "b": 9000}))
    # Of three pods, the last one has no bucket and a total of 0.
    names = ("a", "b", "c")
    with_c = {
        resource: HistogramState(reference_seconds=NOW, models=without_weights(getattr(state, resource)))
        for resource in ("cpu", "memory")
    }
    store, alone = ModelStore(), ModelStore()
    found = restored(msgspec.structs.replace(state, pods=names, **with_c), names, store)
    expected = restored(state, names, alone)
    assert found is not None
    assert expected is not None
    assert store.predicted([found]) == alone.predicted([expected])
    assert not store.cpu.weights(found.rows["c"]).any()
    again = state_in(store, found)
    assert (again.pods, again.cpu, again.memory) == (names, with_c["cpu"], with_c["memory"])


def without_weights(histograms: HistogramState) -> bytes:
    """Nine models of one bucket each, and a tenth without any."""
    counts, buckets, weights, totals = varints.decode(histograms.models).reshape(4, 9)
    values = np.concatenate((counts, [0], buckets, weights, totals, [0]))
    return varints.encode_each(values, np.array([len(values)]))[0]


def test_a_model_may_use_all_buckets() -> None:
    store, found = of_pods({"a": 0})
    row = np.array([found.rows["a"]])
    for start in CPU_BUCKETS.starts.tolist():
        store.cpu.add(row, np.array([start]), 1.0, float(NOW))
    state = state_in(store, found)
    assert int(varints.decode(state.cpu.models)[7]) == CPU_BUCKETS.count
    new_store = ModelStore()
    after = restored(state, {"a"}, new_store)
    assert after is not None
    assert new_store.cpu.weights(after.rows["a"]) == pytest.approx(store.cpu.weights(found.rows["a"]), rel=1e-4)


@pytest.mark.parametrize(
    ("reference_seconds", "trained_ms", "taken"),
    [
        (0, 0, False),
        (0, 1, True),
        (9_000_000_000, 9_000_000_000_000 - 1, True),
        (9_000_000_000, 9_000_000_000_000, False),
        (NOW + 86_400, NOW * 1000, True),
        (NOW + 86_401, NOW * 1000, False),
        (NOW - 86_400, NOW * 1000, True),
        (NOW - 86_401, NOW * 1000, False),
    ],
)
def test_a_state_is_of_the_years_until_2255_and_its_weights_of_the_day_of_its_newest_sample(
    reference_seconds: int, trained_ms: int, taken: bool
) -> None:
    found = restored(changed(stored(2, 5), reference_seconds, trained_ms), (), ModelStore())
    assert (found is not None) is taken
    assert found is None or found.trained_at == trained_ms / 1000


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_one_resource_of_another_day_is_enough_to_refuse_a_state(resource: str) -> None:
    state = stored(2, 5)
    other = msgspec.structs.replace(getattr(state, resource), reference_seconds=0)
    assert restored(msgspec.structs.replace(state, **{resource: other}), (), ModelStore()) is None


def test_a_state_of_nothing_or_of_a_pod_twice_is_as_none() -> None:
    assert restored(PredictionState(node="n1", trained_ms=1), (), ModelStore()) is None
    state = stored(2, 5)
    assert restored(msgspec.structs.replace(state, packed_pods=2 * state.packed_pods[:16]), (), ModelStore()) is None


def test_counts_of_buckets_whose_sum_exceeds_an_int64_are_refused() -> None:
    """Four times 2^62 buckets are none in 64 bits, so that the length alone would be right."""
    state = stored(0, 5)
    values = np.array([*[1 << 62] * 4, *[0] * 3, *[1000] * 7], dtype=np.int64)
    (encoded,) = varints.encode_each(values, np.array([len(values)]))
    damaged = msgspec.structs.replace(state, cpu=HistogramState(reference_seconds=state.cpu.reference_seconds, models=encoded))
    assert restored(damaged, (), ModelStore()) is None


def test_nodes_whose_states_are_written_together_have_those_that_each_would_have_alone() -> None:
    store = ModelStore()
    several: list[NodeModels] = []
    for number, pods in enumerate((3, 0, 110, 30)):
        node = NodeModels()
        train(store, node, pods, 40 + number, spread=90)
        several.append(node)
    wanted = [StoredModels(f"n{place}", node, int(node.trained_at * 1000)) for place, node in enumerate(several)]
    together = states_of(wanted, store, START)
    assert [state.dropped > 0 for state in together] == [False, False, True, False]
    assert together == [states_of([one], store, START)[0] for one in wanted]
    assert states_of([], store, START) == []
