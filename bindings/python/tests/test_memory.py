# SPDX-License-Identifier: Apache-2.0
"""Rows of every kind of buffer, and when a buffer is free again."""
import ctypes
import mmap
from array import array
from multiprocessing import shared_memory

import pytest

import kvtier
from kvtier.memory import words

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = pytest.mark.skipif(numpy is None, reason="no numpy")
ROW = 512


@pytest.fixture(params=["bytearray", "memoryview", "mmap", "array", "shared memory",
                        pytest.param("numpy", marks=needs_numpy)])
def buffer(request):
    if request.param == "bytearray":
        yield bytearray(4 * ROW)
    elif request.param == "memoryview":
        yield memoryview(bytearray(4 * ROW))
    elif request.param == "mmap":
        with mmap.mmap(-1, 4 * ROW) as memory:
            yield memory
    elif request.param == "numpy":
        yield numpy.zeros((4, ROW), dtype=numpy.int8)
    elif request.param == "array":
        yield array("Q", bytes(4 * ROW))
    else:
        memory = shared_memory.SharedMemory(create=True, size=4 * ROW)
        try:
            yield memory.buf[:4 * ROW]
        finally:
            memory.close()
            memory.unlink()


def flat(buffer):
    return memoryview(buffer).cast("B") if memoryview(buffer).format != "B" else \
        memoryview(buffer)


