# SPDX-License-Identifier: Apache-2.0
"""The C ABI of <kvtier/kvtier.h> in ctypes: structures, callback types and prototypes.

What the path of a job passes (rows, transfers, options, keys, results) is packed and unpacked with
``struct`` instead, by the formats below: building a ctypes structure costs several times as much.
tests/test_abi.py compares every size and offset with what the C compiler says.
"""
from __future__ import annotations

import ctypes
import struct
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int,
                    c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p)

from . import _library
from .errors import Error, make_error

lib, quick, path = _library.load()

# struct kvt_rows: struct_size, base, stride_bytes, row_count, row_indices, keys, key_count
ROWS = struct.Struct("=7Q")
# struct kvt_submit_options: struct_size, timeout_ms, expedited, lookup_flags, ready
SUBMIT_OPTIONS = struct.Struct("=QQIIIiQ")
# struct kvt_transfer: struct_size, blocks_per_chunk, group_count, group_block_counts,
# group_data_ref_counts, block_indices, ptrs, sizes, copy_count, keys, key_count
TRANSFER = struct.Struct("=QII8Q")
# struct kvt_geometry: struct_size, blocks_per_chunk, ref_count, ref_bytes
GEOMETRY = struct.Struct("=QIIQ")
# struct kvt_result: job_id, kind, status, error, attempts, bytes, queued_ns, active_ns, key_count,
# key_status, key_error, detail, key_blocks
RESULT = struct.Struct("=QIIiI8Q")
# struct kvt_file_op: device_ptr, size_bytes, file_offset
FILE_OP = struct.Struct("=3Q")
# struct kvt_file_ops: path, ops, op_count
FILE_OPS = struct.Struct("=3Q")
HISTOGRAM_BUCKETS = 160
STATUS_COUNT = 16
CLASS_COUNT = 16

LOG_FUNCTION = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
LIST_FUNCTION = CFUNCTYPE(c_int, c_void_p, c_void_p)
VERIFY_FUNCTION = CFUNCTYPE(c_int, c_void_p, c_void_p)
PROBE_FUNCTION = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_int)
OPTION_HELP_FUNCTION = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_char_p)
THREAD_INIT_FUNCTION = CFUNCTYPE(c_int, c_void_p, c_uint32)
PLAN_FUNCTION = CFUNCTYPE(c_int, c_void_p, c_void_p)


class Sized(Structure):
    """A structure that begins with struct_size, which is set."""

    def __init__(self, **members: object) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


class Hooks(Structure):
    _fields_ = [("log", LOG_FUNCTION), ("log_context", c_void_p), ("log_level", c_int),
                ("alloc", c_void_p), ("free", c_void_p), ("allocator_context", c_void_p)]


class Option(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Key(Structure):
    _fields_ = [("hash", c_void_p), ("hash_bytes", c_uint32), ("group", c_uint32)]


class StoreOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("uri", c_char_p), ("options", POINTER(Option)),
                ("option_count", c_size_t), ("namespace_name", c_char_p),
                ("fields_json", c_char_p), ("fields", c_void_p), ("rank", c_uint32),
                ("mode", c_uint32), ("hooks", Hooks)]


class StoreInfo(Sized):
    _fields_ = [("struct_size", c_size_t), ("uri", c_char_p), ("backend", c_char_p),
                ("canonical", c_char_p), ("base_name", c_char_p),
                ("namespace_digest", c_uint8 * 8), ("rank", c_uint32), ("mode", c_uint32),
                ("min_part_bytes", c_uint64), ("max_part_bytes", c_uint64),
                ("max_object_bytes", c_uint64), ("max_parts", c_uint32), ("max_iov", c_uint32),
                ("memory_alignment", c_uint32), ("capabilities", c_uint32),
                ("backend_detail", c_char_p)]


class ObjectStat(Sized):
    _fields_ = [("struct_size", c_size_t), ("state", c_uint32), ("format_version", c_uint32),
                ("object_bytes", c_uint64), ("payload_bytes", c_uint64),
                ("trailer_bytes", c_uint64), ("blocks_per_chunk", c_uint32),
                ("ref_count", c_uint32), ("slot_count", c_uint32), ("present_slots", c_uint32),
                ("rank", c_uint32), ("group", c_uint32), ("hash_bytes", c_uint32),
                ("hash", c_uint8 * 64), ("namespace_digest", c_uint8 * 8), ("age_ns", c_int64),
                ("access_age_ns", c_int64), ("ref_bytes", POINTER(c_uint64)),
                ("presence", POINTER(c_uint8))]


class ListEntry(Structure):
    _fields_ = [("name", c_char_p), ("key", Key), ("object_bytes", c_uint64),
                ("age_ns", c_int64), ("access_age_ns", c_int64)]


class VerifyOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("remove_corrupt", c_uint32)]


class VerifySummary(Sized):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in
        ("objects", "bytes", "whole", "partial", "mismatch", "foreign", "corrupt",
         "unknown_format", "unreadable", "vanished", "removed")]


