# SPDX-License-Identifier: Apache-2.0
"""What differs between vLLM's releases, in one place.

The interfaces that kvtier plugs into are declared experimental: classes move between modules,
fields get other names, results gain optional members. Everything else in this package uses the
names of this module only. What a release lacks and kvtier can do without is None here; what it
cannot do without, and what it does not know, is an ImportError at import that says so.

Known differences:

- ``TransferJob.chunk_ids`` was ``block_ids`` (and ``TransferJob`` was ``JobMetadata``);
- ``JobResult`` has no ``successful_keys``, ``transfer_time``, ``transfer_bytes`` in older releases,
  and ``transfer_size`` instead of the last in some;
- ``lookup`` answered True, False or None before there was ``LookupResult``;
- ``get_finished_jobs`` was ``get_finished``, ``on_request_finished`` was ``request_finished``,
  ``on_new_request`` was ``get_request_offloading_context``;
- the factory passes ``vllm_config`` or ``offloading_spec``, and may pass arguments of its own
  (``backpressure_detector``);
- base classes were in ``abstract`` and ``worker.worker`` before ``base``.
"""
from __future__ import annotations

import importlib
import inspect
import logging
from array import array
from types import SimpleNamespace
from typing import Any, Callable, Iterable, Optional, Sequence

import numpy

from . import _standalone

_BASE = ("vllm.v1.kv_offload.base", "vllm.v1.kv_offload.abstract")
_TIERING = ("vllm.v1.kv_offload.tiering.base",)
_WORKER = ("vllm.v1.kv_offload.base", "vllm.v1.kv_offload.worker.worker")
_FS_WORKER = ("vllm.v1.kv_offload.fs.worker",)
_MAPPER = ("vllm.v1.kv_offload.file_mapper",)
_METRICS = ("vllm.v1.kv_offload.base", "vllm.v1.kv_offload.metrics")
_STATS = ("vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics",)


def _vllm_version() -> Optional[str]:
    """None when vLLM is not installed."""
    try:
        module = importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            return None
        raise
    if getattr(module, "__file__", None) is None:
        return None  # some folder of that name, not the package
    return str(getattr(module, "__version__", "of an unknown version"))


VERSION = _vllm_version()


def _find(name: str, modules: Sequence[str]) -> Any:
    """The attribute `name` of the first of `modules` that has it, or None. A module that is there
    and fails to import is an error: silence would hide a broken installation."""
    if VERSION is None:
        return getattr(_standalone, name, None)
    for path in modules:
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is not None and (path == error.name or path.startswith(error.name + ".")):
                continue
            raise
        found = getattr(module, name, None)
        if found is not None:
            return found
    return None


def logger(name: str) -> Any:
    """vLLM's logger where there is one, so that lines appear among vLLM's own."""
    if VERSION is not None:
        init = _find("init_logger", ("vllm.logger",))
        if init is not None:
            return init("vllm." + name)
    return logging.getLogger(name)


