# SPDX-License-Identifier: Apache-2.0
"""KvTierOffloadingWorker: device memory straight to the store, for specs of one's own.

It has the interface of vLLM's OffloadingWorker in both of its forms: transfers given as block ids
(GPULoadStoreSpec, with the caches that they number) and as DevicePointers. vLLM calls it on the
worker's main thread, which never waits here but in wait and shutdown.

vLLM asserts that transfers succeed: a worker that reports a failure ends the engine. So what to do
about one is the user's choice, ``on_error`` and, for stores, ``on_store_error``:

    raise    get_finished raises KvTierTransferError, which names the chunk and the cause (default)
    report   a TransferResult with success=False, for releases and callers that can live with it
    done     stores only: the job is reported as done; the chunks are not there, which the
             next lookup in the store finds out

A store that the full queue refuses is done but not stored, whatever the policy is.
"""
from __future__ import annotations

import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .. import Device, Ready, Store, Transfer, Worker
from ..errors import BusyError, Error, QueueFullError
from . import _compat, _fingerprint, _pack
from ._config import TierConfig

logger = _compat.logger(__name__)

_POLL = 64
_PATIENCE_MS = 5000
_POLICIES = ("raise", "report")
_STORE_POLICIES = ("raise", "report", "done")

_WORKER = _compat.OffloadingWorker
# Before workers were one class for both directions, the name belonged to a dispatcher.
_BASE: Any = _WORKER if _WORKER is not None and hasattr(_WORKER, "submit_store") else object


class KvTierTransferError(RuntimeError):
    """A transfer failed: `job_id`, and the library's line about its worst chunk."""

    def __init__(self, job_id: int, is_store: bool, detail: str) -> None:
        kind = "store" if is_store else "load"
        super().__init__("kvtier: %s job %d: %s" % (kind, job_id, detail))
        self.job_id = job_id
        self.detail = detail


class _Transfer:
    __slots__ = ("job_id", "is_store", "size", "started")

    def __init__(self, job_id: int, is_store: bool, size: int, started: float) -> None:
        self.job_id = job_id
        self.is_store = is_store
        self.size = size
        self.started = started


def parse_device(device: Any) -> Tuple[str, int]:
    """The library's name and ordinal for "host", "cuda", "cuda:1" or a torch.device."""
    name, _, ordinal = str(device or "host").partition(":")
    if name == "cpu":
        name = "host"
    if ordinal and not ordinal.isdigit():
        raise ValueError('device: %r, expected "host", "cuda" or "cuda:N"' % (device,))
    if name == "cuda" and not ordinal:
        import torch

        return name, torch.cuda.current_device()
    return name, int(ordinal or 0)


def record_ready(device_name: str) -> Optional[Ready]:
    """When what the calling thread has given its current stream so far has been done; None for
    plain memory, where it has been done already."""
    if device_name != "cuda":
        return None
    import torch

    event = torch.cuda.Event()
    event.record()
    return Ready.event(event.cuda_event, keep=event)


