# SPDX-License-Identifier: Apache-2.0
"""python -m kvtier.simulate: see the package."""
from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Dict, List, Optional

from .. import Error
from . import ContractError, simulate, trace

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(text: str) -> int:
    digits = text.rstrip("iB")
    unit = _UNITS.get(digits[-1:].upper())
    return int(digits[:-1]) * unit if unit else int(digits)


def _arguments(arguments: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kvtier.simulate",
        description="Acts on the tier as vLLM's scheduler does, without a GPU, and compares every "
        "byte. Exit status 1: the tier has broken its contract.",
    )
    parser.add_argument("trace", nargs="?", help="requests, one JSON object with hash_ids a line; "
                        "made up when missing")
    parser.add_argument("--store", required=True, help="file:///directory or s3://bucket/prefix")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of the store")
    parser.add_argument("--config", help="more of the tier's configuration, as JSON")
    parser.add_argument("--requests", type=int, help="at most so many (made up: 200)")
    parser.add_argument("--rows", type=int, default=256, help="of the primary tier (256)")
    parser.add_argument("--row-bytes", type=_bytes, default=1 << 18, help="of one row (256K)")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at once (8)")
    parser.add_argument("--abort-share", type=float, default=0.02,
                        help="share of requests that are aborted while they wait (0.02)")
    parser.add_argument("--reset-every", type=int, default=500,
                        help="requests between resets of the cache, 0: none (500)")
    parser.add_argument("--passes", type=int, default=1,
                        help="how often the trace is served, each time by a new tier (1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object for each pass")
    return parser.parse_args(arguments)


def _tier(options: argparse.Namespace) -> Dict[str, Any]:
    made = json.loads(options.config) if options.config else {}
    if not isinstance(made, dict) or not isinstance(made.get("options", {}), dict):
        raise ValueError("--config: expected a JSON object, and an object for its options")
    made["store"] = options.store
    pairs = (option.partition("=") for option in options.option)
    made["options"] = dict(made.get("options", {}), **{name: value for name, _, value in pairs})
    return made


def _print(number: int, done: Dict[str, Any]) -> None:
    calls = done.pop("calls")
    print("pass %d: %s" % (number, ", ".join("%s %s" % item for item in done.items())))
    for name, times in calls.items():
        print("  %-20s %8d calls, us: p50 %8.1f, p99 %8.1f, max %8.1f"
              % (name, times["calls"], times["p50_us"], times["p99_us"], times["max_us"]))


def main(arguments: Optional[List[str]] = None) -> int:
    options = _arguments(arguments)
    for number in range(1, options.passes + 1):
        if options.trace:
            blocks = trace.read(options.trace, options.requests)
        else:
            blocks = trace.made_up(options.requests or 200, options.seed)
        requests = ([trace.key_of(block) for block in request] for request in blocks)
        try:
            done = simulate(
                requests,
                rows=options.rows,
                row_bytes=options.row_bytes,
                tier=_tier(options),
                concurrency=options.concurrency,
                abort_share=options.abort_share,
                reset_every=options.reset_every,
                seed=options.seed + number,
            )
        except ContractError as error:
            print("kvtier.simulate: broken contract: %s" % error, file=sys.stderr)
            return 1
        except (Error, RuntimeError, ValueError, OSError) as error:
            print("kvtier.simulate: %s" % error, file=sys.stderr)
            return 2
        if options.json:
            print(json.dumps(dict(done, number=number)))
        else:
            _print(number, done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
