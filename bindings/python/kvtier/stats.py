# SPDX-License-Identifier: Apache-2.0
"""Counters and latencies of a worker."""
from __future__ import annotations

import ctypes
import enum
from typing import Any, Dict, Tuple

from . import _abi
from .errors import Code, ErrorClass
from .results import JobKind, Status


class Breaker(enum.IntEnum):
    """The circuit breaker: OPEN means that the store is failing and is left alone for a while."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2


class Histogram:
    """Latencies. ``buckets`` has four for each power of two, see ``struct kvt_histogram``."""

    __slots__ = ("count", "sum_ns", "buckets")

    def __init__(self, count: int, sum_ns: int, buckets: Tuple[int, ...]) -> None:
        self.count = count
        self.sum_ns = sum_ns
        self.buckets = buckets

    @property
    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else 0.0

    def percentile_ns(self, fraction: float) -> int:
        """The upper bound of the bucket that holds this fraction (0 to 1); 0 when empty."""
        native = _abi.Histogram(self.count, self.sum_ns,
                                (ctypes.c_uint64 * _abi.HISTOGRAM_BUCKETS)(*self.buckets))
        return int(_abi.lib.kvt_histogram_percentile(ctypes.byref(native), fraction))

    def as_dict(self) -> Dict[str, float]:
        return {"count": self.count, "sum_ns": self.sum_ns, "p50_ns": self.percentile_ns(0.5),
                "p99_ns": self.percentile_ns(0.99)}

    def __repr__(self) -> str:
        return "<kvtier.Histogram %d values, mean %.0f ns>" % (self.count, self.mean_ns)


_COUNTERS = ("jobs_submitted", "jobs_completed", "jobs_refused", "requests", "removed_corrupt",
             "merges", "odd_length_misses", "zero_bytes_sent", "crc_bytes", "active_chunks",
             "requests_in_flight", "jobs_live", "staging_bytes", "staging_used_bytes",
             "staging_peak_bytes", "staging_waiters", "stores_paused", "dropped_bytes")


class Stats:
    """A worker's statistics at one moment, with the members of ``struct kvt_stats``: those that
    count have done so since the worker was created, those that measure say what is now.

    Making one costs a few microseconds; the tables and histograms are built when they are asked
    for. ``as_dict()`` has everything, ready for JSON.
    """

    __slots__ = ("_native",)

    jobs_submitted: int
    jobs_completed: int
    jobs_refused: int
    requests: int
    removed_corrupt: int
    merges: int
    odd_length_misses: int
    zero_bytes_sent: int
    crc_bytes: int
    active_chunks: int
    requests_in_flight: int
    jobs_live: int
    staging_bytes: int
    staging_used_bytes: int
    staging_peak_bytes: int
    staging_waiters: int
    stores_paused: int
    dropped_bytes: int

    def __init__(self, native: "_abi.Stats") -> None:
        self._native = native

    def __getattr__(self, name: str) -> int:
        if name in _COUNTERS:
            return getattr(self._native, name)
        raise AttributeError(name)

    def count(self, kind: JobKind, *statuses: Status) -> int:
        """Finished keys (files for OPS) of one kind with one of these statuses."""
        row = self._native.keys[kind]
        return sum(row[status] for status in statuses)

    @property
    def keys(self) -> Dict[JobKind, Dict[Status, int]]:
        """Finished keys by kind of job and status; what is zero is left out."""
        return {kind: {status: self._native.keys[kind][status] for status in Status
                       if self._native.keys[kind][status]} for kind in JobKind}

    @property
    def bytes(self) -> Dict[JobKind, int]:
        """Payload bytes of successful keys by kind, skipped ones excluded."""
        return {kind: self._native.bytes[kind] for kind in JobKind}

    @property
    def retries(self) -> Dict[ErrorClass, int]:
        """Requests tried again by class of error; what is zero is left out."""
        return {kind: self._native.retries[kind] for kind in ErrorClass
                if self._native.retries[kind]}

    @property
    def queued_chunks(self) -> Dict[str, int]:
        """Chunks that wait, by queue."""
        return dict(zip(("lookups", "expedited", "loads", "stores"), self._native.queued_chunks))

    @property
    def breaker(self) -> Breaker:
        return Breaker(self._native.breaker)

    def _histogram(self, name: str) -> Histogram:
        native = getattr(self._native, name)
        return Histogram(native.count, native.sum_ns, tuple(native.buckets))

    @property
    def queue_ns(self) -> Histogram:
        """Latencies of chunks: waiting in the queue."""
        return self._histogram("queue_ns")

    @property
    def device_ns(self) -> Histogram:
        """Latencies of chunks: device copies."""
        return self._histogram("device_ns")

    @property
    def storage_ns(self) -> Histogram:
        """Latencies of chunks: storage requests."""
        return self._histogram("storage_ns")

    @property
    def last_error(self) -> int:
        """The code of the last failure of a key, 0 if none."""
        code = self._native.last_error
        try:
            return Code(code)
        except ValueError:
            return code

    @property
    def last_error_detail(self) -> str:
        return _abi.text(self._native.last_error_detail)

    @property
    def backend(self) -> str:
        """What the backend has learnt since the store was opened, name=value pairs in one line."""
        return _abi.text(self._native.backend)

    def as_dict(self) -> Dict[str, Any]:
        """Everything as plain numbers, strings and dictionaries with lower-case names."""
        values: Dict[str, Any] = {name: getattr(self._native, name) for name in _COUNTERS}
        values["keys"] = {kind.name.lower(): {s.name.lower(): n for s, n in row.items()}
                          for kind, row in self.keys.items()}
        values["bytes"] = {kind.name.lower(): n for kind, n in self.bytes.items()}
        values["retries"] = {kind.name.lower(): n for kind, n in self.retries.items()}
        values["queued_chunks"] = self.queued_chunks
        values["breaker"] = self.breaker.name.lower()
        for name in ("queue_ns", "device_ns", "storage_ns"):
            values[name] = self._histogram(name).as_dict()
        values["last_error"] = int(self._native.last_error)
        values["last_error_detail"] = self.last_error_detail
        values["backend"] = self.backend
        return values

    def __repr__(self) -> str:
        return "<kvtier.Stats %d jobs live, %d submitted, %d completed>" % (
            self.jobs_live, self.jobs_submitted, self.jobs_completed)
