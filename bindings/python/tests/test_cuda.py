# SPDX-License-Identifier: Apache-2.0
"""The package on a CUDA driver: the tests' own, tests/fake_cuda, whose device memory faults when
the CPU touches it. Once it is loaded here, the library finds it under its name, libcuda.so.1."""
import ctypes
import importlib.machinery
import os
import sys
import threading
from types import SimpleNamespace

import pytest

import kvtier
from conftest import BUILD, TIMEOUT_MS

numpy = pytest.importorskip("numpy")

DRIVER = BUILD / "tests" / "fake_cuda" / "libcuda.so.1"
if not DRIVER.exists():
    pytest.skip("%s is not built: the CUDA device was left out of the build" % DRIVER,
                allow_module_level=True)

BYTES = 4096
BLOCKS = 4


class Driver:
    """Calls of the driver by name; each must succeed."""

    def __init__(self):
        self.library = ctypes.CDLL(str(DRIVER))
        self.cuInit(0)
        context = ctypes.c_void_p()
        self.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.cuCtxSetCurrent(context)

    def __getattr__(self, name):
        address = ctypes.c_void_p()
        assert self.library.cuGetProcAddress_v2(name.encode(), ctypes.byref(address), 12000,
                                                ctypes.c_uint64(0), None) == 0, name
        function = ctypes.CFUNCTYPE(ctypes.c_int)(address.value)
        function.argtypes = None

        def call(*arguments):
            result = function(*arguments)
            assert result == 0, "%s: %d" % (name, result)

        setattr(self, name, call)
        return call

    def make(self, name, *arguments):
        """What a call writes to its first argument."""
        value = ctypes.c_void_p()
        getattr(self, name)(ctypes.byref(value), *arguments)
        return value


@pytest.fixture(scope="module")
def driver():
    return Driver()


@pytest.fixture
def memory(driver):
    """Device memory of some blocks."""
    address = driver.make("cuMemAlloc", ctypes.c_size_t(2 * BLOCKS * BYTES))
    yield address.value
    driver.cuMemFree(address)


@pytest.fixture
def device(driver):
    with kvtier.Device("cuda") as opened:
        yield opened


@pytest.fixture
def cuda_worker(mem_store, device):
    with kvtier.Worker(mem_store, device, lanes=2, staging_bytes=32 << 20) as opened:
        yield opened


def push(driver, address, content):
    driver.cuMemcpyHtoD(ctypes.c_uint64(address), content, ctypes.c_size_t(len(content)))


def pull(driver, address, count):
    content = ctypes.create_string_buffer(count)
    driver.cuMemcpyDtoH(content, ctypes.c_uint64(address), ctypes.c_size_t(count))
    return content.raw


def transfer(address):
    ptrs = numpy.arange(BLOCKS, dtype=numpy.uint64) * BYTES + address
    return kvtier.Transfer(BLOCKS, [BLOCKS], [1], [0], ptrs,
                           numpy.full(BLOCKS, BYTES, dtype=numpy.uint64), [b"chunk"])


