# SPDX-License-Identifier: Apache-2.0
"""Small stand-ins for vLLM's interfaces, one for each generation of them.

vLLM itself cannot be installed where these tests run. A generation here is what its published
sources declare: where classes are, what fields they have, which methods are abstract, what the
factory passes. Nothing in here does more than that; the scheduler of kvtier.simulate drives the
tiers.
"""
import abc
import contextlib
import dataclasses
import enum
import importlib
import logging
import sys
import types
from typing import Any, Optional

from kvtier.simulate.scheduler import Interface

# Oldest first.
NAMES = ("v0.22", "2026-07", "2026-08", "2026-09")


class _Modules:
    """Modules of a package "vllm" that exists only in sys.modules."""

    def __init__(self, version):
        self.made = {}
        self.module("vllm").__version__ = version
        self.module("vllm.logger").init_logger = logging.getLogger

    def module(self, name):
        parent = name.rpartition(".")[0]
        if parent and parent not in self.made:
            self.module(parent)
        if name not in self.made:
            made = types.ModuleType(name)
            made.__file__ = "<stand-in %s>" % name
            made.__path__ = []
            self.made[name] = made
            if parent:
                setattr(self.made[parent], name.rpartition(".")[2], made)
        return self.made[name]

    def put(self, name, **attributes):
        vars(self.module(name)).update(attributes)


def _dataclass(name, fields, frozen=False):
    """`fields` are (name, default) or names of those that must be given."""
    described = [
        (field, Any) if isinstance(field, str) else
        (field[0], Any, dataclasses.field(default=field[1]))
        for field in fields
    ]
    return dataclasses.make_dataclass(name, described, frozen=frozen)


class LookupResult(enum.Enum):
    MISS = enum.auto()
    HIT = enum.auto()
    HIT_PENDING = enum.auto()
    RETRY = enum.auto()


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class Stats:
    """OffloadingConnectorStats."""

    def __init__(self):
        self.seen = []

    def increase_counter(self, name, value=1, labelvalues=()):
        self.seen.append(("counter", name, value, labelvalues))

    def set_gauge(self, name, value, labelvalues=()):
        self.seen.append(("gauge", name, value, labelvalues))

    def observe_histogram(self, name, value, labelvalues=()):
        self.seen.append(("histogram", name, value, labelvalues))


class FileMapper:
    """Fields only, as vLLM's mapper derives them."""

    def __init__(self, root_dir, fields, rank):
        self._root = root_dir
        self._fields = fields
        self.rank = rank

    @classmethod
    def from_offloading_spec(
        cls, root_dir, offloading_spec, blocks_per_file=1, parallel_agnostic=False
    ):
        config = offloading_spec.config
        agnostic = parallel_agnostic and config.parallel.is_parallelism_agnostic
        sizes = ("tp_size", "pp_size", "pcp_size", "dcp_size")
        fields = {name: 1 if agnostic else getattr(config.parallel, name) for name in sizes}
        fields.update(
            model_name=config.model.name,
            tokens_per_hash=config.cache.tokens_per_hash,
            blocks_per_file=blocks_per_file,
            dtype=str(config.model.dtype),
            kv_cache_groups=[
                {"tokens_per_block": g.tokens_per_block, "layer_names": list(g.layer_names)}
                for g in config.groups
            ],
            inference_engine="vllm",
        )
        if not agnostic:
            fields["parallel_agnostic"] = False
        return cls(root_dir, fields, 0 if agnostic else config.parallel.rank)

    def get_run_config(self):
        return dict(self._fields)

    def get_file_name(self, key):
        name = key[:-4].hex()
        return "%s/%s/%s_g%d/%s.bin" % (
            self._root, name[:3], name[3:5], int.from_bytes(key[-4:], "big"), name
        )


