# SPDX-License-Identifier: Apache-2.0
"""The few classes that the tier and the worker exchange with vLLM, for processes without vLLM.

``kvtier.simulate`` and programs that drive the tier by themselves use them. Where vLLM is installed
its own classes are used and nothing in here is.
"""
from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Collection, Optional


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


@dataclass
class ReqContext:
    req_id: str
    kv_transfer_params: Optional[dict] = None


@dataclass
class RequestOffloadingContext:
    policy: Any = None


@dataclass
class ScheduleEndContext:
    new_req_ids: Collection[str] = ()
    preempted_req_ids: Collection[str] = ()


@dataclass
class TransferJob:
    job_id: int
    keys: Collection[bytes]
    chunk_ids: Any
    is_promotion: bool
    req_context: ReqContext


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Optional[Collection[bytes]] = None
    transfer_time: Optional[float] = None
    transfer_bytes: Optional[int] = None


@dataclass
class TransferResult:
    job_id: int
    success: bool
    transfer_size: Optional[int] = None
    transfer_time: Optional[float] = None


@dataclass
class OffloadingEvent:
    keys: list
    medium: Medium
    removed: bool
    locality: Optional[Locality] = None


@dataclass(frozen=True)
class OffloadingMetricMetadata:
    documentation: str
    labelnames: tuple = ()


@dataclass(frozen=True)
class OffloadingCounterMetadata(OffloadingMetricMetadata):
    pass


@dataclass(frozen=True)
class OffloadingGaugeMetadata(OffloadingMetricMetadata):
    pass


@dataclass(frozen=True)
class OffloadingHistogramMetadata(OffloadingMetricMetadata):
    buckets: Optional[tuple] = None


@dataclass
class OffloadingConnectorStats:
    """What has been observed since the last call, by metric name and label values."""

    counters: dict = field(default_factory=dict)
    gauges: dict = field(default_factory=dict)
    histograms: dict = field(default_factory=dict)

    def increase_counter(self, name: str, value: float = 1, labelvalues: tuple = ()) -> None:
        series = self.counters.setdefault(name, {})
        series[labelvalues] = series.get(labelvalues, 0) + value

    def set_gauge(self, name: str, value: float, labelvalues: tuple = ()) -> None:
        self.gauges.setdefault(name, {})[labelvalues] = value

    def observe_histogram(self, name: str, value: float, labelvalues: tuple = ()) -> None:
        self.histograms.setdefault(name, {}).setdefault(labelvalues, []).append(value)

    def is_empty(self) -> bool:
        return not (self.counters or self.gauges or self.histograms)


class SecondaryTierManager:
    medium: Optional[Medium] = None

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str) -> None:
        self._offloading_spec = offloading_spec
        self._primary_kv_view = primary_kv_view
        self.tier_type = tier_type
        self.locality: Optional[Locality] = None


class OffloadingWorker:
    pass