class Producer:
    """A stream that brings bytes into device memory once `go` is set."""

    def __init__(self, driver, address, content):
        self.driver = driver
        self.go = threading.Event()
        self.stream = driver.make("cuStreamCreateWithPriority", 1, 0)
        self.event = driver.make("cuEventCreate", 2)
        self.pinned = driver.make("cuMemHostAlloc", ctypes.c_size_t(len(content)), 0)
        ctypes.memmove(self.pinned.value, content, len(content))
        self._wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.go.wait())
        driver.cuLaunchHostFunc(self.stream, self._wait, None)
        driver.cuMemcpyHtoDAsync(ctypes.c_uint64(address), self.pinned,
                                 ctypes.c_size_t(len(content)), self.stream)
        driver.cuEventRecord(self.event, self.stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go.set()
        self.driver.cuStreamSynchronize(self.stream)
        self.driver.cuMemFreeHost(self.pinned)
        self.driver.cuEventDestroy(self.event)
        self.driver.cuStreamDestroy(self.stream)


def test_a_probe_names_the_driver_and_the_device(driver):
    lines = {line.name: line.value for line in kvtier.probe_device("cuda")}
    assert lines["device"] == "cuda"
    assert any("13.0" in value for value in lines.values()), lines
    with pytest.raises(kvtier.InvalidArgumentError, match="cuda: ordinal: 7, expected 0 to 1"):
        kvtier.probe_device("cuda", 7)


def test_device_memory_is_stored_and_loaded(driver, memory, cuda_worker, helpers):
    content = os.urandom(BLOCKS * BYTES)
    push(driver, memory, content + bytes(BLOCKS * BYTES))
    cuda_worker.submit_store(1, transfer(memory))
    assert helpers.take_one(cuda_worker).bytes == len(content)
    cuda_worker.submit_load(2, transfer(memory + BLOCKS * BYTES))
    assert helpers.take_one(cuda_worker).ok
    assert pull(driver, memory, 2 * BLOCKS * BYTES) == content + content


@pytest.mark.parametrize("kind", ["event", "stream"])
def test_a_store_waits_for_what_brings_the_bytes(driver, memory, cuda_worker, helpers, kind):
    content = os.urandom(BLOCKS * BYTES)
    push(driver, memory, bytes(2 * BLOCKS * BYTES))
    with Producer(driver, memory, content) as producer:
        ready = (kvtier.Ready.event(producer.event.value) if kind == "event"
                 else kvtier.Ready.stream(producer.stream.value))
        cuda_worker.submit_store(1, transfer(memory), ready=ready)
        assert not cuda_worker.wait([1], 20)
        producer.go.set()
        assert helpers.take_one(cuda_worker).ok
    cuda_worker.submit_load(2, transfer(memory + BLOCKS * BYTES))
    assert helpers.take_one(cuda_worker).ok
    assert pull(driver, memory, 2 * BLOCKS * BYTES) == content + content


def test_a_stream_completion_is_done_when_the_stream_is(driver, memory, device, mem_store,
                                                        helpers):
    content = os.urandom(BLOCKS * BYTES)
    with Producer(driver, memory, content) as producer:
        with kvtier.StreamCompletion(device, producer.stream.value) as completion:
            assert not completion.done()
            assert not completion.wait(5)
            with pytest.raises(kvtier.BusyError):
                device.close()
            with kvtier.Worker(mem_store, device, staging_bytes=32 << 20) as worker:
                worker.submit_store(1, transfer(memory), ready=kvtier.Ready.event(
                    completion.event, keep=completion))
                assert not worker.wait([1], 20)
                producer.go.set()
                assert completion.wait(TIMEOUT_MS) and completion.done()
                assert helpers.take_one(worker).ok
        assert completion.closed
        with pytest.raises(kvtier.ClosedError):
            completion.done()
        completion.close()


def test_a_completion_that_nobody_closes_gives_the_device_back(driver):
    device = kvtier.Device("cuda")
    kvtier.StreamCompletion(device, 0)  # collected at once
    device.close()


def test_memory_that_is_not_the_device_s_is_named(driver, memory, cuda_worker, helpers):
    beyond = transfer(memory + (2 * BLOCKS - 1) * BYTES)  # its last blocks lie behind the end
    cuda_worker.submit_store(1, beyond)
    result = helpers.take_one(cuda_worker)
    assert not result.ok
    assert "0x%x" % (memory + (2 * BLOCKS) * BYTES) in result.detail, result.detail
    plain = bytearray(os.urandom(BLOCKS * BYTES))
    address = ctypes.addressof(ctypes.c_char.from_buffer(plain))
    cuda_worker.submit_store(2, transfer(address))
    result = helpers.take_one(cuda_worker)
    assert not result.ok
    assert "0x%x" % address in result.detail and "registered" in result.detail, result.detail


def test_pinned_host_memory_is_taken_too(driver, memory, cuda_worker, helpers):
    content = os.urandom(BLOCKS * BYTES)
    pinned = driver.make("cuMemHostAlloc", ctypes.c_size_t(len(content)), 0)
    ctypes.memmove(pinned.value, content, len(content))
    cuda_worker.submit_store(1, transfer(pinned.value))
    assert helpers.take_one(cuda_worker).ok
    cuda_worker.submit_load(2, transfer(memory))
    assert helpers.take_one(cuda_worker).ok
    assert pull(driver, memory, len(content)) == content
    driver.cuMemFreeHost(pinned)


def test_staging_memory_of_the_callers_is_pinned_while_the_worker_lives(driver, memory, device,
                                                                       mem_store, helpers):
    area = numpy.zeros((32 << 20) + 4096, dtype=numpy.uint8)
    start = -area.ctypes.data % 4096
    content = os.urandom(BLOCKS * BYTES)
    push(driver, memory, content)
    for _ in range(2):
        with kvtier.Worker(mem_store, device, staging_memory=area[start:]) as worker:
            worker.submit_store(1, transfer(memory))
            assert helpers.take_one(worker).ok
            worker.submit_load(2, transfer(memory + BLOCKS * BYTES))
            assert helpers.take_one(worker).ok
    assert pull(driver, memory + BLOCKS * BYTES, BLOCKS * BYTES) == content


def test_the_worker_for_vllm_takes_device_memory(driver, memory, monkeypatch):
    """Its events are torch's; here a stand-in records them on the driver."""
    class Event:
        def __init__(self):
            self.made = driver.make("cuEventCreate", 2)
            self.cuda_event = self.made.value

        def record(self):
            driver.cuEventRecord(self.made, None)

    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event, current_device=lambda: 0),
                            __spec__=importlib.machinery.ModuleSpec("torch", None))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.syspath_prepend(os.path.join(os.path.dirname(__file__), "vllm_tests"))
    import generations
    from kvtier.simulate import spec_like
    from kvtier.vllm import KvTierOffloadingWorker

    content = os.urandom(BLOCKS * BYTES)
    push(driver, memory, content + bytes(BLOCKS * BYTES))
    worker = KvTierOffloadingWorker(spec_like(), store="mem:", device="cuda:0",
                                    staging_bytes=32 << 20)
    try:
        chunk = worker._blocks_per_chunk
        assert BLOCKS % chunk == 0
        keys = [b"key-%d" % i for i in range(BLOCKS // chunk)]

        def pointers(base):
            return generations.DevicePointers(
                ptrs=numpy.arange(BLOCKS, dtype=numpy.uint64) * BYTES + base,
                sizes=numpy.full(BLOCKS, BYTES, dtype=numpy.uint64),
                group_block_counts=numpy.array([BLOCKS]), group_data_ref_counts=[1],
                block_indices=numpy.array([0]))

        spec = SimpleNamespace(keys=keys)
        assert worker.submit_store(1, pointers(memory), spec)
        worker.wait({1})
        assert worker.submit_load(2, spec, pointers(memory + BLOCKS * BYTES))
        worker.wait({2})
        assert sorted(r.job_id for r in worker.get_finished()) == [1, 2]
    finally:
        worker.shutdown()
    assert pull(driver, memory + BLOCKS * BYTES, BLOCKS * BYTES) == content
