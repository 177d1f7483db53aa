#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that are busy, that close connections and that lose some: all is stored and loaded."""
import os

import live


class Proxies(live.LiveCase):
    def endpoint(self, variable):
        if not os.environ.get(variable):
            self.skip("%s is not set: no such server" % variable)
        return os.environ[variable]

    def replay(self, endpoint, *more):
        where = self.store_of(endpoint) + ["--namespace", "ns"]
        for round_number in range(2):
            result = self.run_json(
                "replay", *where, "--requests", "20", "--block-bytes", "64KiB", *more, live.TRACE
            )[-1]
            self.assertEqual((result["corrupt"], result["errors"]), (0, 0))
            self.assertTrue(result["verified"])
            if round_number == 1:
                self.assertEqual((result["hits"], result["stored"]), (result["blocks"], 0))
        verified = self.run_json(
            "verify", *self.store_of(live.ENDPOINT), "--namespace", "ns.kvtier1"
        )[-1]
        self.assertEqual(verified["whole"], verified["objects"])
        self.assertGreater(verified["whole"], 50)

    def test_a_gateway_that_asks_to_slow_down(self):
        """It answers 503 SlowDown to the fifth request at once, and gets up to 32."""
        endpoint = self.endpoint("KVT_S3_SLOW_ENDPOINT")
        self.replay(endpoint, "--lanes", "4", "--depth", "8", "--concurrency", "4")

    def test_connections_that_are_closed_between_requests(self):
        self.replay(self.endpoint("KVT_S3_CLOSING_ENDPOINT"))

    def test_requests_that_are_refused_and_connections_that_are_reset(self):
        self.replay(self.endpoint("KVT_S3_FAULTY_ENDPOINT"))

    def test_large_objects_through_resets(self):
        where = self.store_of(self.endpoint("KVT_S3_FAULTY_ENDPOINT")) + ["--namespace", "ns"]
        self.run_json("bench", *where, "--op", "both", "--chunk-bytes", "12MiB", "--chunks", "12",
                      "--part-bytes", "5MiB")
        self.assertEqual(self.uploads(), [])


if __name__ == "__main__":
    live.main()
