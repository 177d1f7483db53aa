# SPDX-License-Identifier: Apache-2.0
"""Raw files: what vLLM's file workers move, and its stand-alone calls."""
import ctypes
import os

import pytest

import kvtier
from conftest import Place


@pytest.fixture
def file_worker(tmp_path):
    with Place("file://%s" % tmp_path).open() as store:
        with kvtier.Worker(store, lanes=1) as worker:
            yield worker


def address_of(buffer):
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def test_files_are_written_and_read_by_ranges(file_worker, tmp_path):
    memory = bytearray(os.urandom(4096))
    at = address_of(memory)
    files = [kvtier.FileOps("a/one.bin", [(at, 100, 0), (at + 100, 50, 200)]),
             ("two.bin", [(at + 1000, 1000, 0)])]
    completions = file_worker.submit_ops(files, True, keep=memory)
    assert [c.path for c in completions] == ["a/one.bin", "two.bin"]
    for completion in completions:
        completion.result(60)
        assert completion.done() and completion.exception() is None
    assert (tmp_path / "a/one.bin").read_bytes() == bytes(
        memory[:100]) + bytes(100) + memory[100:150]
    assert (tmp_path / "two.bin").read_bytes() == memory[1000:2000]
    copy = bytearray(2000)
    (load,) = file_worker.submit_ops([("two.bin", [(address_of(copy), 500, 500)])], False,
                                     keep=copy)
    assert load.wait() is True
    assert copy[:500] == memory[1500:2000] and copy[500:] == bytes(1500)
    assert file_worker.poll() == []
    assert file_worker.stats().count(kvtier.JobKind.OPS, *kvtier.Status) == 3


def test_a_file_that_is_not_there_is_the_completions_failure(file_worker):
    memory = bytearray(8)
    (load,) = file_worker.submit_ops([("no.bin", [(address_of(memory), 8, 0)])], False)
    with pytest.raises(kvtier.MissError, match="no.bin"):
        load.result()
    assert isinstance(load.exception(), kvtier.MissError)


def test_a_file_that_is_too_short_is_a_failure(file_worker, tmp_path):
    (tmp_path / "short.bin").write_bytes(b"1234")
    memory = bytearray(8)
    (load,) = file_worker.submit_ops([("short.bin", [(address_of(memory), 8, 0)])], False)
    with pytest.raises(kvtier.ConflictError) as caught:
        load.result()
    assert caught.value.code is kvtier.Code.ERANGE


def test_a_completion_that_is_waited_for_in_vain(file_worker):
    gate, memory = kvtier.Event(), bytearray(8)
    (store,) = file_worker.submit_ops([("x.bin", [(address_of(memory), 8, 0)])], True,
                                      ready=kvtier.Ready.event(gate))
    assert not store.done() and store.wait(0) is False
    with pytest.raises(kvtier.BusyError):
        store.exception()
    with pytest.raises(TimeoutError, match="x.bin"):
        store.result(0.001)
    gate.signal()
    store.result()


def test_completions_may_go_before_their_files_are_done(file_worker, tmp_path):
    gate, memory = kvtier.Event(), bytearray(b"content!")
    file_worker.submit_ops([("x.bin", [(address_of(memory), 8, 0)])], True,
                           ready=kvtier.Ready.event(gate), keep=memory)
    gate.signal()
    assert file_worker.drain()
    assert (tmp_path / "x.bin").read_bytes() == b"content!"


@pytest.mark.parametrize("files", [
    [("../x", [(8, 1, 0)])], [("/x", [(8, 1, 0)])], [("a\0b", [(8, 1, 0)])],
    [("x", [(8, 1)])], [("x", [(8, -1, 0)])], [("x", [("a", 1, 0)])],
    [("x", [(8, 1, 0)]), ("x", [(8, 1, 0)])],
])
def test_files_that_cannot_be(file_worker, files):
    with pytest.raises(kvtier.InvalidArgumentError):
        file_worker.submit_ops(files, True)


def test_stores_without_files_say_so(mem_worker, s3_place):
    with s3_place.open() as store, kvtier.Worker(store, lanes=1) as worker:
        with pytest.raises(kvtier.UnsupportedError):
            worker.submit_ops([("x", [(8, 1, 0)])], True)
    assert file_count(mem_worker) == 0


def file_count(worker):
    return worker.stats().count(kvtier.JobKind.OPS, *kvtier.Status)


def test_no_files_are_no_work(file_worker):
    assert file_worker.submit_ops([], True) == []


def test_blocks_of_a_buffer_and_plain_files(tmp_path):
    memory = bytearray(os.urandom(3 * 512))
    paths = [tmp_path / "a" / ("%d.bin" % i) for i in range(3)]
    assert kvtier.batch_store_blocks(paths, memory, [0, 512, 1024], 512) == 3
    assert [p.read_bytes() for p in paths] == [memory[i:i + 512] for i in (0, 512, 1024)]
    copy = bytearray(3 * 512)
    assert kvtier.batch_load_blocks([str(p) for p in paths], copy, [1024, 512, 0], 512,
                                    o_direct=True) == 3
    assert copy == memory[1024:] + memory[512:1024] + memory[:512]
    copy.append(0)  # nothing exports it any more
    paths[1].unlink()
    with pytest.raises(kvtier.MissError) as caught:
        kvtier.batch_load_blocks(paths, copy, [0, 512, 1024], 512)
    assert (caught.value.succeeded, caught.value.error_index) == (1, 1)
    for arguments in ((paths, copy, [0], 512), (paths[:1], copy, [2000], 512),
                      (paths[:1], bytes(512), [0], 512)):
        with pytest.raises(kvtier.InvalidArgumentError):
            kvtier.batch_load_blocks(*arguments)


def test_whether_a_folder_takes_o_direct(tmp_path):
    assert kvtier.probe_o_direct(tmp_path) in (True, False)
    with pytest.raises(kvtier.Error, match="nosuch"):
        kvtier.probe_o_direct(tmp_path / "nosuch")