class KvTierOffloadingWorker(_BASE):
    def __init__(
        self,
        offloading_spec: Any,
        kv_caches: Any = None,
        *,
        device: Any = "host",
        on_error: str = "raise",
        on_store_error: Optional[str] = None,
        shutdown_timeout_s: float = 60.0,
        fields: Optional[dict] = None,
        rank: Optional[int] = None,
        **config: Any,
    ) -> None:
        """kv_caches (CanonicalKVCaches) is needed for transfers given as block ids. Fields and rank
        come from the spec unless they are given. The other options are the tier's."""
        if on_error not in _POLICIES:
            raise ValueError("on_error: %r, expected raise or report" % (on_error,))
        if on_store_error not in (None,) + _STORE_POLICIES:
            raise ValueError(
                "on_store_error: %r, expected raise, report or done" % (on_store_error,)
            )
        self._config = TierConfig.take(config, logger)
        self._load_policy = on_error
        self._store_policy = on_store_error or on_error
        self._shutdown_timeout_s = shutdown_timeout_s
        self._kv_caches = kv_caches
        self._blocks_per_chunk = _fingerprint.blocks_per_chunk(offloading_spec)
        self._transfers: Dict[int, _Transfer] = {}
        self._internal: Dict[int, int] = {}  # of job ids that are live
        self._next_id = 1
        self._ready: List[Any] = []
        self._failures: List[KvTierTransferError] = []
        self.refused_stores = 0
        self._worker: Optional[Worker] = None
        self._device: Optional[Device] = None
        self._store: Optional[Store] = None
        if fields is None:
            fields, spec_rank = _fingerprint.fields_of(
                offloading_spec,
                self._config.fingerprint,
                self._config.model_revision,
                self._config.kv_layout,
            )
            rank = spec_rank if rank is None else rank
        self._open(fields, rank or 0, device)

    def _open(self, fields: dict, rank: int, device: Any) -> None:
        config = self._config
        name, ordinal = parse_device(device)
        self._device_name = name
        try:
            self._store = Store(
                config.uri(), fields=fields, rank=rank, options=config.store_options()
            )
            self._store.probe()
            self._device = Device(name, ordinal)
            self._worker = Worker(self._store, self._device, **config.worker_options())
        except BaseException as error:
            self.shutdown()
            if isinstance(error, Error):
                raise RuntimeError(
                    "kvtier: the store %s cannot be used on device %s: %s (%s)"
                    % (config.uri(), name, error.detail, error.name)
                ) from error
            raise

    # ---- transfers ----

    def submit_store(self, job_id: int, src: Any, dst_spec: Any) -> bool:
        return self._submit(job_id, src, dst_spec.keys, True, False)

    def submit_load(
        self, job_id: int, src_spec: Any, dst: Any, expedited: bool = False
    ) -> bool:
        return self._submit(job_id, dst, src_spec.keys, False, expedited)

    def _pointers(self, device_side: Any) -> Any:
        if _compat.is_device_pointers(device_side):
            return device_side
        if not hasattr(device_side, "block_ids"):
            raise TypeError(
                "kvtier: a transfer of type %s, expected DevicePointers or a spec of block ids"
                % type(device_side).__name__
            )
        if self._kv_caches is None:
            raise TypeError("kvtier: a transfer of block ids, expected kv_caches to be given")
        return _compat.resolve_block_ids(device_side, self._kv_caches)

    def _submit(
        self, job_id: int, device_side: Any, keys: Iterable[bytes], is_store: bool, expedited: bool
    ) -> bool:
        worker = self._worker
        if worker is None:
            raise RuntimeError("kvtier: the worker was shut down")
        if job_id in self._internal:
            raise ValueError("job_id: %d is live, expected another" % job_id)
        pointers = self._pointers(device_side)
        size = int(sum(pointers.sizes)) if isinstance(pointers.sizes, (list, tuple)) else int(
            pointers.sizes.sum()
        )
        transfer = _Transfer(job_id, is_store, size, time.perf_counter())
        internal = self._next_id
        self._next_id += 1
        native = Transfer(
            self._blocks_per_chunk,
            pointers.group_block_counts,
            pointers.group_data_ref_counts,
            pointers.block_indices,
            pointers.ptrs,
            pointers.sizes,
            _pack.pack(list(keys)),
            keep=device_side,
        )
        ready = record_ready(self._device_name)
        try:
            if is_store:
                worker.submit_store(internal, native, ready=ready)
            else:
                worker.submit_load(internal, native, expedited=expedited, ready=ready)
        except QueueFullError as error:
            self._refused(transfer, error)
            return True
        self._transfers[internal] = transfer
        self._internal[job_id] = internal
        return True

    def _refused(self, transfer: _Transfer, error: QueueFullError) -> None:
        """A store is done without having been stored; a load has failed."""
        if transfer.is_store:
            self.refused_stores += 1
            self._ready.append(_compat.transfer_result(transfer.job_id, True, 0, 0.0))
        else:
            self._fail(transfer, error.detail, 0.0)

    def _fail(self, transfer: _Transfer, detail: str, seconds: float) -> None:
        policy = self._store_policy if transfer.is_store else self._load_policy
        failure = KvTierTransferError(transfer.job_id, transfer.is_store, detail)
        if policy == "raise":
            self._failures.append(failure)
            return
        logger.warning("%s", failure)
        done = policy == "done"
        self._ready.append(_compat.transfer_result(transfer.job_id, done, 0, seconds))

    def get_finished(self) -> List[Any]:
        """Every job once. With on_error=raise a failed one is an exception instead; the others are
        not lost: they come with the next call."""
        self._poll()
        if self._failures:
            raise self._failures.pop(0)
        ready, self._ready = self._ready, []
        return ready

    def _poll(self) -> None:
        worker = self._worker
        while worker is not None:
            results = worker.poll(_POLL)
            now = time.perf_counter()
            for result in results:
                transfer = self._transfers.pop(result.job_id)
                del self._internal[transfer.job_id]
                seconds = now - transfer.started
                if result.error != 0:
                    self._fail(transfer, result.detail, seconds)
                else:
                    self._ready.append(
                        _compat.transfer_result(transfer.job_id, True, transfer.size, seconds)
                    )
            if len(results) < _POLL:
                return

    def wait(self, job_ids: Iterable[int]) -> None:
        """Until nothing touches the jobs' memory: for a store once its bytes have been taken, not
        once they are in the store, so that a preemption does not wait for that. Ids that are not
        known are ignored; results come with get_finished."""
        worker = self._worker
        known = [self._internal[job_id] for job_id in job_ids if job_id in self._internal]
        if worker is None or not known:
            return
        while not worker.wait_memory(known, _PATIENCE_MS):
            logger.warning("kvtier: waiting for the memory of %d transfers", len(known))

    def shutdown(self) -> None:
        """Waits for what is under way, at most shutdown_timeout_s, gives up the rest, and returns
        once nothing touches device memory. Failures are raised at the end (on_error=raise)."""
        worker = self._worker
        if worker is not None:
            worker.drain(round(self._shutdown_timeout_s * 1000))
            self._poll()
            self._worker = None
            while True:
                try:
                    worker.close(_PATIENCE_MS)
                    break
                except BusyError as error:
                    logger.warning("kvtier: shutting down: %s", error)
        self._transfers.clear()
        self._internal.clear()
        if self._device is not None:
            self._device.close()
            self._device = None
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._failures:
            raise self._failures.pop(0)


if _BASE is not object:
    _compat.check_complete(KvTierOffloadingWorker, _BASE)