def _first_tier_base():
    """v0.22: verdicts are True, False and None, and most methods have other names."""

    class SecondaryTierManager(abc.ABC):
        def __init__(self, vllm_config, primary_kv_view, tier_type):
            self._vllm_config = vllm_config
            self._primary_kv_view = primary_kv_view
            self.tier_type = tier_type

        @abc.abstractmethod
        def lookup(self, key, req_context): ...

        @abc.abstractmethod
        def submit_store(self, job_metadata): ...

        @abc.abstractmethod
        def submit_load(self, job_metadata): ...

        @abc.abstractmethod
        def get_finished(self): ...

        def touch(self, keys, req_context): ...

        def get_request_offloading_context(self, req_context): ...

        def request_finished(self, req_context): ...

        def shutdown(self): ...

    return SecondaryTierManager


def _tier_base(backpressure):
    class SecondaryTierManager(abc.ABC):
        medium = None

        def __init__(self, offloading_spec, primary_kv_view, tier_type):
            self._offloading_spec = offloading_spec
            self._primary_kv_view = primary_kv_view
            self.tier_type = tier_type
            self.locality = None

        @abc.abstractmethod
        def lookup(self, key, req_context): ...

        @abc.abstractmethod
        def submit_store(self, job_metadata): ...

        @abc.abstractmethod
        def submit_load(self, job_metadata): ...

        @abc.abstractmethod
        def get_finished_jobs(self): ...

        @abc.abstractmethod
        def on_new_request(self, req_context): ...

        @abc.abstractmethod
        def drain_jobs(self): ...

        def has_pending_work(self):
            return False

        def take_events(self):
            return ()

        def touch(self, keys, req_context): ...

        def on_request_finished(self, req_context): ...

        def on_schedule_end(self, context): ...

        def shutdown(self): ...

        @classmethod
        def build_metric_definitions(cls, extra_config):
            return {}

        def get_stats(self):
            return None

    if backpressure:

        class WithDetector(SecondaryTierManager):
            def __init__(
                self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None
            ):
                super().__init__(offloading_spec, primary_kv_view, tier_type)
                self.bp_detector = backpressure_detector

        WithDetector.__name__ = "SecondaryTierManager"
        return WithDetector
    return SecondaryTierManager


def _worker_base():
    class OffloadingWorker(abc.ABC):
        @abc.abstractmethod
        def submit_store(self, job_id, src_spec, dst_spec): ...

        @abc.abstractmethod
        def submit_load(self, job_id, src_spec, dst_spec): ...

        @abc.abstractmethod
        def get_finished(self): ...

        @abc.abstractmethod
        def wait(self, job_ids): ...

        def shutdown(self):
            return

    return OffloadingWorker


class OffloadingDispatcher:
    """What the name OffloadingWorker meant before workers were one class."""

    def register_handler(self, src_cls, dst_cls, handler): ...

    def transfer_async(self, job_id, spec): ...


class FSLoadStoreSpec:
    def __init__(self, keys):
        self.keys = keys


@dataclasses.dataclass
class FileOp:
    device_ptr: int
    size_bytes: int
    file_offset: int


@dataclasses.dataclass
class DevicePointers:
    ptrs: Any
    sizes: Any
    group_block_counts: tuple
    group_data_ref_counts: tuple
    block_indices: tuple


class GPULoadStoreSpec:
    def __init__(self, block_ids, group_sizes, block_indices):
        import numpy

        self.block_ids = numpy.array(block_ids, dtype=numpy.int32)
        self.group_sizes = group_sizes
        self.block_indices = block_indices


