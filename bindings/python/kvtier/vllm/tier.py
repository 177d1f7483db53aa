# SPDX-License-Identifier: Apache-2.0
"""KvTierSecondaryTier: the store as a secondary tier of vLLM's TieringOffloadingSpec.

    "secondary_tiers": [{"type": "KvTierSecondaryTier", "module_path": "kvtier.vllm",
                         "store": "s3://bucket/prefix", "store_config": {...}}]

It lives in the scheduler's process. The chunks are rows of vLLM's CPU tier, which the library reads
and writes by itself, on threads of its own; every call here but drain_jobs and shutdown returns in
microseconds. vLLM never calls two methods at once.
"""
from __future__ import annotations

import time
from typing import Any, Collection, Dict, Iterable, List, Optional, Sequence, Tuple

from .. import BusyError, LogLevel, Mode, Rows, Store, Worker
from ..errors import Error, QueueFullError
from ..results import JobKind, Result, Status
from . import _compat, _fingerprint, _lookups, _metrics, _pack
from ._config import TierConfig
from ._touch import Toucher

logger = _compat.logger(__name__)

_KINDS = ("store", "load")
_POLL = 64
_STATS_INTERVAL_S = 1.0
_WARNING_INTERVAL_S = 10.0
# How long drain_jobs and shutdown wait before they say that they do.
_PATIENCE_MS = 5000
_STATUS_NAMES = [status.name.lower() for status in Status]
# Verdicts of lookups by status; whatever else there is (partial, unknown, canceled) is a miss: the
# request is better off recomputing than waiting for a store that cannot be asked.
_VERDICTS = bytes(
    {Status.HIT: _lookups.HIT, Status.PENDING: _lookups.RETRY}.get(status, _lookups.MISS)
    for status in range(256)
)
_ANSWERS = {
    _lookups.HIT: _compat.HIT,
    _lookups.MISS: _compat.MISS,
    _lookups.RETRY: _compat.RETRY,
}
# Load statuses that tell that the object is not there any more.
_GONE = bytes((Status.MISSING, Status.CORRUPT))


class _Job:
    """A store or load under way."""

    __slots__ = ("job_id", "keys", "is_store", "started")

    def __init__(self, job_id: int, keys: List[bytes], is_store: bool, started: float) -> None:
        self.job_id = job_id
        self.keys = keys
        self.is_store = is_store
        self.started = started


_LOG_LEVELS = {LogLevel.ERROR: "error", LogLevel.WARNING: "warning"}


def _log(level: int, line: str) -> None:
    """The library's lines among vLLM's, from any thread."""
    getattr(logger, _LOG_LEVELS.get(level, "info"))("kvtier: %s", line)


def _file_root(uri: str) -> Optional[str]:
    return uri[len("file://") :] if uri.startswith("file://") else None


