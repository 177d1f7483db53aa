# SPDX-License-Identifier: Apache-2.0
"""What became of jobs and of their keys."""
from __future__ import annotations

import enum
from array import array
from ctypes import string_at
from typing import Dict, List, Optional, Sequence, Tuple

from . import _abi
from .errors import Error, make_error


class Status(enum.IntEnum):
    """What became of one key, as in ``<kvtier/kvtier.h>``."""

    PENDING = 0
    STORED = 1
    SKIPPED = 2
    LOADED = 3
    LOADED_UNVERIFIED = 4
    HIT = 5
    PARTIAL = 6
    MISS = 7
    UNKNOWN = 8
    CANCELED = 9
    MISSING = 10
    FOREIGN = 11
    MISMATCH = 12
    CORRUPT = 13
    FAILED = 14


class JobKind(enum.IntEnum):
    STORE = 0
    LOAD = 1
    LOOKUP = 2
    OPS = 3


_STATUSES: List[Status] = list(Status)
_KINDS: List[JobKind] = list(JobKind)
# By kind: 1 for each status that is a success.
_TRANSFER_OK = bytes(int(s in (1, 2, 3, 4)) for s in range(256))
_LOOKUP_OK = bytes(int(s in (0, 5, 6, 7)) for s in range(256))
_EMPTY = b""


class Result:
    """The completion of one job.

    ``statuses`` has one byte for each key, in order of the submit call: the value of a
    :class:`Status`. ``errors`` has the code of each key (0 or negative), or is None when the job
    has no error at all. ``bytes`` counts the payload of the keys that succeeded, moved or skipped;
    ``detail`` is one line about the worst key, "" when all is well. ``blocks`` (lookups with
    ``presence``) has, for each key, the first contiguous run of blocks that are there.
    """

    __slots__ = ("job_id", "kind", "status", "error", "attempts", "bytes", "queued_ns",
                 "active_ns", "key_count", "statuses", "errors", "detail", "blocks")

    job_id: int
    kind: JobKind
    status: Status
    error: int
    attempts: int
    bytes: int
    queued_ns: int
    active_ns: int
    key_count: int
    statuses: bytes
    errors: Optional[Sequence[int]]
    detail: str
    blocks: Optional[List[Tuple[int, int]]]

    @property
    def ok(self) -> bool:
        """Whether every key succeeded."""
        return self.error == 0

    @property
    def succeeded(self) -> bytes:
        """One byte for each key: 1 where it succeeded (for lookups: where it could be asked)."""
        return self.statuses.translate(
            _LOOKUP_OK if self.kind is JobKind.LOOKUP else _TRANSFER_OK)

    def count(self, status: Status) -> int:
        """How many keys have this status."""
        return self.statuses.count(int(status))

    def key_status(self, index: int) -> Status:
        return _STATUSES[self.statuses[index]]

    def key_error(self, index: int) -> int:
        """The code of one key, 0 or negative."""
        return self.errors[index] if self.errors is not None else 0

    def exception(self) -> Optional[Error]:
        """The worst key's failure as an exception to raise; None when all is well."""
        if self.error == 0:
            return None
        return make_error(self.error, _abi.lib.kvt_error_class(self.error), self.detail)

    def __repr__(self) -> str:
        counts: Dict[str, int] = {}
        for value in self.statuses:
            name = _STATUSES[value].name.lower()
            counts[name] = counts.get(name, 0) + 1
        return "<kvtier.Result %s %d: %s%s>" % (
            self.kind.name.lower(), self.job_id,
            ", ".join("%d %s" % (n, name) for name, n in counts.items()) or "no keys",
            "; " + self.detail if self.detail else "")


def take_result(address: int, unpack=_abi.RESULT.unpack, size: int = _abi.RESULT.size) -> Result:
    """A struct kvt_result as a Result; the caller releases it."""
    (job_id, kind, status, error, attempts, done, queued, active, count, status_at, error_at,
     detail_at, blocks_at) = unpack(string_at(address, size))
    result = Result()
    result.job_id = job_id
    result.kind = _KINDS[kind]
    result.status = _STATUSES[status]
    result.error = error
    result.attempts = attempts
    result.bytes = done
    result.queued_ns = queued
    result.active_ns = active
    result.key_count = count
    result.statuses = string_at(status_at, count) if count else _EMPTY
    result.errors = None
    result.blocks = None
    if error and count:
        codes = array("h")
        codes.frombytes(string_at(error_at, 2 * count))
        result.errors = codes
    detail = string_at(detail_at)
    result.detail = detail.decode("utf-8", "replace") if detail else ""
    if blocks_at:
        flat = array("I")
        flat.frombytes(string_at(blocks_at, 8 * count))
        result.blocks = list(zip(flat[0::2], flat[1::2]))
    return result
