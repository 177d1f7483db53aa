# SPDX-License-Identifier: Apache-2.0
"""Requests of a service, from a trace in the Mooncake form or made up.

A trace has one JSON object a line; ``hash_ids`` names the blocks of a request's prompt, and the
same number means the same block behind the same prefix.
"""
from __future__ import annotations

import hashlib
import json
import random
from typing import Iterator, List, Optional

_GROUP = (0).to_bytes(4, "big")


def key_of(block: int, salt: bytes = b"") -> bytes:
    """The OffloadKey of one block: a hash of 32 bytes, and group 0."""
    return hashlib.sha256(salt + block.to_bytes(8, "little")).digest() + _GROUP


def read(path: str, limit: Optional[int] = None) -> Iterator[List[int]]:
    """The blocks of each request of a file. ValueError names the line that is no request."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines):
            if limit is not None and number >= limit:
                return
            if line.strip():
                try:
                    yield [int(block) for block in json.loads(line)["hash_ids"]]
                except (ValueError, KeyError, TypeError):
                    raise ValueError("%s: line %d: expected a JSON object with hash_ids, a list of "
                                     "integers" % (path, number + 1)) from None


def made_up(count: int, seed: int) -> Iterator[List[int]]:
    """Conversations that grow turn by turn behind a few system prompts, interleaved."""
    chance = random.Random(seed)
    prompts = [list(range(i * 1000, i * 1000 + chance.randint(2, 8))) for i in range(4)]
    conversations: List[List[int]] = []
    fresh = 1_000_000
    for _ in range(count):
        if not conversations or chance.random() < 0.3:
            conversations.append(list(chance.choice(prompts)))
        conversation = chance.choice(conversations)
        turn = chance.randint(1, 6)
        conversation.extend(range(fresh, fresh + turn))
        fresh += turn
        yield list(conversation)
        if len(conversation) > 60:
            conversations.remove(conversation)
