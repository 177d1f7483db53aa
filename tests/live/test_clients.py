#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvtier and S3 clients that others wrote read what the other has stored, byte for byte.

What a client must find in the bucket is what kvtier puts into a folder: the file backend's tests
hold that against the format's own vectors.
"""
import json
import os

import live

# One request, and several: each client is told to cut at 5 MiB.
SMALL = 300001
LARGE = 12 * live.MIB + 4097
PART = 5 * live.MIB
# kvtier's own parts of that size, where the backend lets one choose.
PARTS = ["-o", "part_bytes=%d" % PART] if live.SCHEME == "s3" else []


class Client:
    """Copies between a file and an object."""

    command = None

    def __init__(self, case):
        self.case = case

    def upload(self, path, key):
        raise NotImplementedError

    def download(self, key, path):
        raise NotImplementedError


class AwsCli(Client):
    # Not the first of the PATH: it may be another generation than Debian's.
    command = "/usr/bin/aws" if os.path.exists("/usr/bin/aws") else "aws"

    def copy(self, source, target):
        config = self.case.write(
            "aws.conf",
            b"[default]\ns3 =\n  multipart_threshold = 5MB\n  multipart_chunksize = 5MB\n",
        )
        self.case.run_command(
            [self.command, "--endpoint-url", live.ENDPOINT, "s3", "cp", "--quiet", source, target],
            environment={"AWS_CONFIG_FILE": str(config), "AWS_DEFAULT_REGION": live.REGION},
        )

    def upload(self, path, key):
        self.copy(path, "s3://%s/%s" % (live.BUCKET, key))

    def download(self, key, path):
        self.copy("s3://%s/%s" % (live.BUCKET, key), path)


class S3cmd(Client):
    command = "s3cmd"
    options = []

    def run(self, *arguments):
        host = live.ENDPOINT.split("://", 1)[1]
        self.case.run_command(
            [
                self.command,
                "--config=/dev/null",
                "--access_key=%s" % os.environ["AWS_ACCESS_KEY_ID"],
                "--secret_key=%s" % os.environ["AWS_SECRET_ACCESS_KEY"],
                "--region=%s" % live.REGION,
                "--host=%s" % host,
                "--host-bucket=%s" % host,
                "--no-ssl" if live.ENDPOINT.startswith("http://") else "--ssl",
                "--multipart-chunk-size-mb=5",
                "--no-progress",
                *self.options,
                *arguments,
            ]
        )

    def upload(self, path, key):
        self.run("put", path, "s3://%s/%s" % (live.BUCKET, key))

    def download(self, key, path):
        self.run("get", "--force", "s3://%s/%s" % (live.BUCKET, key), path)


class S3cmdV2(S3cmd):
    options = ["--signature-v2"]


class Rclone(Client):
    command = "rclone"

    def run(self, *arguments):
        self.case.run_command(
            ["rclone", "--config=/dev/null", *arguments],
            environment={
                "RCLONE_S3_PROVIDER": "Ceph" if live.SERVER == "rgw" else "Other",
                "RCLONE_S3_ENV_AUTH": "true",
                "RCLONE_S3_ENDPOINT": live.ENDPOINT,
                "RCLONE_S3_REGION": live.REGION,
                "RCLONE_S3_UPLOAD_CUTOFF": "5Mi",
                "RCLONE_S3_CHUNK_SIZE": "5Mi",
                # The times of files would go into headers that not every server takes.
                "RCLONE_S3_NO_CHECK_BUCKET": "true",
            },
        )

    def upload(self, path, key):
        self.run("copyto", path, ":s3:%s/%s" % (live.BUCKET, key))

    def download(self, key, path):
        self.run("copyto", ":s3:%s/%s" % (live.BUCKET, key), path)


class Boto3(Client):
    def config(self):
        from boto3.s3.transfer import TransferConfig

        return TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)

    def upload(self, path, key):
        self.case.s3.upload_file(str(path), live.BUCKET, key, Config=self.config())

    def download(self, key, path):
        self.case.s3.download_file(live.BUCKET, key, str(path), Config=self.config())


class ClientCase(live.LiveCase):
    def setUp(self):
        super().setUp()
        self.tree = self.folder / "tree"
        self.tree.mkdir()
        self.files = ["--store", "file://%s" % self.tree, "--namespace", "ns"]

    def path_of(self, key):
        """Where the file backend has an object."""
        return self.tree / self.name_of(key).split("/", 1)[1]


class Reading(ClientCase):
    def check(self, make_client):
        client = make_client(self)
        if client.command:
            self.need_command(client.command)
        for key, size in (("aa00000001", SMALL), ("aa00000002", LARGE)):
            data = live.some_bytes(size, key.encode())
            self.assertEqual(self.put(key, data, *PARTS), "stored")
            self.put(key, data, store=self.files)
            got = self.folder / "got"
            client.download(self.name_of(key), got)
            self.assertEqual(got.read_bytes(), self.path_of(key).read_bytes())
            # A row begins with its own bytes, so that software that knows rows only reads it.
            self.assertEqual(got.read_bytes()[:size], data)

    def test_awscli_reads_what_kvtier_stored(self):
        self.check(AwsCli)

    def test_s3cmd_reads_what_kvtier_stored(self):
        self.check(S3cmd)

    def test_s3cmd_with_old_signatures_reads_what_kvtier_stored(self):
        self.check(S3cmdV2)

    def test_rclone_reads_what_kvtier_stored(self):
        self.check(Rclone)

    def test_boto3_reads_what_kvtier_stored(self):
        self.check(Boto3)


class Writing(ClientCase):
    def check(self, make_client):
        client = make_client(self)
        if client.command:
            self.need_command(client.command)
        for key, size in (("bb00000001", SMALL), ("bb00000002", LARGE)):
            data = live.some_bytes(size, key.encode())
            self.put(key, data, store=self.files)
            client.upload(self.path_of(key), self.name_of(key))
            self.assertEqual(self.get(key), data)
            # Small enough for several ranges at once.
            self.assertEqual(self.get(key, *PARTS), data)
            self.assertEqual(self.put(key, data), "skipped")
            self.assertEqual(self.run_json("stat", *self.common, key)[0]["state"], "whole")
        verified = self.run_json("verify", *self.common)[-1]
        self.assertEqual((verified["objects"], verified["whole"]), (2, 2))

    def test_kvtier_loads_what_awscli_stored(self):
        self.check(AwsCli)

    def test_kvtier_loads_what_s3cmd_stored(self):
        self.check(S3cmd)

    def test_kvtier_loads_what_s3cmd_stored_with_old_signatures(self):
        self.check(S3cmdV2)

    def test_kvtier_loads_what_rclone_stored(self):
        self.check(Rclone)

    def test_kvtier_loads_what_boto3_stored(self):
        self.check(Boto3)


class Trees(ClientCase):
    def test_a_tree_moves_to_a_bucket_and_back_by_rclone(self):
        self.need_command("rclone")
        rclone = Rclone(self)
        self.run_tool("replay", "--store", "file://%s" % self.tree, "--namespace", "ns",
                      "--requests", "25", "--block-bytes", "64KiB", live.TRACE)
        self.put("cc00000001", live.some_bytes(SMALL), store=self.files)
        names = sorted(str(path.relative_to(self.tree)) for path in self.tree.rglob("*.bin"))
        self.assertGreater(len(names), 50)
        target = ":s3:%s/%s" % (live.BUCKET, self.prefix)
        rclone.run("copy", self.tree, target)
        for namespace in ("ns", "ns.kvtier1"):
            verified = self.run_json("verify", *self.store_of(live.ENDPOINT),
                                     "--namespace", namespace)[-1]
            self.assertGreater(verified["objects"], 0)
            self.assertEqual(verified["whole"] + verified["partial"], verified["objects"])
        self.assertEqual(self.get("cc00000001"), live.some_bytes(SMALL))
        # All of it is there already, and is loaded and compared.
        again = self.run_json("replay", *self.common, "--requests", "25",
                              "--block-bytes", "64KiB", live.TRACE)[-1]
        self.assertEqual((again["stored"], again["corrupt"], again["errors"]), (0, 0, 0))
        self.assertEqual(again["hits"], again["blocks"])
        # What kvtier adds to the bucket comes back with the rest.
        self.put("cc00000002", live.some_bytes(LARGE), *PARTS)
        back = self.folder / "back"
        rclone.run("copy", target, back)
        for name in names:
            self.assertEqual((back / name).read_bytes(), (self.tree / name).read_bytes(), name)
        stores = ["--store", "file://%s" % back, "--namespace", "ns"]
        self.assertEqual(self.get("cc00000002", store=stores), live.some_bytes(LARGE))
        self.assertEqual(self.run_json("verify", *stores)[-1]["whole"], 2)


class Rows(ClientCase):
    def vectors(self):
        """Names that vLLM's own mapper has made."""
        for case in json.loads((live.DATA / "name_vectors.json").read_text()):
            arguments = case["args"]
            if not case["s3_key"].startswith("kv/cache/") or len(case["key_hex"]) < 10 + 8:
                continue
            yield (
                json.loads(case["canonical_json"]),
                arguments.get("rank", 0),
                case["key_hex"][:-8] + ":%d" % int(case["key_hex"][-8:], 16),
                case["s3_key"][len("kv/cache/") :],
            )

    def test_raw_chunks_of_vllm_load_as_rows(self):
        tried = 0
        for fields, rank, key, name in self.vectors():
            fields_file = self.write("fields.json", json.dumps(fields).encode())
            where = [*self.store_of(live.ENDPOINT), "--fields", fields_file, "--rank", rank]
            data = live.some_bytes(65536 + 17, name.encode())
            self.s3.put_object(Bucket=live.BUCKET, Key="%s/%s" % (self.prefix, name), Body=data)
            self.assertEqual(self.get(key, "-o", "accept_raw=true", store=where), data)
            # There already, and left as it is.
            self.assertEqual(self.put(key, data, "-o", "accept_raw=true", store=where), "skipped")
            self.assertEqual(self.read_object("%s/%s" % (self.prefix, name)), data)
            # Without the option it is not ours: exit status 4, and a store replaces it.
            self.get(key, store=where, status=4)
            self.assertEqual(self.put(key, data, store=where), "stored")
            self.assertEqual(self.get(key, store=where), data)
            self.assertEqual(self.read_object("%s/%s" % (self.prefix, name))[: len(data)], data)
            tried += 1
        self.assertGreater(tried, 3)


class TwoBackends(ClientCase):
    def test_the_libs3_module_and_the_s3_backend_read_each_other(self):
        options = self.run_tool("probe", "--store", "s3+libs3://bucket/p", "--options", status=None)
        if options.returncode != 0:
            self.skip("the libs3 module is not built")
        module = [word.replace("s3://", "s3+libs3://") for word in self.common]
        for number, size in enumerate((1, SMALL, LARGE)):
            data = live.some_bytes(size, b"libs3")
            key = "dd0000000%d" % number
            self.assertEqual(self.put(key, data, store=module), "stored")
            self.assertEqual(self.get(key), data)
            self.assertEqual(self.put(key, data), "skipped")
            key = "ee0000000%d" % number
            self.assertEqual(self.put(key, data, *PARTS), "stored")
            self.assertEqual(self.get(key, store=module), data)
            self.assertEqual(self.put(key, data, store=module), "skipped")
        for store in (module, self.common):
            verified = self.run_json("verify", *store)[-1]
            self.assertEqual((verified["objects"], verified["whole"]), (6, 6))


if live.SCHEME != "s3":
    del TwoBackends


if __name__ == "__main__":
    live.main()
