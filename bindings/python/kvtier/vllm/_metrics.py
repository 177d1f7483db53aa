# SPDX-License-Identifier: Apache-2.0
"""The metrics of the tier, every one with the label "tier", so that several tiers of one process
share the names. docs/vllm.md explains them."""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from . import _compat

PREFIX = "vllm:kvtier_"
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

# name: (kind, what it tells, labels behind "tier")
DEFINITIONS: Dict[str, Tuple[str, str, Tuple[str, ...]]] = {
    "keys": ("counter", "Chunks by what became of them.", ("operation", "status")),
    "bytes": ("counter", "Bytes of chunks stored or loaded.", ("operation",)),
    "job_seconds": ("histogram", "Time from submitting a job to its end.", ("operation",)),
    "refused_jobs": ("counter", "Jobs that a full queue refused.", ("operation",)),
    "lookups_timed_out": ("counter", "Lookups that took longer than max_wait_s: misses.", ()),
    "requests": ("counter", "Requests made to the store, retries included.", ()),
    "retries": ("counter", "Requests to the store that were tried again.", ("reason",)),
    "removed_corrupt": ("counter", "Objects removed because they were proven corrupt.", ()),
    "odd_length_misses": ("counter", "Lookups of objects whose length is not a chunk's.", ()),
    "jobs": ("gauge", "Jobs under way.", ()),
    "queued_chunks": ("gauge", "Chunks that wait for a lane.", ("operation",)),
    "staging_used_bytes": ("gauge", "Staging memory in use.", ()),
    "breaker_open": ("gauge", "1 while the store is failing and left alone.", ()),
    "stores_paused": ("gauge", "1 while nothing is stored because the store is full.", ()),
}


def definitions() -> Dict[str, Any]:
    """For build_metric_definitions; none where vLLM has no metrics of tiers."""
    kinds = {
        "counter": _compat.CounterMetadata,
        "gauge": _compat.GaugeMetadata,
        "histogram": _compat.HistogramMetadata,
    }
    if None in kinds.values():
        return {}
    made = {}
    for name, (kind, text, labels) in DEFINITIONS.items():
        values = {"documentation": text, "labelnames": ("tier",) + labels}
        if kind == "histogram":
            values["buckets"] = _SECONDS
        made[PREFIX + name] = kinds[kind](**values)
    return made


class Metrics:
    """Collects until the next `take`."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._new: Optional[Any] = None
        stats = _compat.OffloadingConnectorStats
        self._make = stats if hasattr(stats, "increase_counter") else None
        # Totals of the library's, of which vLLM wants the increase.
        self._totals: Dict[Tuple[str, Tuple[str, ...]], int] = {}

    @property
    def enabled(self) -> bool:
        return self._make is not None

    def _stats(self) -> Any:
        if self._new is None:
            self._new = self._make()
        return self._new

    def count(self, name: str, value: float, *labels: str) -> None:
        if self._make is not None and value:
            self._stats().increase_counter(PREFIX + name, value, (self._label,) + labels)

    def observe(self, name: str, value: float, *labels: str) -> None:
        if self._make is not None:
            self._stats().observe_histogram(PREFIX + name, value, (self._label,) + labels)

    def gauge(self, name: str, value: float, *labels: str) -> None:
        if self._make is not None:
            self._stats().set_gauge(PREFIX + name, value, (self._label,) + labels)

    def total(self, name: str, value: int, *labels: str) -> None:
        """A counter of which only the total is known."""
        key = (name, labels)
        self.count(name, value - self._totals.get(key, 0), *labels)
        self._totals[key] = value

    def take(self) -> Optional[Any]:
        taken, self._new = self._new, None
        return taken
