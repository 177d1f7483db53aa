# SPDX-License-Identifier: Apache-2.0
"""The worker between device memory and the store; plain memory stands in for a GPU's."""
import importlib
from types import SimpleNamespace

import numpy
import pytest

import generations
import kvtier
from kvtier.simulate import spec_like
from kvtier.vllm import KvTierOffloadingWorker, KvTierTransferError
from kvtier.vllm.worker import parse_device
from scene import TIMEOUT_S, Gate, in_thread, keys_of, objects_below

BLOCKS, LAYERS, PAGE = 24, 3, 512
F = 4


class FakeTensor:
    """The three methods of a torch tensor that a worker needs."""

    def __init__(self, array):
        self.array = array

    def data_ptr(self):
        return self.array.ctypes.data

    def stride(self, dimension):
        return self.array.strides[dimension] // self.array.itemsize

    def element_size(self):
        return self.array.itemsize


class Memory:
    """The KV cache of one worker: a tensor for each layer, padded; group 0 has all layers but the
    last, group 1 the last."""

    def __init__(self, seed=1):
        chance = numpy.random.default_rng(seed)
        self.layers = [
            chance.integers(0, 255, (BLOCKS, PAGE + 64), dtype=numpy.uint8) for _ in range(LAYERS)
        ]
        refs = [SimpleNamespace(tensor_idx=i, page_size_bytes=PAGE) for i in range(LAYERS)]
        self.caches = SimpleNamespace(
            tensors=[SimpleNamespace(tensor=FakeTensor(layer)) for layer in self.layers],
            group_data_refs=[refs[:-1], refs[-1:]],
        )

    def pages(self, blocks, layers=range(LAYERS)):
        return [self.layers[layer][block, :PAGE].copy() for layer in layers for block in blocks]

    def pointers(self, blocks, index=0, other=()):
        """DevicePointers of blocks of group 0, and of `other` of group 1."""
        places = [(layer, block) for layer in (0, 1) for block in blocks]
        places += [(2, block) for block in other]
        return generations.DevicePointers(
            ptrs=numpy.array([self.layers[la][bl].ctypes.data for la, bl in places], "uint64"),
            sizes=numpy.full(len(places), PAGE, dtype="uint64"),
            group_block_counts=(len(blocks), len(other)),
            group_data_ref_counts=(2, 1),
            block_indices=(index, 0),
        )

    def block_ids(self, blocks, index=0, other=()):
        return generations.GPULoadStoreSpec(
            list(blocks) + list(other), (len(blocks), len(other)), (index, 0)
        )


def spec_of(keys):
    return generations.FSLoadStoreSpec(keys)


def open_worker(place, memory=None, **config):
    config.setdefault("options", {})
    config["options"] = dict(place.options, **config["options"])
    caches = None if memory is None else memory.caches
    spec = spec_like(groups=2, blocks_per_chunk=F)
    return KvTierOffloadingWorker(spec, caches, store=place.uri, **config)


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def worker(place, memory):
    made = open_worker(place, memory)
    yield made
    made.shutdown()


def finish(worker, *job_ids):
    """The results of these jobs."""
    results = {}
    while len(results) < len(job_ids):
        worker._worker.wait(list(worker._internal.values()), TIMEOUT_S * 1000)
        for result in worker.get_finished():
            assert result.job_id not in results
            results[result.job_id] = result
    assert sorted(results) == sorted(job_ids)
    return results


@pytest.mark.parametrize("form", ["pointers", "block_ids"])
def test_blocks_go_to_the_store_and_back_in_both_forms(worker, memory, form):
    chunks = keys_of(2) + keys_of(1, group=1)
    before = memory.pages(range(8)) + memory.pages(range(4), [2])
    make = getattr(memory, form)
    assert worker.submit_store(1, make(range(8), 0, range(4)), spec_of(chunks))
    stored = finish(worker, 1)[1]
    assert stored.success
    assert stored.transfer_size == (8 * 2 + 4) * PAGE
    assert stored.transfer_time > 0
    assert worker.submit_load(2, spec_of(chunks), make(range(12, 20), 0, range(16, 20)), True)
    assert finish(worker, 2)[2].success
    after = memory.pages(range(12, 20), [0, 1]) + memory.pages(range(16, 20), [2])
    expected = before[:16] + before[24:]
    assert all((a == b).all() for a, b in zip(after, expected)) and len(after) == len(expected)


