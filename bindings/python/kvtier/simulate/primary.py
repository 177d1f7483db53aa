# SPDX-License-Identifier: Apache-2.0
"""The primary tier of the simulation: N rows of shared memory, least recently used first to go.

It is also the witness of what the tier under test does to rows: a row that is nobody's carries a
mark that must still be there when it is given out again, and a row that holds a chunk must hold
exactly the chunk's bytes whenever it is read.
"""
from __future__ import annotations

import mmap
from collections import OrderedDict
from typing import Dict, List, Optional

import numpy

_ODD = numpy.uint64(0x9E3779B97F4A7C15)


class ContractError(AssertionError):
    """The tier has done what vLLM's contract forbids, or bytes were wrong."""


class Primary:
    def __init__(self, row_count: int, row_bytes: int) -> None:
        if row_count < 1 or row_bytes < 8 or row_bytes % 8:
            raise ValueError(
                "rows: %d of %d bytes, expected at least one of a multiple of 8 bytes"
                % (row_count, row_bytes)
            )
        self.row_bytes = row_bytes
        self.row_count = row_count
        self._memory = mmap.mmap(-1, row_count * row_bytes)
        # What vLLM hands to tiers: two-dimensional, int8, writable.
        self.view = memoryview(self._memory).cast("b", (row_count, row_bytes))
        self._rows = numpy.frombuffer(self._memory, dtype=numpy.uint64).reshape(row_count, -1)
        self._steps = numpy.arange(row_bytes // 8, dtype=numpy.uint64) * _ODD
        self._free: List[int] = list(range(row_count))
        # Rows that hold a chunk, by key, the least recently used first; and all pins.
        self.ready: "OrderedDict[bytes, int]" = OrderedDict()
        self._pins: Dict[int, int] = {}
        self.evictions = 0
        self.verified_bytes = 0
        for row in range(row_count):
            self._mark(row)

    # ---- bytes ----

    def _pattern(self, seed: int) -> numpy.ndarray:
        """Eight bytes a number, different everywhere and for each seed."""
        return self._steps ^ numpy.uint64(seed)

    def _mark(self, row: int) -> None:
        self._rows[row] = self._pattern(row)

    @staticmethod
    def _seed(key: bytes) -> int:
        return int.from_bytes(key[:8], "little") | 1 << 63

    def fill(self, row: int, key: bytes) -> None:
        """As if the chunk had come from the GPU."""
        self._rows[row] = self._pattern(self._seed(key))

    def verify(self, row: int, key: bytes) -> None:
        if not numpy.array_equal(self._rows[row], self._pattern(self._seed(key))):
            raise ContractError("row %d: not the bytes of chunk %s" % (row, key.hex()))
        self.verified_bytes += self.row_bytes

    def check_free(self) -> None:
        """Nobody has touched rows that are nobody's."""
        for row in self._free:
            self._check_mark(row)

    def mark_all(self) -> None:
        for row in range(self.row_count):
            self._mark(row)

    def check_all(self) -> None:
        for row in range(self.row_count):
            self._check_mark(row)

    def _check_mark(self, row: int) -> None:
        if not numpy.array_equal(self._rows[row], self._pattern(row)):
            raise ContractError("row %d: written to after its job's result" % row)

    # ---- rows ----

    def allocate(self) -> Optional[int]:
        """A pinned row; None when all are pinned."""
        if self._free:
            row = self._free.pop()
            self._check_mark(row)
        else:
            key = next((k for k, r in self.ready.items() if not self._pins.get(r)), None)
            if key is None:
                return None
            row = self.ready.pop(key)
            self.verify(row, key)
            self.evictions += 1
        self._pins[row] = 1
        return row

    def hold(self, key: bytes, row: int) -> None:
        """The row holds this chunk from now on; its pin stays."""
        self.ready[key] = row

    def use(self, key: bytes) -> int:
        """The row of a chunk, pinned once more and most recently used."""
        row = self.ready[key]
        self.ready.move_to_end(key)
        self._pins[row] = self._pins.get(row, 0) + 1
        return row

    def unpin(self, row: int) -> None:
        self._pins[row] -= 1

    def give_back(self, row: int) -> None:
        """A pinned row that holds nothing after all."""
        if self._pins.pop(row) != 1:
            raise AssertionError("row %d: given back while pinned elsewhere" % row)
        self._mark(row)
        self._free.append(row)

    def clear(self) -> None:
        """Forgets all chunks. Nothing is pinned then."""
        if any(self._pins.values()):
            raise AssertionError("rows are pinned while the cache is reset")
        self._pins.clear()
        for row in self.ready.values():
            self._mark(row)
            self._free.append(row)
        self.ready.clear()

    def release(self) -> None:
        """What vLLM does last, and then the memory goes: while anything is exported, it fails."""
        del self._rows
        try:
            self.view.release()
            self._memory.close()
        except BufferError as error:
            raise ContractError("the rows are still exported after shutdown: %s" % error) from None