def _fs_worker_base(worker_base, transfer_result, event):
    """FSOffloadingWorker: names files, cuts transfers into operations, keeps completions. `event`
    makes what stands for torch.Event."""

    class FSOffloadingWorker(worker_base):
        def __init__(self, file_mapper, block_size_factor):
            self._file_mapper = file_mapper
            self._factor = block_size_factor
            self._running = {}

        @abc.abstractmethod
        def submit_io(self, file_ops, is_store, ready_event): ...

        def shutdown_dispatch(self): ...

        def shutdown_backend(self): ...

        def _cut(self, pointers, keys):
            """[(file name, [FileOp])] and the bytes, by the layout that the files have: ref by ref,
            block by block."""
            files, total, first, keys = [], 0, 0, iter(keys)
            for count, refs, index in zip(
                pointers.group_block_counts,
                pointers.group_data_ref_counts,
                pointers.block_indices,
            ):
                block = 0
                slot = index % self._factor
                while block < count:
                    here = min(self._factor - slot, count - block)
                    ops = []
                    for ref in range(refs):
                        for step in range(here):
                            at = first + ref * count + block + step
                            size = int(pointers.sizes[at])
                            place = (ref * self._factor + slot + step) * size
                            ops.append(FileOp(int(pointers.ptrs[at]), size, place))
                            total += size
                    files.append((self._file_mapper.get_file_name(next(keys)), ops))
                    block += here
                    slot = 0
                first += refs * count
            return files, total

        def _submit(self, job_id, pointers, keys, is_store):
            files, total = self._cut(pointers, keys)
            self._running[job_id] = (self.submit_io(files, is_store, event()), total)
            return True

        def submit_store(self, job_id, device_ptrs, dst_spec):
            return self._submit(job_id, device_ptrs, dst_spec.keys, True)

        def submit_load(self, job_id, src_spec, device_ptrs, expedited=False):
            return self._submit(job_id, device_ptrs, src_spec.keys, False)

        def get_finished(self):
            results = []
            for job_id, (completions, total) in list(self._running.items()):
                if not all(completion.done() for completion in completions):
                    continue
                success = True
                for completion in completions:
                    try:
                        completion.result()
                    except Exception:  # as vLLM: whatever it was, the job has failed
                        success = False
                results.append(transfer_result(job_id, success, total, 0.0))
                del self._running[job_id]
            return results

        def wait(self, job_ids):
            for job_id in job_ids:
                for completion in self._running.get(job_id, ((),))[0]:
                    completion.result()

        def shutdown(self):
            try:
                for completions, _ in self._running.values():
                    for completion in completions:
                        completion.result()
            finally:
                self._running.clear()
                try:
                    self.shutdown_dispatch()
                finally:
                    self.shutdown_backend()

    return FSOffloadingWorker


def _metric_classes():
    base = _dataclass("OffloadingMetricMetadata", ("documentation", ("labelnames", ())), True)
    return {
        "OffloadingMetricMetadata": base,
        "OffloadingCounterMetadata": dataclasses.make_dataclass(
            "OffloadingCounterMetadata", [], bases=(base,), frozen=True
        ),
        "OffloadingGaugeMetadata": dataclasses.make_dataclass(
            "OffloadingGaugeMetadata", [], bases=(base,), frozen=True
        ),
        "OffloadingHistogramMetadata": dataclasses.make_dataclass(
            "OffloadingHistogramMetadata",
            [("buckets", Optional[tuple], None)],
            bases=(base,),
            frozen=True,
        ),
    }


@dataclasses.dataclass
class Generation:
    """One of NAMES, installed: `interface` is what a scheduler of it uses."""

    name: str
    modules: dict
    interface: Any
    tier_base: type
    worker_base: Any
    passes: dict  # what its factory passes besides the configuration
    spec_argument: str

    def create_tier(self, config, spec, view):
        """As the factory of secondary tiers does: by type and module, the rest as arguments."""
        config = dict(config)
        tier_type = config.pop("type")
        cls = getattr(importlib.import_module(config.pop("module_path")), tier_type)
        assert issubclass(cls, self.tier_base)
        return cls(
            primary_kv_view=view,
            tier_type=tier_type,
            **{self.spec_argument: spec},
            **self.passes,
            **config,
        )


def _interface(**differences):
    return type("Interface", (Interface,), differences)