@pytest.mark.parametrize("form", ["pointers", "block_ids"])
def test_transfers_may_begin_and_end_within_a_chunk(worker, memory, form):
    make = getattr(memory, form)
    keys = keys_of(3)
    before = memory.pages(range(9), [0, 1])
    assert worker.submit_store(1, make(range(9), 2), spec_of(keys))
    assert finish(worker, 1)[1].success
    assert worker.submit_load(2, spec_of(keys[:2]), make(range(12, 18), 2))
    assert finish(worker, 2)[2].success
    after = memory.pages(range(12, 18), [0, 1])
    expected = before[:6] + before[9:15]
    assert all((a == b).all() for a, b in zip(after, expected))


def test_both_forms_name_the_same_memory(memory):
    from kvtier.vllm import _compat

    blocks, other = [5, 3, 9], [1, 2]
    pointers = memory.pointers(blocks, 1, other)
    resolved = _compat.resolve_block_ids(memory.block_ids(blocks, 1, other), memory.caches)
    assert (resolved.ptrs == pointers.ptrs).all() and (resolved.sizes == pointers.sizes).all()
    for name in ("group_block_counts", "group_data_ref_counts", "block_indices"):
        assert tuple(getattr(resolved, name)) == getattr(pointers, name)


def test_block_ids_that_do_not_fit_the_caches_are_refused(worker, memory, place):
    with pytest.raises(ValueError, match="expected 2 groups that add up"):
        worker.submit_store(
            1, generations.GPULoadStoreSpec([0], (1,), (0,)), spec_of(keys_of(1)))
    without = open_worker(place)
    with pytest.raises(TypeError, match="expected kv_caches"):
        without.submit_store(1, memory.block_ids([0]), spec_of(keys_of(1)))
    with pytest.raises(TypeError, match="transfer of type int"):
        without.submit_store(1, 5, spec_of(keys_of(1)))
    without.shutdown()


def test_a_job_id_that_is_live_is_refused(worker, memory):
    worker.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    with pytest.raises(ValueError, match="job_id: 1 is live"):
        worker.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    finish(worker, 1)
    worker.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    finish(worker, 1)


def test_transfers_that_do_not_add_up_raise_and_leave_no_job(worker, memory):
    with pytest.raises(kvtier.InvalidArgumentError):
        worker.submit_store(1, memory.pointers(range(8)), spec_of(keys_of(1)))
    assert worker.get_finished() == []
    worker.submit_store(1, memory.pointers(range(8)), spec_of(keys_of(2)))
    assert finish(worker, 1)[1].success


# ---- failures ----


def test_a_failed_load_raises_and_the_other_results_come_after_it(worker, memory):
    worker.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    worker.submit_load(2, spec_of(keys_of(1, "absent")), memory.pointers(range(8, 12)))
    worker.wait({1, 2})
    worker._worker.drain()
    with pytest.raises(KvTierTransferError, match="load job 2: ") as caught:
        worker.get_finished()
    assert caught.value.job_id == 2
    assert [(r.job_id, r.success) for r in worker.get_finished()] == [(1, True)]
    assert worker.get_finished() == []


def test_a_failed_load_may_be_reported_instead(place, memory):
    worker = open_worker(place, memory, on_error="report")
    worker.submit_load(7, spec_of(keys_of(1, "absent")), memory.pointers(range(4)))
    result = finish(worker, 7)[7]
    assert not result.success
    assert result.transfer_size == 0
    worker.shutdown()


@pytest.mark.parametrize("policy, outcome", [("done", True), ("report", False), ("raise", None)])
def test_what_becomes_of_a_failed_store_is_the_users_choice(tmp_path, memory, policy, outcome):
    gate = Gate(tmp_path)
    gate.open()
    place = SimpleNamespace(uri="fault+file://%s" % (tmp_path / "store"),
                            options={"while": "put:%s:EACCES" % gate.path})
    worker = open_worker(place, memory, on_store_error=policy)
    gate.shut()
    worker.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    if outcome is None:
        with pytest.raises(KvTierTransferError, match="store job 1: .*EACCES"):
            finish(worker, 1)
    else:
        assert finish(worker, 1)[1].success is outcome
    worker.shutdown()


def held(tmp_path, op, memory, **config):
    gate = Gate(tmp_path)
    gate.open()
    place = SimpleNamespace(uri="fault+file://%s" % (tmp_path / "store"),
                            options={"stuck": "%s:%s" % (op, gate.path)})
    worker = open_worker(place, memory, **config)
    gate.shut()
    return gate, worker


