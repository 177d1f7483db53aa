# SPDX-License-Identifier: Apache-2.0
"""The files of vLLM's FSOffloadingSpec, moved by this library."""
import importlib
import os
import threading
from types import SimpleNamespace

import numpy
import pytest

import generations
import kvtier
from scene import TIMEOUT_S, Gate, keys_of
from test_worker import F, PAGE, Memory, spec_of


class Event:
    """What stands for torch.Event: whoever may wait for it is recorded."""

    instances = []

    def __init__(self):
        self.happened = threading.Event()
        self.happened.set()
        self.waiters = []
        Event.instances.append(self)

    def query(self):
        return self.happened.is_set()

    def synchronize(self):
        self.waiters.append(threading.current_thread())
        self.happened.wait(TIMEOUT_S)


class Later(Event):
    """Happens when the test says so."""

    def __init__(self):
        super().__init__()
        self.happened.clear()


@pytest.fixture
def generation():
    Event.instances = []
    made = generations.build(generations.NAMES[-1], lambda: Event())
    with generations.installed(made):
        yield made


def open_backend(root, **extra):
    """As FSWorkerFactory: by class and module, with keywords only."""
    module = importlib.import_module("kvtier.vllm")
    mapper = generations.FileMapper(str(root), {}, 0)
    return module.KvTierFSBackend(
        file_mapper=mapper, blocks_per_file=F, device="host", kv_caches=Memory().caches,
        root_dir=str(root), extra_config={"fs_backend": "KvTierFSBackend", "kvtier": extra},
    )


def finish(backend, *job_ids):
    for completions, _ in backend._running.values():
        assert all(completion.wait(TIMEOUT_S * 1000) for completion in completions)
    results = {result.job_id: result for result in backend.get_finished()}
    assert sorted(results) == sorted(job_ids)
    return results


def test_files_are_written_and_read_as_vllm_lays_them_out(generation, tmp_path):
    backend, memory, keys = open_backend(tmp_path), Memory(), keys_of(2)
    before = memory.pages(range(8), [0, 1])
    assert backend.submit_store(1, memory.pointers(range(8)), spec_of(keys))
    assert finish(backend, 1)[1].success
    path = backend._file_mapper.get_file_name(keys[1])
    raw = numpy.fromfile(path, dtype=numpy.uint8)
    expected = numpy.concatenate(before[4:8] + before[12:16])
    assert (raw == expected).all()
    assert backend.submit_load(2, spec_of(keys), memory.pointers(range(12, 20)))
    assert finish(backend, 2)[2].success
    after = memory.pages(range(12, 20), [0, 1])
    assert all((a == b).all() for a, b in zip(after, before))
    assert backend.get_finished() == []
    backend.shutdown()


def test_a_file_that_is_not_there_fails_its_job_alone(generation, tmp_path):
    backend, memory = open_backend(tmp_path), Memory()
    backend.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    backend.submit_load(2, spec_of(keys_of(1, "absent")), memory.pointers(range(4, 8)))
    results = finish(backend, 1, 2)
    assert results[1].success and not results[2].success
    backend.submit_load(3, spec_of(keys_of(1, "absent")), memory.pointers(range(4, 8)))
    with pytest.raises(Exception, match="absent|no such|ENOENT|No such"):
        backend.wait({3})
    finish(backend, 3)
    backend.shutdown()


def test_the_event_is_waited_for_and_never_on_the_calling_thread(tmp_path):
    Event.instances = []
    made = generations.build(generations.NAMES[-1], lambda: Later())
    with generations.installed(made):
        backend, memory, keys = open_backend(tmp_path), Memory(), keys_of(1)
        backend.submit_store(1, memory.pointers(range(4)), spec_of(keys))
        path = backend._file_mapper.get_file_name(keys[0])
        assert backend.get_finished() == []
        # What a kernel writes before the event is what has to be in the file.
        memory.layers[0][:4] = 7
        assert not os.path.exists(path)
        (event,) = Event.instances
        event.happened.set()
        assert finish(backend, 1)[1].success
        assert (numpy.fromfile(path, dtype=numpy.uint8)[: F * PAGE] == 7).all()
        assert threading.current_thread() not in event.waiters
        backend.shutdown()


