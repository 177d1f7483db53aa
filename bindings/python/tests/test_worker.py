# SPDX-License-Identifier: Apache-2.0
"""Jobs on each backend, their completions, and what is refused."""
import ctypes
import os
import select
import threading
from array import array

import pytest

import kvtier
from conftest import Place

try:
    import numpy
except ImportError:
    numpy = None

ROW = 4096


@pytest.fixture
def rows():
    with kvtier.Rows(bytearray(os.urandom(16 * ROW)), ROW) as opened:
        yield opened


def gated(worker, job_id, rows, key=b"gated"):
    """A store that waits for the event which is returned."""
    gate = kvtier.Event()
    worker.submit_store_rows(job_id, [key], rows, [0], ready=kvtier.Ready.event(gate))
    return gate


def test_rows_are_stored_looked_up_and_loaded(worker, helpers):
    content = os.urandom(8 * ROW)
    buffer = bytearray(content)
    keys = [bytes([i]) * 32 for i in range(8)]
    with kvtier.Rows(buffer, ROW) as rows:
        worker.submit_store_rows(1, keys, rows, array("q", range(8)))
        stored = helpers.take_one(worker)
        assert (stored.job_id, stored.kind) == (1, kvtier.JobKind.STORE)
        assert stored.ok and stored.exception() is None and stored.detail == ""
        assert stored.count(kvtier.Status.STORED) == 8 == stored.key_count
        assert stored.bytes == 8 * ROW and stored.attempts >= 8
        worker.submit_store_rows(1, keys[:2], rows, array("q", [0, 1]))
        assert helpers.take_one(worker).statuses == bytes([kvtier.Status.SKIPPED] * 2)

        worker.set_geometry(0, 1, [ROW])
        worker.submit_lookup(2, keys + [b"absent"], presence=True)
        found = helpers.take_one(worker)
        assert found.kind is kvtier.JobKind.LOOKUP
        assert found.count(kvtier.Status.HIT) == 8
        assert found.key_status(8) is kvtier.Status.MISS
        assert found.succeeded == b"\1" * 9
        assert found.blocks == [(0, 1)] * 8 + [(0, 0)]

        buffer[:] = bytes(8 * ROW)
        packed = kvtier.PackedKeys.pack(keys[::-1] + [b"absent"])
        worker.submit_load_rows(3, packed, rows, [0, 1, 2, 3, 4, 5, 6, 7, 0], expedited=True)
        loaded = helpers.take_one(worker)
        assert loaded.count(kvtier.Status.LOADED) == 8
        assert loaded.key_status(8) is kvtier.Status.MISSING is loaded.status
        assert isinstance(loaded.exception(), kvtier.MissError)
        for i in range(1, 8):
            assert buffer[i * ROW:(i + 1) * ROW] == content[(7 - i) * ROW:(8 - i) * ROW]
    assert "8 loaded, 1 missing" in repr(loaded)


def test_lookups_stop_at_the_first_miss(worker, rows, helpers):
    worker.submit_store_rows(1, [b"a", b"b", b"d"], rows, [0, 1, 2])
    assert helpers.take_one(worker).ok
    worker.set_geometry(0, 1, [ROW])
    worker.submit_lookup(2, [b"a", b"b", b"c", b"d"], prefix=True)
    result = helpers.take_one(worker)
    assert [result.key_status(i).name for i in range(4)] == ["HIT", "HIT", "MISS", "UNKNOWN"]
    assert result.ok


def test_lookups_see_stores_that_are_not_finished(worker, rows, helpers):
    worker.set_geometry(0, 1, [ROW])
    gate = gated(worker, 1, rows)
    worker.submit_lookup(2, [b"gated"])
    assert helpers.take_one(worker).key_status(0) is kvtier.Status.PENDING
    gate.signal()
    assert helpers.take_one(worker).ok