class VerifyEntry(Structure):
    _fields_ = [("name", c_char_p), ("state", c_uint32), ("error", c_int),
                ("object_bytes", c_uint64), ("detail", c_char_p)]


class GcOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("max_bytes", c_uint64), ("older_than_ns", c_uint64),
                ("whole_root", c_uint32), ("dry_run", c_uint32), ("leftover_age_ns", c_uint64),
                ("leftovers_only", c_uint32), ("reserved", c_uint32)]


class GcSummary(Sized):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in
        ("objects", "bytes", "removed_objects", "removed_bytes", "removed_leftovers")]


class DeviceOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("ordinal", c_uint32),
                ("hooks", Hooks)]


class WorkerOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("lanes", c_uint32), ("depth", c_uint32),
                ("staging_bytes", c_uint64), ("part_bytes", c_uint64), ("queue_chunks", c_uint64),
                ("store_timeout_ms", c_uint64), ("load_timeout_ms", c_uint64),
                ("lookup_timeout_ms", c_uint64), ("operation_timeout_ms", c_uint64),
                ("buffer_timeout_ms", c_uint64), ("attempts", c_uint32),
                ("retry_base_ms", c_uint32), ("retry_max_ms", c_uint32),
                ("breaker_failures", c_uint32), ("breaker_open_ms", c_uint32),
                ("keep_corrupt", c_uint32), ("thread_init", THREAD_INIT_FUNCTION),
                ("thread_init_context", c_void_p), ("hooks", Hooks),
                ("staging_memory", c_void_p)]


class Histogram(Structure):
    _fields_ = [("count", c_uint64), ("sum_ns", c_uint64),
                ("buckets", c_uint64 * HISTOGRAM_BUCKETS)]


class Stats(Sized):
    _fields_ = [("struct_size", c_size_t), ("keys", c_uint64 * STATUS_COUNT * 4),
                ("bytes", c_uint64 * 4), ("jobs_submitted", c_uint64),
                ("jobs_completed", c_uint64), ("jobs_refused", c_uint64), ("requests", c_uint64),
                ("retries", c_uint64 * CLASS_COUNT), ("removed_corrupt", c_uint64),
                ("merges", c_uint64), ("odd_length_misses", c_uint64),
                ("zero_bytes_sent", c_uint64), ("crc_bytes", c_uint64),
                ("queued_chunks", c_uint64 * 4), ("active_chunks", c_uint64),
                ("requests_in_flight", c_uint64), ("jobs_live", c_uint64),
                ("staging_bytes", c_uint64), ("staging_used_bytes", c_uint64),
                ("staging_peak_bytes", c_uint64), ("staging_waiters", c_uint64),
                ("breaker", c_uint32), ("stores_paused", c_uint32), ("queue_ns", Histogram),
                ("device_ns", Histogram), ("storage_ns", Histogram), ("last_error", c_int),
                ("last_error_detail", c_char * 256), ("dropped_bytes", c_uint64),
                ("backend", c_char * 256)]


class BatchResult(Sized):
    _fields_ = [("struct_size", c_size_t), ("succeeded", c_size_t), ("error_index", c_size_t)]


class ChunkPlan(Structure):
    _fields_ = [("key_index", c_uint64), ("group", c_uint32), ("first_slot", c_uint32),
                ("block_count", c_uint32), ("ref_count", c_uint32), ("payload_bytes", c_uint64),
                ("copies", POINTER(c_uint64)), ("copy_count", c_uint64)]