class KvTierSecondaryTier(_compat.SecondaryTierManager):  # type: ignore[misc, name-defined]
    """docs/vllm.md describes the options; :class:`kvtier.vllm._config.TierConfig` lists them."""

    medium = None if _compat.Medium is None else _compat.Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any = None,
        primary_kv_view: Optional[memoryview] = None,
        tier_type: str = "KvTierSecondaryTier",
        **config: Any,
    ) -> None:
        spec = offloading_spec if offloading_spec is not None else config.get("vllm_config")
        base = _compat.SecondaryTierManager
        known = {
            "offloading_spec": spec,
            "vllm_config": spec,
            "primary_kv_view": primary_kv_view,
            "tier_type": tier_type,
        }
        config.pop("vllm_config", None)
        left = _compat.call_base_init(self, base, known, config)
        # Only passed on: what vLLM gives every tier is no option of ours.
        left.pop("backpressure_detector", None)
        if spec is None or primary_kv_view is None:
            raise ValueError("offloading_spec, primary_kv_view: missing, expected both")
        self._config = TierConfig.take(left, logger)
        self._spec = spec
        self._jobs: Dict[int, _Job] = {}
        self._asked: Dict[int, Tuple[List[bytes], List[_lookups.Request], List[bytes]]] = {}
        self._next_id = 1
        # Results that the next get_finished_jobs reports.
        self._ready: List[Any] = []
        self._lookups = _lookups.Lookups(self._config.max_wait_s)
        self._polled = False
        self._events: Optional[List[Any]] = None
        self._toucher: Optional[Toucher] = None
        self._store: Optional[Store] = None
        self._worker: Optional[Worker] = None
        self._set_up_events(tier_type)
        self._open(primary_kv_view)
        label = self._config.metrics_label or "%s:%s" % (tier_type, self._config.uri())
        self._metrics = _metrics.Metrics(label)
        self._stats_due = 0.0
        self._warning_due = 0.0
        self._unsaid = 0  # warnings since the last one that was written

    # ---- start ----

    def _set_up_events(self, tier_type: str) -> None:
        locality = self._config.locality
        self.locality = (
            None if locality is None or _compat.Locality is None else _compat.Locality(locality)
        )
        if not self._config.enable_kv_events:
            return
        if _compat.kv_events_enabled(self._spec):
            self._events = []
        else:
            logger.warning(
                "kvtier: enable_kv_events is set for tier %s, but vLLM publishes no KV events "
                "(kv_events_config): the tier makes none",
                tier_type,
            )

    def _open(self, view: memoryview) -> None:
        """Opens everything and proves that the store works, or raises and leaves nothing open."""
        config = self._config
        uri = config.uri()
        fields, rank = _fingerprint.fields_of(
            self._spec,
            config.fingerprint,
            config.model_revision,
            config.kv_layout,
            1 if config.is_vllms_bucket() else None,
        )
        options = config.store_options()
        # The buffer is vLLM's, which must be able to release it right after shutdown: only the
        # address is kept.
        self._rows = Rows(view, hold=False)
        try:
            self._store = Store(
                uri,
                fields=fields,
                rank=rank,
                mode=Mode.ROW,
                options=options,
                log=_log,
                log_level=LogLevel.WARNING,
            )
            self._probe(uri)
            self._worker = Worker(
                self._store, log=_log, log_level=LogLevel.WARNING, **config.worker_options()
            )
            self._set_geometry(range(max(1, len(fields.get("kv_cache_groups") or ()))))
            self._start_toucher(uri)
        except BaseException:
            self.shutdown()
            raise
        if config.seed() is None:
            logger.warning(
                "kvtier: PYTHONHASHSEED is not set: unless this vLLM derives block hashes without "
                "it, no other instance, and none after a restart, finds the chunks of this one"
            )
        logger.info(
            "kvtier: %s, namespace %s, rank %d, %d rows of %d bytes",
            uri,
            self._store.info.base_name,
            rank,
            self._rows.row_count,
            self._rows.row_bytes,
        )

    def _probe(self, uri: str) -> None:
        """Stores, reads and removes an object of its own: a tier that cannot is found out now, not
        by requests that never hit."""
        assert self._store is not None
        try:
            self._store.probe()
        except Error as error:
            raise RuntimeError(
                "kvtier: the store %s cannot be used: %s (%s). `kvtier probe --store %s` shows "
                "what works" % (uri, error.detail, error.name, uri)
            ) from error

    def _set_geometry(self, groups: Iterable[int]) -> None:
        assert self._worker is not None
        for group in groups:
            self._worker.set_geometry(group, 1, [self._rows.row_bytes])

    def _start_toucher(self, uri: str) -> None:
        root, store = _file_root(uri), self._store
        interval = self._config.touch_interval()
        if root is None or store is None or interval is None:
            return

        def name_of(key: bytes) -> str:
            block_hash, group = _pack.split(key)
            return store.object_name(block_hash, group)

        self._toucher = Toucher(root, name_of, interval)

    # ---- lookups ----

    def lookup(self, key: bytes, req_context: Any) -> Any:
        """HIT, MISS, or RETRY while it is not known; constant time."""
        verdict = self._lookups.ask(req_context.req_id, key)
        if verdict == _lookups.RETRY and self._asked and not self._polled:
            # Where vLLM has not collected results in this step before it looks up.
            self._poll()
            verdict = self._lookups.ask(req_context.req_id, key)
        return _ANSWERS[verdict]

    def on_schedule_end(self, context: Any = None) -> None:
        """The questions of this step go to the library as one job."""
        self._polled = False
        if self._lookups:
            self._submit_lookups()

    def _submit_lookups(self) -> None:
        keys, requests = self._lookups.take()
        worker = self._worker
        if worker is None:
            self._lookups.answer(keys, requests, [_lookups.MISS] * len(keys))
            return
        # Several requests may ask for the same.
        unique = list(dict.fromkeys(keys))
        job_id = self._new_id()
        try:
            self._submit_lookup(worker, job_id, unique)
        except Error as error:
            if isinstance(error, QueueFullError):
                self._metrics.count("refused_jobs", 1, "lookup")
            else:
                self._warn("lookup of %d keys refused: %s" % (len(unique), error))
            self._lookups.answer(keys, requests, [_lookups.MISS] * len(keys))
            return
        self._asked[job_id] = (keys, requests, unique)

    def _submit_lookup(self, worker: Worker, job_id: int, keys: List[bytes]) -> None:
        packed = _pack.pack(keys)
        try:
            worker.submit_lookup(job_id, packed)
        except ValueError:
            # A group that the configuration did not tell of has no geometry yet.
            self._set_geometry({_pack.split(key)[1] for key in keys})
            worker.submit_lookup(job_id, packed)

    def on_new_request(self, req_context: Any) -> Any:
        context = _compat.RequestOffloadingContext
        return None if context is None else context()

    def on_request_finished(self, req_context: Any) -> None:
        self._lookups.end(req_context.req_id)

    # ---- jobs ----

    def _new_id(self) -> int:
        job_id = self._next_id
        self._next_id += 1
        return job_id

    def submit_store(self, job_metadata: Any) -> None:
        """Never raises for what the store does: a job that is not taken is an unsuccessful result.
        Chunks that are there already are skipped by the library."""
        self._submit(job_metadata, True)

    def submit_load(self, job_metadata: Any) -> None:
        self._submit(job_metadata, False)

    def _submit(self, metadata: Any, is_store: bool) -> None:
        keys = list(metadata.keys)
        job = _Job(metadata.job_id, keys, is_store, time.monotonic())
        worker = self._worker
        try:
            if worker is None:
                raise Error("the tier was shut down")
            packed = _pack.pack(keys)
            rows = _compat.row_ids(metadata)
            submit = worker.submit_store_rows if is_store else worker.submit_load_rows
            internal = self._new_id()
            submit(internal, packed, self._rows, rows)
        except Error as error:
            self._refuse(job, error)
            return
        self._jobs[internal] = job

    def _warn(self, line: str) -> None:
        """A job failed. A store that fails makes many of these: one line in ten seconds."""
        now = time.monotonic()
        if now < self._warning_due:
            self._unsaid += 1
            logger.debug("kvtier: %s", line)
            return
        more = " (and %d failures more since the last such line)" % self._unsaid
        logger.warning("kvtier: %s%s", line, more if self._unsaid else "")
        self._warning_due = now + _WARNING_INTERVAL_S
        self._unsaid = 0

    def _refuse(self, job: _Job, error: Error) -> None:
        kind = _KINDS[not job.is_store]
        if isinstance(error, QueueFullError):
            self._metrics.count("refused_jobs", 1, kind)
        else:
            self._warn("%s of %d keys refused: %s" % (kind, len(job.keys), error))
        if not job.is_store:
            self._lookups.invalidate(job.keys)
        self._ready.append(_compat.job_result(job.job_id, False, None, 0.0, 0))

    def get_finished_jobs(self) -> Iterable[Any]:
        """Every job once, when nothing touches its rows any more."""
        if self._lookups:
            self._submit_lookups()  # releases that know no end of a step
        self._poll()
        ready, self._ready = self._ready, []
        return ready

    def _poll(self) -> None:
        self._polled = True
        worker = self._worker
        if worker is None:
            return
        while True:
            results = worker.poll(_POLL)
            for result in results:
                if result.kind is JobKind.LOOKUP:
                    self._finish_lookup(result)
                else:
                    self._finish_job(result)
            if len(results) < _POLL:
                return

    def _finish_lookup(self, result: Result) -> None:
        keys, requests, unique = self._asked.pop(result.job_id)
        verdicts: Sequence[int] = result.statuses.translate(_VERDICTS)
        if len(unique) != len(keys):
            found = dict(zip(unique, verdicts))
            verdicts = [found[key] for key in keys]
        self._lookups.answer(keys, requests, verdicts)
        self._count_keys("lookup", result)

    def _count_keys(self, kind: str, result: Result) -> None:
        if not self._metrics.enabled:
            return
        for status in set(result.statuses):
            self._metrics.count(
                "keys", result.statuses.count(status), kind, _STATUS_NAMES[status]
            )

    def _finish_job(self, result: Result) -> None:
        job = self._jobs.pop(result.job_id)
        kind = _KINDS[not job.is_store]
        seconds = time.monotonic() - job.started
        loaded: Optional[List[bytes]] = None
        if result.error != 0:
            self._warn("%s of %d keys: %s" % (kind, len(job.keys), result.detail))
            if not job.is_store:
                loaded = self._failed_load(job, result)
        if self._events is not None:
            self._note_events(job, result)
        self._count_keys(kind, result)
        self._metrics.count("bytes", result.bytes, kind)
        self._metrics.observe("job_seconds", seconds, kind)
        self._ready.append(
            _compat.job_result(job.job_id, result.error == 0, loaded, seconds, result.bytes)
        )

    def _failed_load(self, job: _Job, result: Result) -> Optional[List[bytes]]:
        """The keys that were loaded all the same; the others are misses from now on."""
        succeeded = result.succeeded
        loaded = [key for key, fine in zip(job.keys, succeeded) if fine]
        if _compat.HAS_PARTIAL_RESULTS:
            self._lookups.invalidate([k for k, fine in zip(job.keys, succeeded) if not fine])
        else:
            self._lookups.invalidate(job.keys)
        return loaded or None

    # ---- events and recency ----

    def _note_events(self, job: _Job, result: Result) -> None:
        if job.is_store:
            there = [key for key, fine in zip(job.keys, result.succeeded) if fine]
            self._add_event(there, False)
        elif result.error != 0:
            gone = [key for key, status in zip(job.keys, result.statuses) if status in _GONE]
            self._add_event(gone, True)

    def _add_event(self, keys: List[bytes], removed: bool) -> None:
        if not keys:
            return
        event = _compat.event(keys, self.medium, removed, self.locality)
        if event is not None and self._events is not None:
            self._events.append(event)

    def take_events(self) -> Iterable[Any]:
        """What was stored, and what a load found gone, since the last call."""
        if not self._events:
            return ()
        events, self._events = self._events, []
        return events

    def touch(self, keys: Collection[bytes], req_context: Any = None) -> None:
        if self._toucher is not None:
            self._toucher.touch(keys)

    # ---- state ----

    def has_pending_work(self) -> bool:
        """Whether vLLM has to go on stepping for results to be collected."""
        return bool(self._jobs or self._ready or self._asked or self._lookups)

    @classmethod
    def build_metric_definitions(cls, extra_config: Any = None) -> Dict[str, Any]:
        return _metrics.definitions()

    def get_stats(self) -> Any:
        if not self._metrics.enabled:
            return None
        now = time.monotonic()
        if self._worker is not None and now >= self._stats_due:
            self._stats_due = now + _STATS_INTERVAL_S
            self._collect_stats(self._worker)
        return self._metrics.take()

    def _collect_stats(self, worker: Worker) -> None:
        metrics, stats = self._metrics, worker.stats()
        metrics.total("lookups_timed_out", self._lookups.timed_out)
        metrics.total("requests", stats.requests)
        metrics.total("removed_corrupt", stats.removed_corrupt)
        metrics.total("odd_length_misses", stats.odd_length_misses)
        for reason, count in stats.retries.items():
            if count:
                metrics.total("retries", count, str(getattr(reason, "name", reason)).lower())
        metrics.gauge("jobs", len(self._jobs))
        for name, count in stats.queued_chunks.items():
            metrics.gauge("queued_chunks", count, name)
        metrics.gauge("staging_used_bytes", stats.staging_used_bytes)
        metrics.gauge("breaker_open", int(stats.breaker != 0))
        metrics.gauge("stores_paused", int(stats.stores_paused))

    # ---- end ----

    def drain_jobs(self) -> None:
        """Waits until every job has ended; the results come with the next get_finished_jobs. Each
        job ends by its own deadline at the latest, so that this ends too."""
        worker = self._worker
        if worker is None:
            return
        while not worker.drain(_PATIENCE_MS):
            logger.warning("kvtier: draining: %d jobs are still under way", len(self._jobs))

    def shutdown(self) -> None:
        """Afterwards nobody touches the rows, and nothing here keeps them exported. What is queued
        is given up, what is under way is waited for."""
        if self._toucher is not None:
            self._toucher.close()
            self._toucher = None
        worker, self._worker = self._worker, None
        if worker is not None:
            while True:
                try:
                    worker.close(_PATIENCE_MS)
                    break
                except BusyError as error:
                    logger.warning("kvtier: shutting down: %s", error)
            self._report_lost()
        self._rows.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def _report_lost(self) -> None:
        """Jobs that ended with the worker still get their one result, should anybody ask."""
        for job in self._jobs.values():
            self._ready.append(_compat.job_result(job.job_id, False, None, 0.0, 0))
        self._jobs.clear()
        self._asked.clear()

    # ---- earlier names of the interface ----

    get_finished = get_finished_jobs
    request_finished = on_request_finished
    get_request_offloading_context = on_new_request


_compat.check_complete(KvTierSecondaryTier, _compat.SecondaryTierManager)