def test_groups_are_told_apart(worker, helpers):
    buffer = bytearray(b"\1" * 64 + b"\2" * 64)
    with kvtier.Rows(buffer, 64) as rows:
        worker.submit_store_rows(1, [b"key", b"key"], rows, [0, 1], groups=[0, 5])
        assert helpers.take_one(worker).ok
        buffer[:] = bytes(128)
        worker.submit_load_rows(2, [b"key"], rows, [0], groups=5)
        assert helpers.take_one(worker).ok
        assert buffer == b"\2" * 64 + bytes(64)
    worker.set_geometry(5, 1, [64])
    worker.submit_lookup(3, [b"key"], groups=5)
    assert helpers.take_one(worker).key_status(0) is kvtier.Status.HIT
    with pytest.raises(kvtier.InvalidArgumentError, match="geometry"):
        worker.submit_lookup(4, [b"key"], groups=1)


@pytest.mark.parametrize("kind", ["numpy", "array", "list"])
def test_device_pointers_are_gathered_and_scattered(worker, helpers, kind):
    if kind == "numpy" and numpy is None:
        pytest.skip("no numpy")
    layers, blocks, size = 3, 4, 256
    memory = bytearray(os.urandom(layers * blocks * size))
    copy = bytearray(len(memory))

    def address_of(buffer):
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))

    def transfer(buffer):
        base = address_of(buffer)
        ptrs = [base + i * size for i in range(layers * blocks)]
        sizes = [size] * len(ptrs)
        if kind == "numpy":
            ptrs = numpy.array(ptrs, dtype=numpy.uint64)
            sizes = numpy.full(len(ptrs), size, dtype=numpy.uint64)
        elif kind == "array":
            ptrs, sizes = array("Q", ptrs), array("Q", sizes)
        return kvtier.Transfer(2, [blocks], [layers], [0], ptrs, sizes, [b"one", b"two"],
                               keep=buffer)

    plans = kvtier.plan_transfer(transfer(memory), True)
    assert [(p.key_index, p.block_count, p.ref_count) for p in plans] == [(0, 2, 3), (1, 2, 3)]
    assert plans[0].copies[0] == (address_of(memory), size, 0)
    assert sum(copied for p in plans for _, copied, _ in p.copies) == len(memory)
    worker.submit_store(1, transfer(memory))
    assert helpers.take_one(worker).bytes == len(memory)
    worker.submit_load(2, transfer(copy), expedited=True)
    assert helpers.take_one(worker).ok
    assert copy == memory


def test_half_a_chunk_is_stored_and_found(worker, helpers):
    memory = bytearray(os.urandom(4 * 128))
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ptrs = [at, at + 128]
    worker.submit_store(1, kvtier.Transfer(4, [2], [1], [1], ptrs, [128, 128], [b"chunk"],
                                           keep=memory))
    assert helpers.take_one(worker).ok
    worker.set_geometry(0, 4, [128])
    worker.submit_lookup(2, [b"chunk"], presence=True)
    result = helpers.take_one(worker)
    assert result.key_status(0) is kvtier.Status.PARTIAL
    assert result.blocks == [(1, 3)]


@pytest.mark.parametrize("arguments,said", [
    ((2, [1], [1, 1], [0], [8], [8], [b"k"]), "group_data_ref_counts: 2"),
    ((2, [1], [1], [0, 0], [8], [8], [b"k"]), "block_indices: 2"),
    ((2, [1], [1], [0], [8], [8, 8], [b"k"]), "sizes: 2"),
    ((2, [1], [-1], [0], [8], [8], [b"k"]), "group_data_ref_counts"),
    ((-1, [1], [1], [0], [8], [8], [b"k"]), "blocks_per_chunk"),
    ((2, [1], [1], [0], [-8], [8], [b"k"]), "ptrs"),
])
def test_transfers_that_cannot_be(arguments, said):
    with pytest.raises(kvtier.InvalidArgumentError, match=said):
        kvtier.Transfer(*arguments)