_P = c_void_p
# Those that may block, or whose cost does not matter.
_PROTOTYPES = {
    "kvt_version": (c_char_p, ()),
    "kvt_error_class": (c_int, (c_int,)),
    "kvt_error_class_name": (c_char_p, (c_int,)),
    "kvt_error_name": (c_char_p, (c_int,)),
    "kvt_error_text": (c_char_p, (c_int,)),
    "kvt_store_open": (c_int, (POINTER(StoreOptions), POINTER(_P))),
    "kvt_store_close": (c_int, (_P,)),
    "kvt_store_object_name": (c_int, (_P, _P, _P, c_size_t)),
    "kvt_store_get_info": (c_int, (_P, POINTER(StoreInfo))),
    "kvt_store_stat": (c_int, (_P, _P, POINTER(ObjectStat))),
    "kvt_object_stat_clear": (None, (POINTER(ObjectStat),)),
    "kvt_store_list": (c_int, (_P, LIST_FUNCTION, _P)),
    "kvt_store_remove": (c_int, (_P, _P)),
    "kvt_store_verify": (c_int, (_P, POINTER(VerifyOptions), VERIFY_FUNCTION, _P,
                                 POINTER(VerifySummary))),
    "kvt_store_gc": (c_int, (_P, POINTER(GcOptions), POINTER(GcSummary))),
    "kvt_store_probe": (c_int, (_P, PROBE_FUNCTION, _P)),
    "kvt_store_option_help": (c_int, (c_char_p, OPTION_HELP_FUNCTION, _P)),
    "kvt_device_open": (c_int, (POINTER(DeviceOptions), POINTER(_P))),
    "kvt_device_close": (c_int, (_P,)),
    "kvt_device_probe": (c_int, (POINTER(DeviceOptions), PROBE_FUNCTION, _P)),
    "kvt_event_create": (c_int, (POINTER(_P),)),
    "kvt_event_destroy": (None, (_P,)),
    "kvt_stream_completion_wait": (c_int, (_P, c_int64)),
    "kvt_worker_create": (c_int, (_P, _P, POINTER(WorkerOptions), POINTER(_P))),
    "kvt_worker_destroy": (c_int, (_P, c_int64)),
    "kvt_worker_wait": (c_int, (_P, _P, c_size_t, c_int64, _P)),
    "kvt_worker_wait_memory": (c_int, (_P, _P, c_size_t, c_int64, _P)),
    "kvt_worker_drain": (c_int, (_P, c_int64)),
    "kvt_io_completion_wait": (c_int, (_P, c_int64)),
    "kvt_plan_transfer": (c_int, (c_char_p, c_int, PLAN_FUNCTION, _P)),
    "kvt_probe_o_direct": (c_int, (c_char_p,)),
    "kvt_batch_store_block": (c_int, (POINTER(c_char_p), _P, c_size_t, _P, c_size_t, c_size_t,
                                      c_int, POINTER(BatchResult))),
    "kvt_batch_load_block": (c_int, (POINTER(c_char_p), _P, c_size_t, _P, c_size_t, c_size_t,
                                     c_int, POINTER(BatchResult))),
    "kvt_histogram_percentile": (c_uint64, (POINTER(Histogram), c_double)),
}
# Those that never block: microseconds.
_QUICK_PROTOTYPES = {
    "kvt_error_detail": (c_char_p, ()),
    "kvt_event_signal": (None, (_P,)),
    "kvt_stream_completion_create": (c_int, (_P, _P, POINTER(_P))),
    "kvt_stream_completion_done": (c_int, (_P,)),
    "kvt_stream_completion_event": (_P, (_P,)),
    "kvt_stream_completion_release": (None, (_P,)),
    "kvt_worker_submit_store": (c_int, (_P, c_uint64, c_char_p, c_char_p)),
    "kvt_worker_submit_load": (c_int, (_P, c_uint64, c_char_p, c_char_p)),
    "kvt_worker_submit_store_rows": (c_int, (_P, c_uint64, c_char_p, c_char_p)),
    "kvt_worker_submit_load_rows": (c_int, (_P, c_uint64, c_char_p, c_char_p)),
    "kvt_worker_set_geometry": (c_int, (_P, c_uint32, c_char_p)),
    "kvt_worker_submit_lookup": (c_int, (_P, c_uint64, _P, c_uint64, c_char_p)),
    "kvt_worker_poll": (c_int, (_P, _P, c_int)),
    "kvt_result_release": (None, (_P,)),
    "kvt_worker_cancel": (c_int, (_P, c_uint64)),
    "kvt_worker_event_fd": (c_int, (_P,)),
    "kvt_worker_submit_ops": (c_int, (_P, _P, c_size_t, c_int, c_char_p, POINTER(_P))),
    "kvt_io_completion_done": (c_int, (_P,)),
    "kvt_io_completion_result": (c_int, (_P, POINTER(c_char_p))),
    "kvt_io_completion_release": (None, (_P,)),
    "kvt_worker_stats": (c_int, (_P, POINTER(Stats))),
}

# Submitting this many keys takes long enough that other threads should run meanwhile.
MANY_KEYS = 4096
_SUBMITS = ("kvt_worker_submit_store", "kvt_worker_submit_load", "kvt_worker_submit_store_rows",
            "kvt_worker_submit_load_rows", "kvt_worker_submit_lookup", "kvt_worker_submit_ops")


def _declare(handle: ctypes.CDLL, name: str, result: object, arguments: tuple) -> None:
    try:
        function = getattr(handle, name)
    except AttributeError:
        raise ImportError("kvtier: %s: has no function %s" % (path, name)) from None
    function.restype = result
    function.argtypes = arguments


for _name, (_result, _arguments) in _PROTOTYPES.items():
    _declare(lib, _name, _result, _arguments)
for _name, (_result, _arguments) in _QUICK_PROTOTYPES.items():
    _declare(quick, _name, _result, _arguments)
    if _name in _SUBMITS:
        _declare(lib, _name, _result, _arguments)


def failure(code: int) -> Error:
    """The exception for a call on this thread that has just returned `code`."""
    detail = quick.kvt_error_detail()
    if not detail:
        detail = lib.kvt_error_text(code)
    return make_error(code, lib.kvt_error_class(code), detail.decode("utf-8", "replace"))


def check(code: int) -> int:
    """`code` when it is no error, else raises."""
    if code < 0:
        raise failure(code)
    return code


def text(value: bytes) -> str:
    """A string of the library's; "" for NULL."""
    return value.decode("utf-8", "surrogateescape") if value else ""