def build(name, event=lambda: None):
    modules = _Modules(name)
    position = NAMES.index(name)
    first, partial, detector, chunks = (position >= n for n in range(4))
    assert first
    context = _dataclass("ReqContext", ("req_id", ("kv_transfer_params", None)))
    job_fields = ["job_id", "keys", "chunk_ids" if chunks else "block_ids", "is_promotion",
                  "req_context"]
    if detector:
        job_fields.append(("submit_time", 0.0))
    job = _dataclass("TransferJob" if chunks else "JobMetadata", job_fields)
    result_fields = ["job_id", "success"]
    if partial:
        result_fields += [("successful_keys", None), ("transfer_time", None)]
    if detector:
        result_fields.append(("transfer_bytes" if chunks else "transfer_size", None))
    event_fields = ["keys", "medium", "removed"] + ([("locality", None)] if detector else [])
    transfer_result = _dataclass(
        "TransferResult", ("job_id", "success", ("transfer_size", None), ("transfer_time", None))
    )
    tier_base = _tier_base(detector) if partial else _first_tier_base()
    modules.put(
        "vllm.v1.kv_offload.tiering.base",
        SecondaryTierManager=tier_base,
        JobResult=_dataclass("JobResult", result_fields),
        **{job.__name__: job},
    )
    modules.put(
        "vllm.v1.kv_offload.base",
        ReqContext=context,
        RequestOffloadingContext=_dataclass("RequestOffloadingContext", (("policy", None),)),
        OffloadingEvent=_dataclass("OffloadingEvent", event_fields),
        Medium=Medium,
        Locality=Locality,
    )
    modules.put("vllm.v1.kv_offload.file_mapper", FileMapper=FileMapper)
    worker_base = None
    if not partial:
        modules.put("vllm.v1.kv_offload.worker.worker", OffloadingWorker=OffloadingDispatcher)
        interface = _interface(
            hit=True, miss=False, retry=None, on_new_request="get_request_offloading_context",
            on_request_finished="request_finished", get_finished="get_finished", has_drain=False,
            has_schedule_end=False,
        )
    else:
        worker_base = _worker_base()
        modules.put(
            "vllm.v1.kv_offload.base",
            LookupResult=LookupResult,
            OffloadingWorker=worker_base,
            TransferResult=transfer_result,
            **_metric_classes(),
        )
        modules.put(
            "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics",
            OffloadingConnectorStats=Stats,
        )
        interface = _interface(
            hit=LookupResult.HIT, miss=LookupResult.MISS, retry=LookupResult.RETRY
        )
    interface.job = job
    interface.context = context
    interface.rows_field = "chunk_ids" if chunks else "block_ids"
    interface.row_type = "int32" if chunks else "int64"
    if chunks:
        modules.put(
            "vllm.v1.kv_offload.fs.worker",
            FSOffloadingWorker=_fs_worker_base(worker_base, transfer_result, event),
            FSLoadStoreSpec=FSLoadStoreSpec,
            FileOp=FileOp,
        )
    return Generation(
        name,
        modules.made,
        interface,
        tier_base,
        worker_base,
        {"backpressure_detector": object()} if detector else {},
        "offloading_spec" if partial else "vllm_config",
    )


def _forget():
    """The adapter looks at vLLM when it is imported."""
    for name in list(sys.modules):
        if name == "vllm" or name.startswith(("vllm.", "kvtier.vllm")):
            del sys.modules[name]


@contextlib.contextmanager
def installed(generation):
    """As if this vLLM were installed; kvtier.vllm is imported anew inside."""
    before = {
        name: module
        for name, module in sys.modules.items()
        if name == "vllm" or name.startswith(("vllm.", "kvtier.vllm"))
    }
    _forget()
    sys.modules.update(generation.modules)
    try:
        yield generation
    finally:
        _forget()
        sys.modules.update(before)