def test_transfers_that_the_library_refuses(mem_worker):
    transfer = kvtier.Transfer(2, [1], [1], [0], [8], [8], [])
    for call in (lambda: mem_worker.submit_store(1, transfer),
                 lambda: kvtier.plan_transfer(transfer, True)):
        with pytest.raises(kvtier.InvalidArgumentError, match="key_count"):
            call()


def test_an_id_in_use_is_refused_and_free_again_after_its_completion(mem_worker, rows, helpers):
    gate = gated(mem_worker, 7, rows)
    with pytest.raises(kvtier.ConflictError) as caught:
        mem_worker.submit_load_rows(7, [b"k"], rows, [1])
    assert caught.value.code is kvtier.Code.EEXIST
    mem_worker.set_geometry(0, 1, [ROW])
    with pytest.raises(kvtier.ConflictError):
        mem_worker.submit_lookup(7, [b"k"])
    gate.signal()
    assert helpers.take_one(mem_worker).job_id == 7
    mem_worker.submit_lookup(7, [b"gated"])
    with pytest.raises(kvtier.ConflictError):
        mem_worker.submit_store_rows(7, [b"k"], rows, [1])
    assert helpers.take_one(mem_worker).ok
    rows.close()


@pytest.mark.parametrize("job_id", [-1, 2**64])
def test_ids_that_cannot_be(mem_worker, rows, job_id):
    for call in (lambda: mem_worker.submit_store_rows(job_id, [b"k"], rows, [0]),
                 lambda: mem_worker.submit_lookup(job_id, [b"k"]),
                 lambda: mem_worker.cancel(job_id), lambda: mem_worker.wait([job_id])):
        with pytest.raises(kvtier.InvalidArgumentError, match="job_id"):
            call()


@pytest.mark.parametrize("indices", [[0], [0, 1, 2], [0, -1], [0, 16], [0, 2**63]])
def test_row_numbers_that_cannot_be(mem_worker, rows, indices):
    with pytest.raises(kvtier.InvalidArgumentError, match="indices"):
        mem_worker.submit_store_rows(1, [b"a", b"b"], rows, indices)
    assert mem_worker.stats().jobs_live == 0


def test_a_full_queue_says_so_and_takes_jobs_again(mem_store, rows, helpers):
    with kvtier.Worker(mem_store, queue_chunks=1) as worker:
        gate = gated(worker, 1, rows)
        with pytest.raises(kvtier.QueueFullError) as caught:
            for job in range(2, 100):
                worker.submit_store_rows(job, [b"%d" % job], rows, [0],
                                         ready=kvtier.Ready.event(gate))
        assert caught.value.code is kvtier.Code.EAGAIN
        assert isinstance(caught.value, kvtier.ThrottledError)
        refused = job
        gate.signal()
        helpers.take(worker, refused - 1)
        worker.submit_store_rows(refused, [b"last"], rows, [0])
        assert helpers.take_one(worker).ok
        assert worker.stats().jobs_refused == 1


def test_jobs_without_keys_complete(mem_worker, rows, helpers):
    mem_worker.submit_store_rows(1, [], rows, [])
    mem_worker.submit_load_rows(2, [], rows, [])
    mem_worker.submit_lookup(3, [])
    results = helpers.take(mem_worker, 3)
    assert all(r.ok and r.statuses == b"" and r.key_count == 0 for r in results.values())


def test_waiting_for_jobs_and_for_their_memory(mem_worker, rows, helpers):
    gate = gated(mem_worker, 1, rows)
    for wait in (mem_worker.wait, mem_worker.wait_memory):
        assert wait([1], 0) is False
        assert wait([1, 99], 1) is False
        assert wait([99]) is True
        assert wait([]) is True
    assert mem_worker.drain(0) is False
    assert mem_worker.poll() == []
    assert mem_worker.poll(timeout_ms=1) == []
    gate.signal()
    assert mem_worker.wait([1]) is True
    assert mem_worker.wait_memory([1]) is True
    assert mem_worker.drain() is True
    assert mem_worker.poll()[0].ok