def _accepted(function: Callable) -> Optional[frozenset]:
    """The names of the parameters of `function`, None when it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters)


# ---- what the tier stands on ----

SecondaryTierManager = _find("SecondaryTierManager", _TIERING)
LookupResult = _find("LookupResult", _BASE)
Medium = _find("Medium", _BASE)
Locality = _find("Locality", _BASE)
FileMapper = _find("FileMapper", _MAPPER)
OffloadingConnectorStats = _find("OffloadingConnectorStats", _STATS)
RequestOffloadingContext = _find("RequestOffloadingContext", _BASE)
CounterMetadata = _find("OffloadingCounterMetadata", _METRICS)
GaugeMetadata = _find("OffloadingGaugeMetadata", _METRICS)
HistogramMetadata = _find("OffloadingHistogramMetadata", _METRICS)
_JobResult = _find("JobResult", _TIERING + _BASE)
_Event = _find("OffloadingEvent", _BASE)

# ---- what the workers stand on ----

OffloadingWorker = _find("OffloadingWorker", _WORKER)
FSOffloadingWorker = _find("FSOffloadingWorker", _FS_WORKER)
_TransferResult = _find("TransferResult", _WORKER)

if LookupResult is None:
    HIT, MISS, RETRY = True, False, None
else:
    HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY

if VERSION is not None:
    for _name, _found in (
        ("SecondaryTierManager", SecondaryTierManager),
        ("JobResult", _JobResult),
    ):
        if _found is None:
            raise ImportError(
                "kvtier.vllm: vLLM %s has no vllm.v1.kv_offload.tiering.base.%s, expected v0.22 or "
                "later (secondary tiers)" % (VERSION, _name)
            )


def check_complete(cls: type, base: type) -> None:
    """Refuses a release whose base class wants methods that `cls` does not have."""
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise ImportError(
            "kvtier.vllm: %s of vLLM %s wants %s, which this version of kvtier does not know; "
            "a newer kvtier is needed" % (base.__name__, VERSION, ", ".join(missing))
        )


# ---- results ----


def _result_maker(cls: Any, renames: Sequence[tuple]) -> Callable[..., Any]:
    """A function of (job_id, success, *optional values) that passes those of the optional values
    for which `cls` has a field, under whatever name it has there. `renames` gives for each
    optional value the names that it has had."""
    accepted = _accepted(cls)
    names = []
    for candidates in renames:
        names.append(next((n for n in candidates if accepted is None or n in accepted), None))
    kept = [(index, name) for index, name in enumerate(names) if name is not None]

    def make(job_id: int, success: bool, *optional: Any) -> Any:
        return cls(job_id=job_id, success=success, **{name: optional[i] for i, name in kept})

    return make


# job_result(job_id, success, successful_keys, seconds, bytes)
job_result = _result_maker(
    _JobResult, (("successful_keys",), ("transfer_time",), ("transfer_bytes", "transfer_size"))
)
# Whether a job of which some keys were loaded can say which.
HAS_PARTIAL_RESULTS = (
    _accepted(_JobResult) is None or "successful_keys" in _accepted(_JobResult)  # type: ignore
)


def transfer_result(job_id: int, success: bool, size: int, seconds: float) -> Any:
    return _make_transfer_result(job_id, success, size, seconds)


def _old_transfer_result(job_id: int, success: bool, *_optional: Any) -> Any:
    """Before TransferResult, workers answered pairs."""
    return (job_id, success)


_make_transfer_result = (
    _old_transfer_result
    if _TransferResult is None
    else _result_maker(_TransferResult, (("transfer_size",), ("transfer_time",)))
)


def event(keys: list, medium: Any, removed: bool, locality: Any) -> Any:
    """An OffloadingEvent with the members that this release has, None when it has no events."""
    if _Event is None:
        return None
    accepted = _accepted(_Event)
    values = {"keys": keys, "medium": medium, "removed": removed, "locality": locality}
    if accepted is not None:
        if "keys" not in accepted and "block_hashes" in accepted:
            values["block_hashes"] = values.pop("keys")
        values = {name: value for name, value in values.items() if name in accepted}
    return _Event(**values)


# ---- what vLLM hands over ----


def row_ids(job: Any) -> "array[int]":
    """The rows of a TransferJob, as the library takes them."""
    ids = getattr(job, "chunk_ids", None)
    if ids is None:
        ids = getattr(job, "block_ids", None)
        if ids is None:
            raise TypeError(
                "kvtier.vllm: a transfer job of vLLM %s has neither chunk_ids nor block_ids, which "
                "this version of kvtier does not know" % VERSION
            )
    return array("q", numpy.asarray(ids, dtype=numpy.int64).tobytes())


def call_base_init(instance: Any, base: type, known: dict, extra: dict) -> dict:
    """Calls base.__init__ with what it takes of `known` and of `extra`; returns what is left of
    `extra`. A parameter that it must have and that nobody gave is a TypeError that names it."""
    parameters = inspect.signature(base.__init__).parameters  # type: ignore[misc]
    taken = {}
    left = dict(extra)
    for name, parameter in list(parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in known:
            taken[name] = known[name]
        elif name in left:
            taken[name] = left.pop(name)
        elif parameter.default is parameter.empty:
            raise TypeError(
                "kvtier.vllm: %s of vLLM %s must be given '%s', which this version of kvtier does "
                "not know; a newer kvtier is needed" % (base.__name__, VERSION, name)
            )
    base.__init__(instance, **taken)  # type: ignore[misc]
    return left


def kv_events_enabled(spec: Any) -> bool:
    """Whether vLLM publishes KV events at all: a tier's events are taken by nobody otherwise."""
    for holder in (getattr(spec, "kv_events_config", None), getattr(spec, "config", None)):
        enabled = getattr(holder, "enable_kv_cache_events", None)
        if enabled is not None:
            return bool(enabled)
    return False


