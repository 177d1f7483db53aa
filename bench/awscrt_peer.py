#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""PUT and GET with aws-c-s3 through Debian's python3-awscrt, the engine under the AWS SDKs.

usage: awscrt_peer.py HOST BUCKET OBJECT_BYTES OBJECTS [IN_FLIGHT=8] [PREFIX=awscrt]

Plain http on port 80, path style, parts of 8 MiB, the keys from AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY. Bodies come from one buffer and go into memory of their own, touched before
the clock starts. Prints a JSON object for the stores and one for the loads, as curl_loop does.
"""
import io
import json
import os
import sys
import threading
import time

from awscrt.auth import AwsCredentialsProvider
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.io import ClientBootstrap, DefaultHostResolver, EventLoopGroup
from awscrt.s3 import S3Client, S3RequestTlsMode, S3RequestType

PART_BYTES = 8 << 20


class Peer:
    def __init__(self, host, bucket, size, in_flight, prefix):
        self.host, self.size, self.path = host, size, f"/{bucket}/{prefix}/{size}/"
        self.data = os.urandom(size)
        self.buffers = [bytearray(b"\7") * size for _ in range(in_flight)]
        self.free = threading.Semaphore(in_flight)
        self.failures = []
        threads = EventLoopGroup(os.cpu_count())
        keys = AwsCredentialsProvider.new_static(os.environ["AWS_ACCESS_KEY_ID"],
                                                 os.environ["AWS_SECRET_ACCESS_KEY"])
        self.client = S3Client(
            bootstrap=ClientBootstrap(threads, DefaultHostResolver(threads)), region="us-east-1",
            tls_mode=S3RequestTlsMode.DISABLED, credential_provider=keys, part_size=PART_BYTES,
            throughput_target_gbps=10.0)

    def begin(self, op, number):
        headers = HttpHeaders([("Host", self.host)])
        path = self.path + str(number)
        got = [0]
        if op == "store":
            headers.add("Content-Length", str(self.size))
            request = HttpRequest("PUT", path, headers, io.BytesIO(self.data))
            buffer, on_body, kind = None, None, S3RequestType.PUT_OBJECT
        else:
            request, kind = HttpRequest("GET", path, headers), S3RequestType.GET_OBJECT
            buffer = self.buffers.pop()

            def on_body(chunk, offset, **_):
                buffer[offset:offset + len(chunk)] = chunk
                got[0] += len(chunk)

        def on_done(error=None, **_):
            if error is not None or (op == "load" and got[0] != self.size):
                self.failures.append(f"{op} of {path}: {error or 'a wrong length'}")
            if buffer is not None:
                self.buffers.append(buffer)
            self.free.release()

        return self.client.make_request(request=request, type=kind, on_body=on_body,
                                        on_done=on_done)

    def run(self, op, count, in_flight):
        wall, cpu = time.monotonic(), time.process_time()
        requests = []
        for number in range(count):
            self.free.acquire()
            requests.append(self.begin(op, number))
        for _ in range(in_flight):
            self.free.acquire()
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        for _ in range(in_flight):
            self.free.release()
        gigabytes = self.size * count / 1e9
        print(json.dumps({"op": op, "GBps": gigabytes / wall, "cpu_s_per_GB": cpu / gigabytes,
                          "seconds": wall}), flush=True)


def main():
    if not 5 <= len(sys.argv) <= 7:
        print(__doc__.splitlines()[2], file=sys.stderr)
        return 2
    host, bucket, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    in_flight = int(sys.argv[5]) if len(sys.argv) > 5 else 8
    peer = Peer(host, bucket, size, in_flight, sys.argv[6] if len(sys.argv) > 6 else "awscrt")
    for op in ("store", "load"):
        peer.run(op, count, in_flight)
        if peer.failures:
            print(f"awscrt_peer: {peer.failures[0]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
