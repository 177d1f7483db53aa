#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TLS on a real server: who is trusted, and what is said when somebody is not."""
import os

import live


class Tls(live.LiveCase):
    def setUp(self):
        super().setUp()
        self.endpoint = os.environ["KVT_S3_TLS_ENDPOINT"]
        self.authority = ["-o", "ca_bundle=%s" % os.environ["KVT_S3_CA"]]
        self.payload = self.write("payload", live.some_bytes(5000))

    def store(self, endpoint):
        return self.store_of(endpoint) + ["--namespace", "ns"]

    def refused(self, endpoint, *more):
        """The one line that is said when the server is not trusted."""
        message = self.message_of(
            "put", *self.store(endpoint), *more, "40000000", self.payload, status=9
        )
        self.assertIn(endpoint.split("://")[1], message)
        return message.lower()

    def test_traffic_under_a_private_authority(self):
        store = self.store(self.endpoint) + self.authority
        result = self.run_json("replay", *store, "--requests", "20", "--block-bytes", "256KiB",
                               live.TRACE)[-1]
        self.assertEqual((result["corrupt"], result["errors"]), (0, 0))
        self.assertGreater(result["hits"], 50)
        data = live.some_bytes(12 * live.MIB + 4097)
        self.assertEqual(self.put("41000000", data, "-o", "part_bytes=5MiB", store=store), "stored")
        self.assertEqual(self.get("41000000", store=store), data)
        self.assertEqual(self.get("41000000"), data)

    def test_the_authority_from_the_environment(self):
        data = live.some_bytes(5000)
        self.assertEqual(
            self.put("42000000", data, store=self.store(self.endpoint),
                     environment={"AWS_CA_BUNDLE": os.environ["KVT_S3_CA"]}),
            "stored",
        )

    def test_every_name_of_the_certificate(self):
        port = self.endpoint.rsplit(":", 1)[1]
        names = ["127.0.0.1"]
        if os.environ.get("KVT_S3_DOMAIN"):
            names.append(os.environ["KVT_S3_DOMAIN"])
        if os.environ.get("KVT_S3_ENDPOINT6"):
            names.append("[::1]")
        for name in names if live.SERVER == "rgw" else ():
            store = self.store("https://%s:%s" % (name, port)) + self.authority
            self.assertIn(self.put("43000000", live.some_bytes(5000), store=store),
                          ("stored", "skipped"))
        if live.SERVER != "rgw":
            self.skip("the names of this server are not known")

    def test_an_authority_that_is_not_known(self):
        message = self.refused(self.endpoint)
        self.assertIn("certificate", message)
        self.assertNotIn("expired", message)

    def test_a_certificate_of_another_host(self):
        message = self.refused(os.environ["KVT_S3_TLS_WRONG_ENDPOINT"], *self.authority)
        self.assertIn("name", message)

    def test_a_certificate_that_has_expired(self):
        message = self.refused(os.environ["KVT_S3_TLS_EXPIRED_ENDPOINT"], *self.authority)
        self.assertIn("expired", message)

    def test_an_authority_whose_file_is_missing(self):
        message = self.message_of(
            "put", *self.store(self.endpoint), "-o", "ca_bundle=/nowhere/ca.crt", "40000000",
            self.payload, status=None,
        )
        self.assertIn("/nowhere/ca.crt", message)

    def test_verification_can_be_turned_off(self):
        for variable in ("KVT_S3_TLS_ENDPOINT", "KVT_S3_TLS_WRONG_ENDPOINT",
                         "KVT_S3_TLS_EXPIRED_ENDPOINT"):
            store = self.store(os.environ[variable])
            data = live.some_bytes(5000, variable.encode())
            self.put("44000000", data, "-o", "verify=off", store=store)
            self.run_tool("rm", *store, "-o", "verify=off", "44000000")

    def test_plain_http_to_a_tls_port_and_the_other_way_round(self):
        plain = self.store(self.endpoint.replace("https://", "http://"))
        self.run_tool("put", *plain, "45000000", self.payload, status=None)
        self.assertEqual(self.keys(), [])
        secure = self.store(live.ENDPOINT.replace("http://", "https://"))
        self.message_of("put", *secure, "45000000", self.payload, status=None)
        self.assertEqual(self.keys(), [])


if __name__ == "__main__":
    live.main(["KVT_S3_TLS_ENDPOINT", "KVT_S3_CA", "KVT_S3_TLS_WRONG_ENDPOINT",
               "KVT_S3_TLS_EXPIRED_ENDPOINT"])
