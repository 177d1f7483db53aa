# SPDX-License-Identifier: Apache-2.0
"""What test_wheel.sh runs in a root folder that has Python and the package in /site, and hardly
anything else: bare_root.py without | with URL."""
import sys

sys.path.insert(0, "/site")
import kvtier  # noqa: E402  (after its place)

ROW = 4096


def store_and_load(uri, **options):
    memory = bytearray(b"".join(bytes([i]) * ROW for i in range(8)))
    keys = [b"key %d" % i for i in range(8)]
    with kvtier.Store(uri, namespace="bare", mode="row", options=options) as store, \
            kvtier.Worker(store) as worker, kvtier.Rows(memory, ROW) as rows:
        store.probe()
        worker.submit_store_rows(1, keys, rows, range(8))
        (stored,) = worker.poll(timeout_ms=60000)
        assert stored.ok, stored
        worker.submit_load_rows(2, keys, rows, range(7, -1, -1))
        (loaded,) = worker.poll(timeout_ms=60000)
        assert loaded.ok, loaded
        assert memory == b"".join(bytes([i]) * ROW for i in range(7, -1, -1))
        return store.info.backend_detail


def main():
    assert kvtier.library_path.startswith("/site/kvtier/_lib/"), kvtier.library_path
    print("mem: " + store_and_load("mem:"))
    print("file: " + store_and_load("file:///tmp/store"))
    if sys.argv[1] == "without":
        try:
            kvtier.Store("s3://bucket/prefix", namespace="bare")
        except kvtier.ConfigurationError as error:
            print("s3: " + str(error))
            assert error.code is kvtier.Code.EMODULE
            assert "libcurl4" in str(error) or "libssl3" in str(error)
            return
        raise AssertionError("s3 works without libcurl")
    print("s3: " + store_and_load("s3://test/prefix", endpoint=sys.argv[2], region="us-east-1",
                                  access_key="key-of-the-test", secret_key="secret-of-the-test"))
    assert {option.name for option in kvtier.option_help("s3://bucket")} > {"endpoint", "region"}


main()
