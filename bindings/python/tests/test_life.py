# SPDX-License-Identifier: Apache-2.0
"""How workers and stores end: closed, collected, at the interpreter's exit, after a fork."""
import gc
import os
import signal
import threading
import warnings

import pytest

import kvtier
from conftest import Place

GATED = """
import sys, threading
import kvtier
place = sys.argv[1]
memory = bytearray(64)
gate = kvtier.Event()
store = kvtier.Store(place, namespace="test", mode="row")
worker = kvtier.Worker(store)
rows = kvtier.Rows(memory, 64)
worker.submit_store_rows(1, [b"waits"], rows, [0], ready=kvtier.Ready.event(gate))
for job in range(2, 200):
    worker.submit_store_rows(job, [b"%d" % job], rows, [0])
"""


@pytest.mark.parametrize("end", [
    "",
    "raise SystemExit(0)",
    "del worker, store",
    "del store, rows, memory, gate",
    "threading.Thread(target=worker.wait, args=([1],), daemon=True).start()",
    "threading.Thread(target=worker.poll, kwargs={'timeout_ms': -1}, daemon=True).start()",
    "import atexit; atexit.register(worker.close)",
    "worker.log = worker  # a cycle",
])
@pytest.mark.parametrize("uri", ["mem:", "file"])
def test_an_interpreter_ends_with_jobs_in_flight(program, tmp_path, uri, end):
    status, output, errors = program(GATED + end + "\n",
                                     "file://%s" % tmp_path if uri == "file" else uri)
    assert (status, output) == (0, "")
    # A thread of the program that is waiting may be told that its worker was closed.
    assert "Fatal" not in errors and "Segmentation" not in errors
    if "Thread" not in end and not end.startswith("del worker"):
        assert errors == ""


def test_an_exception_ends_an_interpreter_with_jobs_in_flight(program):
    status, _, errors = program(GATED + "raise LookupError('the end')\n", "mem:")
    assert status == 1 and errors.rstrip().endswith("LookupError: the end")


def test_an_interpreter_ends_although_a_request_never_does(program, tmp_path):
    gate = tmp_path / "gate"
    gate.write_text("")
    status, output, errors = program("""
import os, sys
import kvtier, kvtier._handle
kvtier._handle.exit_timeout_ms = 50
memory = bytearray(1 << 20)
store = kvtier.Store("fault+mem:", namespace="test", mode="row",
                     options={"stuck": "put:" + sys.argv[1]})
worker = kvtier.Worker(store, lanes=1)
rows = kvtier.Rows(memory, 1 << 20)
worker.submit_store_rows(1, [b"stuck"], rows, [0])
while worker.stats().requests_in_flight == 0:
    os.sched_yield()
del rows, memory
print("the end")
""", str(gate))
    assert (status, output) == (0, "the end\n"), errors
    assert "worker: left open" in errors and "still" in errors


def test_a_worker_that_is_collected_is_closed(mem_store):
    buffer = bytearray(64)
    gate = kvtier.Event()
    rows = kvtier.Rows(buffer, 64)
    worker = kvtier.Worker(mem_store)
    worker.submit_store_rows(1, [b"key"], rows, [0], ready=kvtier.Ready.event(gate))
    del worker
    gc.collect()
    rows.close()
    mem_store.close()


def test_a_worker_keeps_its_store(helpers):
    worker = kvtier.Worker(Place("mem:").open())
    gc.collect()
    with kvtier.Rows(bytearray(64), 64) as rows:
        worker.submit_store_rows(1, [b"key"], rows, [0])
        assert helpers.take_one(worker).ok
    store = worker.store
    worker.close()
    store.close()


def test_rows_and_events_live_as_long_as_their_jobs(mem_worker, helpers):
    buffer = bytearray(b"x" * 64)
    gate = kvtier.Event()
    signal_it = gate.signal
    mem_worker.submit_store_rows(1, [b"key"], kvtier.Rows(buffer, 64), [0],
                                 ready=kvtier.Ready.event(gate))
    del gate
    gc.collect()
    with pytest.raises(BufferError):
        buffer.append(0)
    signal_it()
    assert helpers.take_one(mem_worker).ok
    gc.collect()
    buffer.append(0)


def test_a_closed_worker_refuses_everything(mem_store):
    worker = kvtier.Worker(mem_store)
    with kvtier.Rows(bytearray(64), 64) as rows:
        worker.close()
        worker.close()
        assert worker.closed
        for call in (worker.poll, worker.drain, worker.fileno, worker.stats,
                     lambda: worker.poll(timeout_ms=-1),
                     lambda: worker.wait([1]), lambda: worker.wait_memory([1]),
                     lambda: worker.cancel(1), lambda: worker.set_geometry(0, 1, [64]),
                     lambda: worker.submit_lookup(1, [b"k"]),
                     lambda: worker.submit_store_rows(1, [b"k"], rows, [0]),
                     lambda: worker.submit_ops([], True),
                     lambda: worker.submit_load(1, kvtier.Transfer(1, [], [], [], [], [], []))):
            with pytest.raises(kvtier.ClosedError, match="worker: closed"):
                call()


