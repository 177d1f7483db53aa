# SPDX-License-Identifier: Apache-2.0
"""kvtier: offload LLM KV-cache chunks to a storage tier and load them back.

    import kvtier

    memory = bytearray(64 * 4096)
    with kvtier.Store("file:///srv/kv", namespace="demo", mode="row") as store, \\
            kvtier.Worker(store) as worker, kvtier.Rows(memory, 4096) as rows:
        worker.submit_store_rows(1, [b"hash-of-chunk-0", b"hash-of-chunk-1"], rows, [0, 1])
        for result in worker.poll(timeout_ms=-1):
            print(result.job_id, result.ok, result.detail)

A :class:`Store` is a place and a namespace in it, a :class:`Worker` moves chunks between it and
memory (:class:`Rows` of a host buffer, or device pointers in a :class:`Transfer`) on threads of
its own. Nothing that submits or polls blocks. Failures are exceptions with the library's one line
of detail, one class for each error class (:class:`Error` is their base); what becomes of single
keys is in a job's :class:`Result`.

After a fork the child must not use what the parent opened: calls raise :class:`ForkError`, closing
is fine.
"""
from __future__ import annotations

from . import _abi
from .device import Device, StreamCompletion, probe_device
from .errors import (BusyError, CanceledError, ClosedError, Code, ConfigurationError,
                     ConflictError, DeadlineError, Error, ErrorClass, ForkError, IntegrityError,
                     InternalError, InvalidArgumentError, MissError, OutOfMemoryError,
                     PermanentError, QueueFullError, ThrottledError, TransientError,
                     UnsupportedError, UsageError)
from .files import (FileOps, IOCompletion, batch_load_blocks, batch_store_blocks, probe_o_direct)
from .keys import PackedKeys
from .memory import Event, Ready, Rows
from .results import JobKind, Result, Status
from .stats import Breaker, Histogram, Stats
from .store import (GcSummary, ListEntry, LogLevel, Mode, ObjectStat, ObjectState, OptionHelp,
                    ProbeLine, Store, StoreInfo, VerifyEntry, VerifySummary, error_from_code,
                    option_help)
from .transfer import ChunkPlan, Transfer, plan_transfer
from .worker import Worker

__version__ = "0.1.0"

#: The version of the loaded library, and its path or name.
library_version: str = _abi.lib.kvt_version().decode()
library_path: str = _abi.path

__all__ = [
    "Breaker", "BusyError", "CanceledError", "ChunkPlan", "ClosedError", "Code",
    "ConfigurationError", "ConflictError", "DeadlineError", "Device", "Error", "ErrorClass",
    "Event", "FileOps", "ForkError", "GcSummary", "Histogram", "IOCompletion", "IntegrityError",
    "InternalError", "InvalidArgumentError", "JobKind", "ListEntry", "LogLevel", "MissError",
    "Mode", "ObjectStat", "ObjectState", "OptionHelp", "OutOfMemoryError", "PackedKeys",
    "PermanentError", "ProbeLine", "QueueFullError", "Ready", "Result", "Rows", "Stats", "Status",
    "Store", "StoreInfo", "StreamCompletion", "ThrottledError", "Transfer", "TransientError",
    "UnsupportedError", "UsageError", "VerifyEntry", "VerifySummary", "Worker",
    "batch_load_blocks", "batch_store_blocks", "error_from_code", "library_path",
    "library_version", "option_help", "plan_transfer", "probe_device", "probe_o_direct",
]
