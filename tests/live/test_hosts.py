#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts, which are two network namespaces, store the same chunks in one bucket at once."""
import os
import shlex
import subprocess

import live

class Hosts(live.LiveCase):
    count = 0

    def setUp(self):
        super().setUp()
        self.need_command("ip")
        # A namespace and its devices go away a moment after they were removed.
        Hosts.count += 1
        tag = "kvt%d%d" % (os.getpid() % 1000000, Hosts.count)
        self.hosts = [(tag + "a", 1), (tag + "b", 2)]
        if subprocess.run(["ip", "netns", "add", tag + "probe"], capture_output=True,
                          check=False).returncode != 0:
            self.skip("no network namespaces may be made here: not root, or not built in")
        self.ip("netns", "del", tag + "probe")
        # 198.18.0.0/15 is for tests between networks; the pid keeps two runs apart.
        self.net = "198.%d.%d" % (17 + Hosts.count, os.getpid() % 250 + 1)
        for name, number in self.hosts:
            low = number * 8
            self.ip("netns", "add", name)
            self.addCleanup(self.ip, "netns", "del", name)
            self.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            self.ip("addr", "add", "%s.%d/30" % (self.net, low + 1), "dev", name)
            self.ip("link", "set", name, "up")
            self.ip("-n", name, "addr", "add", "%s.%d/30" % (self.net, low + 2), "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
            self.ip("-n", name, "link", "set", "lo", "up")
        control = shlex.split(os.environ["KVT_S3_CONTROL"])
        self.control = lambda *words: self.run_command([*control, *words]).stdout.decode().strip()
        self.port = self.control("add", "hosts", "--listen", "0.0.0.0").rsplit(":", 1)[1]
        self.addCleanup(self.control, "remove", "hosts")

    def ip(self, *arguments):
        self.run_command(["ip", *arguments])

    def start(self, host, *more):
        name, number = host
        endpoint = "http://%s.%d:%s" % (self.net, number * 8 + 1, self.port)
        racer = subprocess.Popen(
            [
                "ip", "netns", "exec", name, live.PROGRAMS / "live_store_keys", self.uri,
                "endpoint=%s" % endpoint, *more,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(racer.communicate)
        self.addCleanup(racer.kill)
        return racer

    def race(self, keys, bytes_of_each, *more):
        """Both begin at once; the statuses of all keys, by host."""
        racers = [self.start(host, *map(str, (*more, "--", keys, bytes_of_each)))
                  for host in self.hosts]
        for racer in racers:
            if racer.stdout.readline() != "ready\n":
                self.fail(racer.stderr.read())
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        statuses = []
        for racer in racers:
            out, err = racer.communicate(timeout=live.TIMEOUT_S)
            self.assertEqual(racer.returncode, 0, err)
            statuses.append(out.split())
            self.assertEqual(len(statuses[-1]), keys)
        return statuses

    def check_bucket(self, keys):
        verified = self.run_json("verify", *self.common)[-1]
        self.assertEqual((verified["objects"], verified["whole"]), (keys, keys))

    def test_exactly_one_of_two_hosts_creates_each_object(self):
        met = 0
        for size in (3000, 400000) * 6:
            statuses = self.race(60, size)
            for one, other in zip(*statuses):
                self.assertEqual(sorted((one, other)), ["skipped", "stored"])
            self.check_bucket(60)
            self.empty_bucket()
            # Once each of them has won some, it was a race.
            met += min(one.count("stored") for one in statuses)
            if met and size == 400000:
                break
        self.assertGreater(met, 0)

    def test_objects_of_several_parts_are_whole_whoever_came_last(self):
        statuses = self.race(12, 6 * live.MIB, "part_bytes=5MiB")
        for one, other in zip(*statuses):
            self.assertIn("stored", (one, other))
            self.assertIn(one, ("stored", "skipped"))
            self.assertIn(other, ("stored", "skipped"))
        self.check_bucket(12)
        self.assertEqual(self.uploads(), [])


if __name__ == "__main__":
    live.main(["KVT_S3_CONTROL"])