def cuda_event(event: Any) -> int:
    """The CUevent of a torch.cuda.Event or of a torch.Event, which vLLM records; 0 when it has not
    been recorded, so that there is nothing to wait for."""
    for name in ("cuda_event", "event_id"):
        handle = getattr(event, name, None)
        if handle is not None:
            return int(handle)
    raise TypeError(
        "kvtier.vllm: a ready event of type %s has neither cuda_event nor event_id, expected a "
        "torch.Event" % type(event).__name__
    )


def is_device_pointers(transfer: Any) -> bool:
    """DevicePointers, against a spec of block ids."""
    return hasattr(transfer, "ptrs") and hasattr(transfer, "sizes")


def resolve_block_ids(spec: Any, kv_caches: Any) -> SimpleNamespace:
    """The pointers of a spec of block ids: what DevicePointers say in later releases.

    kv_caches is vLLM's CanonicalKVCaches: tensors whose first dimension is the block, and for each
    group the references to them.
    """
    groups = kv_caches.group_data_refs
    ids = numpy.asarray(spec.block_ids)
    sizes = getattr(spec, "group_sizes", None)
    counts = [len(ids)] if sizes is None else [int(count) for count in sizes]
    indices = getattr(spec, "block_indices", None)
    first = [0] * len(counts) if indices is None else [int(index) for index in indices]
    if len(counts) != len(groups) or len(first) != len(counts) or sum(counts) != len(ids):
        raise ValueError(
            "kvtier.vllm: a transfer of %d block ids in %d groups with %d block indices, expected "
            "%d groups that add up" % (len(ids), len(counts), len(first), len(groups))
        )
    pointers, lengths, position = [], [], 0
    for count, references in zip(counts, groups):
        blocks = ids[position : position + count].astype(numpy.uint64)
        position += count
        for reference in references if count else ():
            tensor = kv_caches.tensors[reference.tensor_idx].tensor
            step = tensor.stride(0) * tensor.element_size()
            pointers.append(numpy.uint64(tensor.data_ptr()) + blocks * numpy.uint64(step))
            lengths.append(numpy.full(count, reference.page_size_bytes, dtype=numpy.uint64))
    none = numpy.empty(0, dtype=numpy.uint64)
    return SimpleNamespace(
        ptrs=numpy.concatenate(pointers) if pointers else none,
        sizes=numpy.concatenate(lengths) if lengths else none,
        group_block_counts=counts,
        group_data_ref_counts=[len(references) for references in groups],
        block_indices=first,
    )


def unknown_arguments(names: Iterable[str], known: Iterable[str]) -> str:
    """One line about arguments that are not known: each with the nearest name that is."""
    import difflib

    known = list(known)
    parts = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, known, 1)
        parts.append("%s (did you mean %s?)" % (name, near[0]) if near else name)
    return ", ".join(parts)
