#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command-line tool on a real object store."""
import json
import os
import time
import urllib.parse

import live

# More than one part of the smallest size that there is.
LARGE = 12 * live.MIB + 4097
PART = 5 * live.MIB


class Objects(live.LiveCase):
    def test_objects_come_back_as_they_were_stored(self):
        for key, size in (("00000001", 1), ("00000002", 300001), ("00000003", LARGE)):
            data = live.some_bytes(size)
            self.assertEqual(self.put(key, data, "-o", "part_bytes=%d" % PART), "stored")
            self.assertEqual(self.get(key), data)
            self.assertEqual(self.get(key, "-o", "part_bytes=%d" % PART), data)
            self.assertEqual(self.put(key, data), "skipped")
            stat = self.run_json("stat", *self.common, key)[0]
            self.assertEqual((stat["state"], stat["payload_bytes"]), ("whole", size))
            head = self.s3.head_object(Bucket=live.BUCKET, Key=self.name_of(key))
            self.assertEqual(head["ContentLength"], stat["object_bytes"])
            # "-3" behind an ETag: it was put together from three parts.
            self.assertEqual(head["ETag"].strip('"').endswith("-3"), size == LARGE)
        listed = self.run_json("ls", *self.common)
        self.assertEqual(
            sorted(entry["key"] for entry in listed), ["00000001", "00000002", "00000003"]
        )
        self.run_tool("rm", *self.common, "00000002")
        self.run_tool("get", *self.common, "00000002", "-", status=3)
        self.assertEqual(len(self.run_json("ls", *self.common)), 2)
        self.assertEqual(self.run_json("verify", *self.common)[-1]["whole"], 2)
        self.assertEqual(self.uploads(), [])

    def test_ways_to_store_that_leave_the_same_object(self):
        data = live.some_bytes(700001)
        self.put("0a000000", data)
        expected = self.read_object(self.name_of("0a000000"))
        for number, options in enumerate(
            (
                ("payload_signing=signed",),
                ("checksum=s3",),
                ("exists_check=head",),
                ("exists_check=none",),
                ("exists_check=conditional",),
                ("max_connections=1",),
            )
        ):
            arguments = [word for option in options for word in ("-o", option)]
            self.run_tool("rm", *self.common, "0a000000")
            self.assertEqual(self.put("0a000000", data, *arguments), "stored", options)
            self.assertEqual(self.read_object(self.name_of("0a000000")), expected, options)
            self.assertEqual(self.get("0a000000", *arguments), data, options)
            again = "stored" if options == ("exists_check=none",) else "skipped"
            self.assertEqual(self.put("0a000000", data, *arguments), again, options)

    def test_the_bucket_as_a_host_name(self):
        domain = os.environ.get("KVT_S3_DOMAIN")
        if not domain:
            self.skip("KVT_S3_DOMAIN is not set: the server has no host for each bucket")
        url = urllib.parse.urlsplit(live.ENDPOINT)
        store = self.store_of("%s://%s:%d" % (url.scheme, domain, url.port))
        store += ["-o", "addressing=virtual", "--namespace", "ns"]
        data = live.some_bytes(100000)
        self.assertEqual(self.put("0b000000", data, store=store), "stored")
        self.assertEqual(self.get("0b000000", store=store), data)
        self.assertEqual(self.get("0b000000"), data)

    def test_an_address_of_ip_version_6(self):
        endpoint = os.environ.get("KVT_S3_ENDPOINT6")
        if not endpoint:
            self.skip("KVT_S3_ENDPOINT6 is not set: no server on an IPv6 address")
        store = self.store_of(endpoint) + ["--namespace", "ns"]
        data = live.some_bytes(100000)
        self.assertEqual(self.put("0c000000", data, store=store), "stored")
        self.assertEqual(self.get("0c000000", store=store), data)

    def test_everything_from_the_environment_or_from_files(self):
        data = live.some_bytes(5000)
        store = ["--store", self.uri, "--namespace", "ns"]
        plain = {"AWS_ENDPOINT_URL": live.ENDPOINT}
        self.assertEqual(self.put("0d000000", data, store=store, environment=plain), "stored")
        first = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ENDPOINT_URL_S3": live.ENDPOINT}
        self.assertEqual(self.get("0d000000", store=store, environment=first), data)
        profile = self.write(
            "credentials",
            (
                "[default]\naws_access_key_id = nobody\naws_secret_access_key = none\n"
                "[live]\naws_access_key_id = %s\naws_secret_access_key = %s\n"
                % (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
            ).encode(),
        )
        from_file = {
            "AWS_ENDPOINT_URL": live.ENDPOINT,
            "AWS_ACCESS_KEY_ID": None,
            "AWS_SECRET_ACCESS_KEY": None,
            "AWS_SHARED_CREDENTIALS_FILE": str(profile),
            "AWS_PROFILE": "live",
        }
        self.assertEqual(self.get("0d000000", store=store, environment=from_file), data)
        from_file["AWS_PROFILE"] = None
        self.assertEqual(
            self.get("0d000000", "-o", "profile=live", store=store, environment=from_file), data
        )


class Maintenance(live.LiveCase):
    def test_a_probe_finds_all_well_and_leaves_nothing(self):
        lines = self.run_json("probe", *self.common)
        self.assertGreater(len(lines), 3)
        for line in lines:
            self.assertIsNone(line["error"], line)
        self.assertEqual(self.keys(), [])

    def test_gc_keeps_to_a_number_of_bytes(self):
        for number in range(8):
            self.put("1000000%d" % number, live.some_bytes(100000))
        planned = self.run_json("gc", *self.common, "--max-bytes", "350000", "--dry-run")[-1]
        self.assertEqual(len(self.run_json("ls", *self.common)), 8)
        done = self.run_json("gc", *self.common, "--max-bytes", "350000")[-1]
        self.assertEqual(planned["removed_objects"], done["removed_objects"])
        left = self.run_json("ls", *self.common)
        self.assertEqual(len(left), 3)
        self.assertEqual(done["removed_objects"], 5)

    def test_gc_removes_uploads_that_nobody_has_ended(self):
        self.put("11000000", live.some_bytes(5000))
        outside = "%s-beside/ns_r0/110/00_g0/11000001.bin" % self.prefix
        for key in (self.name_of("11000001"), outside):
            upload = self.s3.create_multipart_upload(Bucket=live.BUCKET, Key=key)
            self.addCleanup(self.forget_upload, key, upload["UploadId"])
            self.s3.upload_part(Bucket=live.BUCKET, Key=key, UploadId=upload["UploadId"],
                                PartNumber=1, Body=b"x" * 1000)
        gc = ["gc", *self.store_of(live.ENDPOINT), "--uploads"]
        # Of a day by default: somebody may be at it.
        self.assertEqual(self.run_json(*gc)[-1]["removed_leftovers"], 0)
        self.assertEqual(len(self.uploads()), 1)
        # Times are whole seconds, of two clocks.
        end = time.monotonic() + 30
        removed = 0
        while removed == 0 and time.monotonic() < end:
            removed = self.run_json(*gc, "--older-than", "1s")[-1]["removed_leftovers"]
        self.assertEqual(removed, 1)
        self.assertEqual(self.uploads(), [])
        listed = self.s3.list_multipart_uploads(Bucket=live.BUCKET, Prefix=outside)
        self.assertEqual(len(listed.get("Uploads", [])), 1)
        self.assertEqual(self.get("11000000"), live.some_bytes(5000))

    def forget_upload(self, key, upload):
        if self.s3.list_multipart_uploads(Bucket=live.BUCKET, Prefix=key).get("Uploads"):
            self.s3.abort_multipart_upload(Bucket=live.BUCKET, Key=key, UploadId=upload)

    def test_a_namespace_of_other_fields_is_told_apart(self):
        fields = {
            "model_name": "org/model",
            "dtype": "bfloat16",
            "tokens_per_hash": 16,
            "blocks_per_file": 1,
            "inference_engine": "vllm",
            "kv_cache_groups": [],
        }
        store = self.store_of(live.ENDPOINT)
        one = store + ["--fields", self.write("one.json", json.dumps(fields).encode())]
        self.put("20000000", live.some_bytes(5000), store=one)
        config = [key for key in self.keys() if key.endswith("/config.json")]
        self.assertEqual(len(config), 1)
        # Somebody else's fields under this namespace's name.
        fields["dtype"] = "float16"
        self.s3.put_object(Bucket=live.BUCKET, Key=config[0], Body=json.dumps(fields).encode())
        message = self.message_of("ls", *one, status=9)
        self.assertIn("dtype", message)


class Traffic(live.LiveCase):
    def test_a_bench_verifies_every_byte_and_leaves_nothing(self):
        for chunk, count, part in (("64KiB", 64, "8MiB"), ("12MiB", 8, "5MiB")):
            lines = self.run_json(
                "bench", *self.common, "--op", "both", "--chunk-bytes", chunk, "--chunks", count,
                "--part-bytes", part, "--partial", "0.25", "--geometry", "4x2",
            )
            self.assertGreaterEqual(len(lines), 2)
        self.assertEqual([key for key in self.keys() if key.endswith(".bin")], [])
        self.assertEqual(self.uploads(), [])

    def test_a_trace_is_stored_and_loaded_with_every_byte_compared(self):
        arguments = [*self.common, "--requests", "30", "--block-bytes", "256KiB", live.TRACE]
        first = self.run_json("replay", *arguments)[-1]
        self.assertEqual((first["corrupt"], first["errors"]), (0, 0))
        self.assertTrue(first["verified"])
        self.assertGreater(first["stored"], 100)
        self.assertGreater(first["hits"], 50)
        second = self.run_json("replay", *arguments)[-1]
        self.assertEqual((second["corrupt"], second["errors"], second["stored"]), (0, 0, 0))
        self.assertEqual(second["hits"], second["blocks"])
        verified = self.run_json(
            "verify", *self.store_of(live.ENDPOINT), "--namespace", "ns.kvtier1"
        )[-1]
        self.assertEqual(verified["whole"], first["stored"])

    def test_blocks_of_several_parts(self):
        arguments = [*self.common, "--requests", "3", "--block-bytes", "12MiB", "--job-blocks",
                     "4", "-o", "part_bytes=%d" % PART, live.TRACE]
        first = self.run_json("replay", *arguments)[-1]
        self.assertEqual((first["corrupt"], first["errors"]), (0, 0))
        second = self.run_json("replay", *arguments)[-1]
        self.assertEqual((second["corrupt"], second["errors"], second["stored"]), (0, 0, 0))
        self.assertEqual(self.uploads(), [])


class Failures(live.LiveCase):
    def test_credentials_that_are_wrong(self):
        message = self.message_of(
            "put", *self.common, "30000000", self.write("payload", b"x" * 5000), status=9,
            environment={"AWS_SECRET_ACCESS_KEY": "not-the-secret-of-this-key"},
        )
        # Where the last word has the answer to a HEAD, that has no room for more than its status.
        self.assertRegex(message, "HTTP 403( SignatureDoesNotMatch)?")
        message = self.message_of(
            "put", *self.common, "30000000", self.write("payload", b"x" * 5000), status=9,
            environment={"AWS_ACCESS_KEY_ID": "AKIANOBODYNOBODYNOBO"},
        )
        self.assertIn("403", message)

    def test_a_bucket_that_is_not_there(self):
        store = ["--store", "s3://%s-none/p" % live.BUCKET, "-o", "endpoint=%s" % live.ENDPOINT]
        message = self.message_of(
            "put", *store, "--namespace", "ns", "30000000", self.write("payload", b"x" * 5000),
            status=9,
        )
        self.assertIn("NoSuchBucket", message)
        self.assertIn("%s-none" % live.BUCKET, message)

    def test_nobody_listens(self):
        store = ["--store", self.uri, "-o", "endpoint=http://127.0.0.1:9"]
        message = self.message_of(
            "put", *store, "--namespace", "ns", "30000000", self.write("payload", b"x" * 5000),
            status=6,
        )
        self.assertIn("127.0.0.1:9", message)

    def test_a_damaged_object_is_found_and_replaced(self):
        data = live.some_bytes(200000)
        self.put("31000000", data)
        key = self.name_of("31000000")
        damaged = bytearray(self.read_object(key))
        damaged[100] ^= 1
        self.s3.put_object(Bucket=live.BUCKET, Key=key, Body=bytes(damaged))
        self.assertEqual(self.run_json("verify", *self.common, status=1)[-1]["corrupt"], 1)
        self.run_tool("get", *self.common, "31000000", "-", status=4)
        # The load has removed it, so that it can be stored again.
        self.assertEqual(self.put("31000000", data), "stored")
        self.assertEqual(self.get("31000000"), data)

    def test_an_object_that_was_cut_is_a_miss_for_lookups_and_is_replaced(self):
        data = live.some_bytes(200000)
        self.put("32000000", data)
        key = self.name_of("32000000")
        whole = self.read_object(key)
        self.s3.put_object(Bucket=live.BUCKET, Key=key, Body=whole[:-4096])
        self.run_tool("get", *self.common, "32000000", "-", status=4)
        self.assertEqual(self.put("32000000", data), "stored")
        self.assertEqual(self.read_object(key), whole)


if __name__ == "__main__":
    live.main()