@pytest.mark.parametrize("member", ["cuda_event", "event_id"])
def test_on_a_gpu_the_library_waits_for_the_event_itself(generation, tmp_path, member):
    """torch.Event has event_id, torch.cuda.Event has cuda_event."""
    backend = open_backend(tmp_path)
    backend._device_name = "cuda"
    event = SimpleNamespace(query=lambda: False, **{member: 4711})
    ready, reader = backend._ready(event)
    assert (ready.kind, ready.handle, reader) == (kvtier.Ready.event(4711).kind, 4711, None)
    assert backend._ready(SimpleNamespace(**{member: 0})) == (None, None)  # never recorded
    with pytest.raises(TypeError, match="ready event of type Later has neither"):
        backend._ready(Later())
    backend.shutdown()


def test_descriptors_of_events_are_given_back(tmp_path):
    Event.instances = []
    made = generations.build(generations.NAMES[-1], lambda: Later())
    with generations.installed(made):
        backend, memory = open_backend(tmp_path), Memory()
        for job_id in range(4):
            keys = keys_of(1, "job%d-" % job_id)
            backend.submit_store(job_id, memory.pointers(range(4)), spec_of(keys))
            Event.instances[-1].happened.set()
            finish(backend, job_id)
        assert len(backend._watcher._used) == 1
        backend.shutdown()
        assert backend._watcher._used == []


def test_a_store_that_the_queue_refuses_is_done_but_not_stored(generation, tmp_path):
    gate = Gate(tmp_path)
    gate.open()
    backend = open_backend(tmp_path / "root", queue_chunks=1, lanes=1, depth=1)
    module = importlib.import_module("kvtier.vllm.fs_backend")

    def refuse(*_arguments, **_options):
        raise module.QueueFullError("the queue is full", -7)

    backend._worker.submit_ops = refuse
    memory = Memory()
    backend.submit_store(1, memory.pointers(range(4)), spec_of(keys_of(1)))
    assert [r.success for r in backend.get_finished()] == [True]
    with pytest.raises(module.QueueFullError):
        backend.submit_load(2, spec_of(keys_of(1)), memory.pointers(range(4)))
    backend.shutdown()


def test_a_file_outside_the_root_is_refused(generation, tmp_path):
    backend = open_backend(tmp_path / "root")
    with pytest.raises(ValueError, match="outside root_dir"):
        backend.submit_io([(str(tmp_path / "other"), [])], True, None)
    backend.shutdown()


def test_operations_may_be_plain_tuples_and_there_may_be_no_event(generation, tmp_path):
    backend, memory = open_backend(tmp_path), Memory()
    page = memory.layers[0][0]
    path = str(tmp_path / "abc" / "d.bin")
    (completion,) = backend.submit_io([(path, [(page.ctypes.data, PAGE, 0)])], True, None)
    completion.result(TIMEOUT_S)
    assert completion.done()
    assert (numpy.fromfile(path, dtype=numpy.uint8) == page[:PAGE]).all()
    backend.shutdown()


def test_a_root_that_cannot_be_used_is_found_out_at_the_start(generation, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(RuntimeError, match="cannot be used on device host"):
        open_backend(path)
    with pytest.raises(ValueError, match="root_dir: missing"):
        importlib.import_module("kvtier.vllm").KvTierFSBackend(
            file_mapper=None, blocks_per_file=1, device=None, kv_caches=None, root_dir="",
            extra_config={})


def test_without_vllms_base_class_it_says_so():
    with generations.installed(generations.build("2026-08")):
        module = importlib.import_module("kvtier.vllm")
        with pytest.raises(ImportError, match="vLLM 2026-08 has no .*FSOffloadingWorker"):
            module.KvTierFSBackend(file_mapper=None, blocks_per_file=1, root_dir="/x")