def test_a_store_that_the_queue_refuses_is_done_but_not_stored(tmp_path, memory):
    gate, worker = held(tmp_path, "put", memory, queue_chunks=1, lanes=1, depth=1)
    for job_id in range(6):
        keys = keys_of(1, "job%d-" % job_id)
        assert worker.submit_store(job_id, memory.pointers(range(4)), spec_of(keys))
    refused = worker.get_finished()
    assert refused and all(r.success and r.transfer_size == 0 for r in refused)
    assert worker.refused_stores == len(refused)
    gate.open()
    accepted = finish(worker, *sorted(set(range(6)) - {r.job_id for r in refused}))
    assert all(result.success for result in accepted.values())
    assert len(objects_below(tmp_path / "store")) == len(accepted)
    worker.shutdown()


# ---- waiting ----


def test_waiting_is_for_the_memory_and_not_for_the_store(tmp_path, memory):
    """A preemption takes the memory back: the library is asked when it is quiet, which for device
    memory is long before a PUT has ended."""
    gate, worker = held(tmp_path, "put", memory)
    keys = keys_of(1)
    worker.submit_store(1, memory.pointers(range(4)), spec_of(keys))
    asked = []

    def wait_memory(job_ids, timeout_ms):
        asked.append(list(job_ids))
        return len(asked) == 2

    worker._worker.wait_memory = wait_memory
    worker.wait({1, 99})
    assert asked == [[worker._internal[1]]] * 2
    assert worker.get_finished() == []
    del worker._worker.wait_memory
    thread = in_thread(lambda: worker.wait({1}))
    gate.open()
    thread.join()
    assert finish(worker, 1)[1].success
    worker.shutdown()


def test_waiting_for_unknown_jobs_and_for_none_returns_at_once(worker):
    worker.wait(set())
    worker.wait({5, 6})


def test_shutdown_waits_for_stores_under_way(tmp_path, memory):
    gate, worker = held(tmp_path, "put", memory)
    worker.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    thread = in_thread(worker.shutdown)
    gate.open()
    thread.join()
    assert len(objects_below(tmp_path / "store")) == 1
    with pytest.raises(RuntimeError, match="was shut down"):
        worker.submit_store(2, memory.pointers(range(4)), spec_of(keys_of(1)))
    worker.wait({1})
    worker.shutdown()


def test_shutdown_raises_what_failed(place, memory):
    worker = open_worker(place, memory)
    worker.submit_load(1, spec_of(keys_of(1, "absent")), memory.pointers(range(4)))
    with pytest.raises(KvTierTransferError, match="load job 1"):
        worker.shutdown()


# ---- start ----


def test_objects_of_workers_never_carry_names_of_vllms_tiers(worker):
    assert '"storage_format":"kvtier1"' in worker._store.info.canonical


@pytest.mark.parametrize("arguments, part", [
    ({"on_error": "ignore"}, "on_error: 'ignore', expected raise or report"),
    ({"on_store_error": "x"}, "on_store_error: 'x', expected raise, report or done"),
    ({"device": "host:x"}, "device: 'host:x'"),
])
def test_choices_that_do_not_exist_are_refused(arguments, part):
    with pytest.raises(ValueError, match=part):
        KvTierOffloadingWorker(spec_like(), store="mem:", **arguments)


def test_a_device_that_does_not_exist_is_found_out_at_the_start():
    with pytest.raises(RuntimeError, match="cannot be used on device tpu"):
        KvTierOffloadingWorker(spec_like(), store="mem:", device="tpu:1")


def test_devices_are_named_as_torch_names_them():
    assert parse_device(None) == ("host", 0)
    assert parse_device("cpu") == ("host", 0)
    assert parse_device("cuda:3") == ("cuda", 3)


def test_the_worker_has_vllms_base_where_there_is_one():
    for name in generations.NAMES:
        made = generations.build(name)
        with generations.installed(made):
            cls = importlib.import_module("kvtier.vllm").KvTierOffloadingWorker
            assert made.worker_base is None or issubclass(cls, made.worker_base)
            assert not issubclass(cls, generations.OffloadingDispatcher)
            worker = cls(spec_like(blocks_per_chunk=F), store="mem:")
            memory = Memory()
            worker.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
            (result,) = finish(worker, 1).values() if made.worker_base else [None]
            assert result is None or type(result).__name__ == "TransferResult"
            worker.shutdown()