def test_memory_is_quiet_before_the_object_is_stored(tmp_path, rows, helpers):
    gate = tmp_path / "gate"
    gate.write_text("")
    with Place("fault+mem:", stuck="put:%s" % gate).open() as store:
        with kvtier.Worker(store, lanes=1) as worker:
            worker.submit_store_rows(1, [b"key"], rows, [0])
            assert worker.wait([1], 0) is False
            gate.unlink()
            assert worker.wait_memory([1]) is True
            assert helpers.take_one(worker).ok


def test_a_canceled_job_completes_as_canceled(mem_worker, rows, helpers):
    gate = gated(mem_worker, 1, rows)
    assert mem_worker.cancel(1) is True
    result = helpers.take_one(mem_worker)
    assert result.key_status(0) is kvtier.Status.CANCELED
    assert isinstance(result.exception(), kvtier.CanceledError)
    assert mem_worker.cancel(1) is False
    gate.signal()


def test_a_deadline_that_passes_is_the_keys_failure(mem_worker, rows, helpers):
    gate = kvtier.Event()
    mem_worker.submit_load_rows(1, [b"key"], rows, [0], timeout_ms=1,
                                ready=kvtier.Ready.event(gate))
    result = helpers.take_one(mem_worker)
    assert result.error == kvtier.Code.ETIMEDOUT
    assert isinstance(result.exception(), (kvtier.DeadlineError, TimeoutError))
    with pytest.raises(kvtier.InvalidArgumentError, match="timeout_ms"):
        mem_worker.submit_load_rows(2, [b"key"], rows, [0], timeout_ms=-1)


def test_a_job_waits_for_a_descriptor(mem_worker, rows, helpers):
    reader, writer = os.pipe()
    try:
        mem_worker.submit_store_rows(1, [b"key"], rows, [0], ready=kvtier.Ready.fd(reader))
        assert mem_worker.wait([1], 0) is False
        os.write(writer, b"x")
        assert helpers.take_one(mem_worker).ok
        assert os.read(reader, 1) == b"x"
    finally:
        os.close(reader)
        os.close(writer)


def test_the_descriptor_is_readable_while_completions_wait(mem_worker, rows, helpers):
    fd = mem_worker.fileno()
    assert fd == mem_worker.event_fd()
    assert select.select([mem_worker], [], [], 0)[0] == []
    mem_worker.submit_store_rows(1, [b"a"], rows, [0])
    mem_worker.submit_store_rows(2, [b"b"], rows, [1])
    assert mem_worker.drain()
    assert select.select([mem_worker], [], [], 60)[0] == [mem_worker]
    assert len(mem_worker.poll(1)) == 1
    assert select.select([mem_worker], [], [], 60)[0] == [mem_worker]
    assert len(mem_worker.poll(5)) == 1
    assert select.select([mem_worker], [], [], 0)[0] == []


def test_completions_come_in_batches(mem_worker, rows):
    for job in range(100):
        mem_worker.submit_store_rows(job, [b"%d" % job], rows, [job % 16])
    assert mem_worker.drain()
    taken = [mem_worker.poll(30) for _ in range(5)]
    assert [len(batch) for batch in taken] == [30, 30, 30, 10, 0]
    assert sorted(r.job_id for batch in taken for r in batch) == list(range(100))
    with pytest.raises(kvtier.InvalidArgumentError, match="max_results"):
        mem_worker.poll(0)


