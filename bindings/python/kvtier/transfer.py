# SPDX-License-Identifier: Apache-2.0
"""Transfers between device pointers and chunks."""
from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from . import _abi
from .errors import InvalidArgumentError
from .keys import Groups, Keys, as_packed
from .memory import Numbers, words


class Transfer:
    """What moves between device memory and chunks, in the field names of vLLM's DevicePointers.

    Group ``g`` has ``group_block_counts[g]`` blocks and ``group_data_ref_counts[g]`` refs; its
    first block is number ``block_indices[g]`` of the request, which decides at which slot of its
    chunk it lies. ``ptrs`` and ``sizes`` are device addresses and byte counts ordered group, then
    ref, then block: numpy or array arrays of 64-bit integers, which are not copied here, or any
    sequence of ints. One key for each chunk that a group with blocks touches, in order.

    The library copies all of it when the transfer is submitted. The memory that ``ptrs`` name is
    lent until the job's completion; ``keep`` is an object that lives until then (the tensors).
    """

    __slots__ = ("packed", "copy_count", "keep", "_native", "_parts")

    def __init__(self, blocks_per_chunk: int, group_block_counts: Numbers,
                 group_data_ref_counts: Sequence[int], block_indices: Numbers, ptrs: Numbers,
                 sizes: Numbers, keys: Keys, *, groups: Groups = 0,
                 keep: object = None) -> None:
        packed = as_packed(keys, groups)
        counts_at, group_count, counts = words(group_block_counts, "group_block_counts", False)
        indices_at, index_count, indices = words(block_indices, "block_indices", True)
        ptrs_at, copy_count, ptrs_kept = words(ptrs, "ptrs", False)
        sizes_at, size_count, sizes_kept = words(sizes, "sizes", False)
        try:
            refs = array("I", [int(n) for n in group_data_ref_counts])
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgumentError("group_data_ref_counts: %s, expected numbers from 0 to "
                                       "2^32 - 1" % error) from None
        for name, length, expected in (("group_data_ref_counts", len(refs), group_count),
                                       ("block_indices", index_count, group_count),
                                       ("sizes", size_count, copy_count)):
            if length != expected:
                raise InvalidArgumentError("%s: %d numbers, expected %d"
                                           % (name, length, expected))
        if not 0 <= blocks_per_chunk < 1 << 32:
            raise InvalidArgumentError("blocks_per_chunk: %d, expected 1 to 2^32 - 1"
                                       % blocks_per_chunk)
        self.packed = packed
        self.copy_count = copy_count
        self.keep = keep
        self._parts = (counts, indices, ptrs_kept, sizes_kept, refs)
        self._native = _abi.TRANSFER.pack(
            _abi.TRANSFER.size, blocks_per_chunk, group_count, counts_at, refs.buffer_info()[0],
            indices_at, ptrs_at, sizes_at, copy_count, packed.address, len(packed))

    @property
    def native(self) -> bytes:
        """A struct kvt_transfer; valid as long as this object."""
        return self._native


@dataclass(frozen=True)
class ChunkPlan:
    """What one chunk of a transfer becomes. ``copies`` are (pointer, bytes, object offset)."""

    key_index: int
    group: int
    first_slot: int
    block_count: int
    ref_count: int
    payload_bytes: int
    copies: List[Tuple[int, int, int]]


def plan_transfer(transfer: Transfer, is_store: bool) -> List[ChunkPlan]:
    """Checks a transfer as submitting it does and says what its chunks are, in order of keys. The
    memory is not touched."""
    plans: List[ChunkPlan] = []
    failures: List[BaseException] = []

    def take(_context: Optional[int], address: int) -> int:
        try:
            native = _abi.ChunkPlan.from_address(address)
            flat = native.copies[:3 * native.copy_count]
            plans.append(ChunkPlan(native.key_index, native.group, native.first_slot,
                                   native.block_count, native.ref_count, native.payload_bytes,
                                   list(zip(flat[0::3], flat[1::3], flat[2::3]))))
            return 0
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)
            return 1

    callback = _abi.PLAN_FUNCTION(take)
    code = _abi.lib.kvt_plan_transfer(transfer.native, int(is_store), callback, None)
    if failures:
        raise failures[0]
    _abi.check(code)
    return plans