def test_rows_of_any_writable_buffer_come_back(mem_worker, buffer, helpers):
    content = bytes(range(256)) * (4 * ROW // 256)
    with kvtier.Rows(buffer, ROW) as rows:
        assert (rows.row_count, rows.row_bytes, rows.nbytes) == (4, ROW, 4 * ROW)
        with flat(buffer) as view:
            view[:] = content
        mem_worker.submit_store_rows(1, [b"a", b"b"], rows, [2, 0])
        assert helpers.take_one(mem_worker).ok
        with flat(buffer) as view:
            view[:] = bytes(4 * ROW)
        mem_worker.submit_load_rows(2, [b"b", b"a"], rows, [1, 3])
        result = helpers.take_one(mem_worker)
        assert result.ok and result.bytes == 2 * ROW
        with flat(buffer) as view:
            assert view[:ROW] == bytes(ROW) == view[2 * ROW:3 * ROW]
            assert view[ROW:2 * ROW] == content[:ROW]
            assert view[3 * ROW:] == content[2 * ROW:3 * ROW]
    if isinstance(buffer, memoryview):
        buffer.release()  # raises while anything exports it


def test_a_buffer_of_two_dimensions_has_its_row_length():
    view = memoryview(bytearray(6 * 64)).cast("b", (6, 64))
    rows = kvtier.Rows(view)
    assert (rows.row_count, rows.row_bytes) == (6, 64)
    rows.close()
    view.release()
    with pytest.raises(kvtier.InvalidArgumentError, match="row_bytes"):
        kvtier.Rows(bytearray(64))


@pytest.mark.parametrize("buffer,row_bytes,said", [
    (b"\0" * 64, 64, "bytes is read-only"),
    (memoryview(b"\0" * 64), 64, "memoryview is read-only"),
    (memoryview(bytearray(64))[::2], 8, "not contiguous"),
    (bytearray(64), 0, "row_bytes is 0"),
    (bytearray(64), 65, "row_bytes is 65"),
    (bytearray(0), 1, "row_bytes is 1"),
    ([1, 2], 1, "list, expected a writable buffer"),
])
def test_what_cannot_be_rows_is_refused(buffer, row_bytes, said):
    with pytest.raises(kvtier.InvalidArgumentError, match=said):
        kvtier.Rows(buffer, row_bytes)


def test_held_rows_keep_a_bytearray_from_being_resized_until_they_are_closed():
    buffer = bytearray(64)
    rows = kvtier.Rows(buffer, 64)
    with pytest.raises(BufferError):
        buffer.append(0)
    rows.close()
    buffer.append(0)
    assert rows.closed
    rows.close()


def test_held_rows_keep_a_map_until_they_are_closed():
    memory = mmap.mmap(-1, 4096)
    rows = kvtier.Rows(memory, 4096)
    with pytest.raises(BufferError):
        memory.close()
    rows.close()
    memory.close()


def test_rows_that_are_not_held_export_nothing():
    buffer = bytearray(64)
    rows = kvtier.Rows(buffer, 64, hold=False)
    buffer.append(0)
    rows.close()
    view = memoryview(bytearray(64))
    rows = kvtier.Rows(view, 64, hold=False)
    view.release()
    rows.close()


def test_rows_are_not_closed_while_a_job_uses_them(mem_worker, helpers):
    buffer = bytearray(64)
    gate = kvtier.Event()
    rows = kvtier.Rows(buffer, 64)
    mem_worker.submit_store_rows(1, [b"key"], rows, [0], ready=kvtier.Ready.event(gate))
    with pytest.raises(kvtier.BusyError, match="1 jobs"):
        rows.close()
    gate.signal()
    assert helpers.take_one(mem_worker).ok
    rows.close()
    with pytest.raises(kvtier.ClosedError):
        mem_worker.submit_store_rows(2, [b"key"], rows, [0])


def test_closing_the_worker_frees_the_rows_of_its_jobs(mem_store):
    buffer = bytearray(64)
    gate = kvtier.Event()
    rows = kvtier.Rows(buffer, 64)
    worker = kvtier.Worker(mem_store)
    worker.submit_store_rows(1, [b"key"], rows, [0], ready=kvtier.Ready.event(gate))
    worker.close()
    rows.close()
    buffer.append(0)


def test_a_refused_job_leaves_the_rows_free(mem_worker):
    rows = kvtier.Rows(bytearray(64), 64)
    with pytest.raises(kvtier.InvalidArgumentError, match="row_indices"):
        mem_worker.submit_store_rows(1, [b"key"], rows, [1])
    rows.close()


@needs_numpy
def test_numpy_arrays_that_cannot_be_rows():
    with pytest.raises(kvtier.InvalidArgumentError, match="ndarray is read-only"):
        kvtier.Rows(numpy.frombuffer(b"\0" * 64, dtype=numpy.int8), 64)
    with pytest.raises(kvtier.InvalidArgumentError, match="not contiguous"):
        kvtier.Rows(numpy.zeros((8, 8))[:, ::2], 8)


def as_words(numbers):
    address, count, kept = words(numbers, "numbers", True)
    found = ctypes.string_at(address, 8 * count)
    del kept
    return list(array("q", found))


@pytest.mark.parametrize("numbers", [
    array("Q", [5, 6]), array("l", [5, 6]), array("H", [5, 6]), [5, 6], (5, 6), range(5, 7),
    memoryview(array("q", [5, 6])), memoryview(array("i", [5, 6]))])
def test_numbers_of_any_kind_become_words(numbers):
    assert as_words(numbers) == [5, 6]


@needs_numpy
def test_numpy_arrays_of_any_kind_become_words():
    for numbers in (numpy.array([5, 6], dtype=numpy.uint64),
                    numpy.array([5, 6], dtype=numpy.int64),
                    numpy.array([5, 6], dtype=numpy.int32), numpy.arange(5, 12)[:2],
                    numpy.array([5, 0, 6, 0])[::2], numpy.array([5, 6], dtype=">i8")):
        assert as_words(numbers) == [5, 6]


def test_word_arrays_are_not_copied():
    plain = array("Q", [1, 2, 3])
    assert words(plain, "numbers", False)[0] == plain.buffer_info()[0]


@needs_numpy
def test_numpy_arrays_of_words_are_not_copied():
    numbers = numpy.arange(100, dtype=numpy.uint64)
    numbers.flags.writeable = False
    assert words(numbers, "numbers", False)[0] == numbers.__array_interface__["data"][0]


@pytest.mark.parametrize("numbers,signed", [
    ([1.5], True), ([2**63], True), ([-1], False), (["1"], True), (None, True)])
def test_what_is_no_list_of_words_is_refused(numbers, signed):
    with pytest.raises(kvtier.InvalidArgumentError, match="numbers: "):
        words(numbers, "numbers", signed)


@needs_numpy
def test_numpy_arrays_that_are_no_list_of_words():
    for numbers in (numpy.zeros((2, 2), dtype=numpy.int64), numpy.zeros(2)):
        with pytest.raises(kvtier.InvalidArgumentError, match="numbers: "):
            words(numbers, "numbers", True)


def test_devices(mem_store):
    with kvtier.Device("host") as device:
        worker = kvtier.Worker(mem_store, device)
        with pytest.raises(kvtier.BusyError):
            device.close()
        worker.close()
    assert device.closed
    with pytest.raises(kvtier.InvalidArgumentError, match="nosuch"):
        kvtier.Device("nosuch")
    with pytest.raises(kvtier.ClosedError):
        kvtier.Worker(mem_store, device)


def test_a_device_that_is_probed():
    heard = []
    lines = kvtier.probe_device("host", callback=heard.append)
    assert lines == heard and not any(line.error for line in lines)
    with pytest.raises(kvtier.InvalidArgumentError, match="nosuch"):
        kvtier.probe_device("nosuch")
    with pytest.raises(kvtier.InvalidArgumentError, match="ordinal: -1, expected 0 to"):
        kvtier.Device("host", -1)


def test_a_device_without_streams_has_no_completions_of_them():
    with kvtier.Device("host") as device:
        with pytest.raises(kvtier.InvalidArgumentError, match="host"):
            kvtier.StreamCompletion(device, 0)


def test_staging_memory_of_the_callers_is_exported_until_the_end(mem_store, helpers):
    staging = mmap.mmap(-1, 1 << 22)
    data = bytearray(bytes(range(256)) * (4 * ROW // 256))
    with kvtier.Rows(data, ROW) as rows:
        with kvtier.Worker(mem_store, lanes=1, part_bytes=1 << 16,
                           staging_memory=staging) as worker:
            assert 1 << 21 < worker.stats().staging_bytes <= 1 << 22
            worker.submit_store_rows(1, [b"a", b"b"], rows, [0, 1])
            assert helpers.take_one(worker).ok
            with pytest.raises(BufferError):
                staging.close()
    staging.close()


def test_staging_memory_that_does_not_fit(mem_store):
    staging = mmap.mmap(-1, 1 << 22)
    with pytest.raises(kvtier.InvalidArgumentError,
                       match="staging_bytes: 8388608, expected at most the 4194304 of"):
        kvtier.Worker(mem_store, staging_memory=staging, staging_bytes=1 << 23)
    with pytest.raises(kvtier.InvalidArgumentError,
                       match="staging_memory: the bytes is read-only"):
        kvtier.Worker(mem_store, staging_memory=b"x" * 4096)
    with pytest.raises(kvtier.InvalidArgumentError, match="staging_memory: .*multiple of 4096"):
        kvtier.Worker(mem_store, part_bytes=1 << 16, staging_memory=memoryview(staging)[16:])
    staging.close()