def test_statistics_count_what_was_done(mem_worker, rows, helpers):
    mem_worker.submit_store_rows(1, [b"a", b"b"], rows, [0, 1])
    helpers.take_one(mem_worker)
    mem_worker.submit_load_rows(2, [b"a", b"x"], rows, [0, 1])
    helpers.take_one(mem_worker)
    stats = mem_worker.stats()
    assert (stats.jobs_submitted, stats.jobs_completed, stats.jobs_live) == (2, 2, 0)
    assert stats.keys[kvtier.JobKind.STORE] == {kvtier.Status.STORED: 2}
    assert stats.keys[kvtier.JobKind.LOAD] == {kvtier.Status.LOADED: 1, kvtier.Status.MISSING: 1}
    assert stats.count(kvtier.JobKind.LOAD, kvtier.Status.LOADED, kvtier.Status.MISSING) == 2
    assert stats.bytes[kvtier.JobKind.STORE] == 2 * ROW
    assert stats.breaker is kvtier.Breaker.CLOSED
    assert stats.last_error == kvtier.Code.ENOENT and stats.last_error_detail
    assert stats.storage_ns.count >= 4
    assert 0 < stats.storage_ns.percentile_ns(0.5) <= stats.storage_ns.percentile_ns(1)
    plain = stats.as_dict()
    assert plain["keys"]["store"] == {"stored": 2} and plain["breaker"] == "closed"
    import json
    assert json.loads(json.dumps(plain)) == plain
    with pytest.raises(AttributeError):
        stats.nonsense


def test_options_reach_the_library(mem_store):
    with kvtier.Worker(mem_store, staging_bytes=48 << 20) as worker:
        assert 32 << 20 < worker.stats().staging_bytes <= 48 << 20
    with pytest.raises(kvtier.InvalidArgumentError, match="lanes"):
        kvtier.Worker(mem_store, lanes=65)
    with pytest.raises(kvtier.InvalidArgumentError, match="lanes: -1"):
        kvtier.Worker(mem_store, lanes=-1)
    with pytest.raises(TypeError, match="lane: unknown"):
        kvtier.Worker(mem_store, lane=1)


def test_each_lane_begins_with_the_callers_function(mem_store):
    lanes = []
    with kvtier.Worker(mem_store, lanes=3, thread_init=lanes.append):
        pass
    assert sorted(lanes) == [0, 1, 2]

    def fail(lane):
        raise LookupError("no device for lane %d" % lane)

    with pytest.raises(LookupError, match="no device"):
        kvtier.Worker(mem_store, thread_init=fail)
    mem_store.close()


def test_many_threads_submit_and_poll(store, helpers):
    threads, jobs, keys = 4, 20, 8
    failures, taken, lock = [], {}, threading.Lock()
    begin = threading.Barrier(threads)

    def run(number):
        try:
            with kvtier.Rows(bytearray([number]) * (keys * 64), 64) as rows:
                begin.wait()
                for job in range(jobs):
                    worker.submit_store_rows(
                        number * jobs + job,
                        [b"%d %d %d" % (number, job, k) for k in range(keys)], rows, range(keys))
                    with lock:
                        for result in worker.poll():
                            taken[result.job_id] = result
                assert worker.wait(range(number * jobs, (number + 1) * jobs))
                finished.wait()
                with lock:
                    for result in worker.poll(threads * jobs):
                        taken[result.job_id] = result
                finished.wait()
        except BaseException as error:
            failures.append(error)
            finished.abort()

    finished = threading.Barrier(threads)
    with kvtier.Worker(store) as worker:
        running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert failures == []
        assert sorted(taken) == list(range(threads * jobs))
        assert all(r.ok for r in taken.values())
    assert len(store.list()) == threads * jobs * keys


def test_jobs_of_very_many_keys(mem_worker, helpers):
    count = 5000
    with kvtier.Rows(bytearray(64), 64) as rows:
        keys = kvtier.PackedKeys.pack([b"%08d" % i for i in range(count)])
        mem_worker.submit_store_rows(1, keys, rows, array("q", bytes(8 * count)))
        assert helpers.take_one(mem_worker).count(kvtier.Status.STORED) == count
    mem_worker.set_geometry(0, 1, [64])
    mem_worker.submit_lookup(2, keys)
    assert helpers.take_one(mem_worker).count(kvtier.Status.HIT) == count