def test_a_close_that_is_not_patient_may_be_repeated(tmp_path):
    gate = tmp_path / "gate"
    gate.write_text("")
    buffer = bytearray(64)
    with Place("fault+mem:", stuck="put:%s" % gate).open() as store:
        worker = kvtier.Worker(store, lanes=1)
        rows = kvtier.Rows(buffer, 64)
        worker.submit_store_rows(1, [b"key"], rows, [0])
        # Once it is with the backend, the close has to wait for it.
        while worker.stats().requests_in_flight == 0:
            os.sched_yield()
        with pytest.raises(kvtier.BusyError):
            worker.close(timeout_ms=0)
        assert not worker.closed
        with pytest.raises(kvtier.BusyError):
            rows.close()
        gate.unlink()
        worker.close()
        rows.close()


@pytest.mark.parametrize("wait", [
    lambda worker: worker.poll(timeout_ms=-1), lambda worker: worker.wait([1]),
    lambda worker: worker.wait_memory([1]), lambda worker: worker.drain(),
])
def test_closing_ends_what_other_threads_wait_for(mem_store, wait):
    gate, raised, waiting = kvtier.Event(), [], threading.Event()
    rows = kvtier.Rows(bytearray(64), 64)
    worker = kvtier.Worker(mem_store)
    worker.submit_store_rows(1, [b"key"], rows, [0], ready=kvtier.Ready.event(gate))

    def run():
        waiting.set()
        try:
            wait(worker)
        except kvtier.Error as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    waiting.wait()
    worker.close()
    thread.join()
    assert [type(error) for error in raised] == [kvtier.ClosedError]
    rows.close()


def test_waiting_can_be_interrupted(mem_worker):
    gate = kvtier.Event()
    rows = kvtier.Rows(bytearray(64), 64)
    mem_worker.submit_store_rows(1, [b"key"], rows, [0], ready=kvtier.Ready.event(gate))
    for call in (lambda: mem_worker.wait([1]), mem_worker.drain,
                 lambda: mem_worker.poll(timeout_ms=-1)):
        timer = threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            call()
        timer.join()
    gate.signal()
    assert mem_worker.wait([1])


def in_child(function):
    """What a forked child wrote, and how it ended."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the tests
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            os.write(writer, function().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    return text, os.waitpid(child, 0)[1]


def test_a_forked_child_is_told_so_and_may_close(place, helpers):
    with place.open() as store, kvtier.Rows(bytearray(64), 64) as rows:
        gate = kvtier.Event()
        worker = kvtier.Worker(store)
        worker.submit_store_rows(1, [b"key"], rows, [0], ready=kvtier.Ready.event(gate))

        def child():
            names = []
            for call in (worker.poll, worker.drain, worker.stats, worker.fileno, store.list,
                         lambda: worker.wait([1]), lambda: worker.cancel(1),
                         lambda: worker.submit_lookup(5, [b"k"]),
                         lambda: worker.submit_store_rows(5, [b"k"], rows, [0]),
                         lambda: kvtier.Worker(store)):
                try:
                    call()
                    names.append("nothing")
                except kvtier.Error as error:
                    names.append(type(error).__name__)
            worker.close()
            store.close()
            rows.close()
            with kvtier.Store("mem:", namespace="child") as mine, kvtier.Worker(mine) as own:
                with kvtier.Rows(bytearray(64), 64) as other:
                    own.submit_store_rows(1, [b"key"], other, [0])
                    names.append(str(helpers.take_one(own).ok))
            return " ".join(names)

        text, status = in_child(child)
        assert status == 0
        assert text.split() == ["ForkError"] * 10 + ["True"]
        gate.signal()
        assert helpers.take_one(worker).ok
        worker.close()


def test_a_child_that_exits_as_usual_harms_nobody(program):
    status, output, errors = program(GATED + """
import os
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
gate.signal()
assert worker.drain()
assert len(worker.poll(500)) == 199
print("done")
""", "mem:")
    assert (status, output) == (0, "done\n"), errors


def test_a_pool_of_forked_processes_ends(program):
    status, output, errors = program(GATED + """
import multiprocessing
def work(number):
    with kvtier.Store("mem:", namespace="child") as mine, kvtier.Worker(mine) as own:
        with kvtier.Rows(bytearray(64), 64) as other:
            own.submit_store_rows(1, [b"key"], other, [0])
            return number if own.poll(timeout_ms=60000)[0].ok else -1
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(work, range(4)) == list(range(4))
gate.signal()
assert worker.drain()
print("done")
""", "mem:")
    assert (status, output) == (0, "done\n"), errors


@pytest.mark.parametrize("library,said", [
    ("/nonexistent/libkvtier.so", "cannot load /nonexistent/libkvtier.so"),
    ("libc.so.6", "not libkvtier"),
])
def test_a_library_that_will_not_do_is_named(program, monkeypatch, library, said):
    monkeypatch.setenv("KVTIER_LIBRARY", library)
    status, _, errors = program("import kvtier")
    assert status == 1 and "ImportError" in errors and said in errors
