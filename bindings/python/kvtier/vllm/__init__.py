# SPDX-License-Identifier: Apache-2.0
"""kvtier in vLLM: chunks of the KV cache flow to a bucket or a directory by configuration alone.

``KvTierSecondaryTier``     a secondary tier of TieringOffloadingSpec (the way to begin with)
``KvTierFSBackend``         moves the files of FSOffloadingSpec
``KvTierOffloadingWorker``  device memory straight to the store, for specs of one's own

docs/vllm.md describes them. Without vLLM the classes exist too, on bases of their own:
``python -m kvtier.simulate`` drives the tier that way.
"""
from __future__ import annotations

from .fs_backend import KvTierFSBackend
from .tier import KvTierSecondaryTier
from .worker import KvTierOffloadingWorker, KvTierTransferError

__all__ = [
    "KvTierFSBackend",
    "KvTierOffloadingWorker",
    "KvTierSecondaryTier",
    "KvTierTransferError",
]
