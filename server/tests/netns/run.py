#!/usr/bin/env python3
"""Three hosts and a network that fails: biplane in network namespaces.

Needs root, Linux, `ip`, and /dev/net/tun; no kernel module for delay or loss. Each host is a
namespace with one TUN device, and this script is the wire between them: it reads every packet, and
drops, delays or passes it by the state of the link (from, to). The clients are a fourth host, whose
links stay whole.

    cargo build -p biplane-server --bin biplane
    cargo build -p biplane-server --bench netns_load
    sudo server/tests/netns/run.py --biplane target/debug/biplane --load target/debug/deps/netns_load-HASH

What must hold: while one link is bad the cluster serves; once the network is whole again, service is
back within twice the heartbeat timeout; in the end every node holds everything acknowledged.
Exit status 0 means that it did. See docs/testing.md.
"""

import argparse
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

HOSTS = 3
CLIENTS = 3  # index of the clients' host
HEARTBEAT = 5.0  # the default of cluster.heartbeat_timeout
BACK_LIMIT = 2 * HEARTBEAT
SECRET = "0123456789abcdef0123456789abcdef"
PREFIX = "bpn"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def address(host):
    return "10.177.0.%d" % (host + 10)


def run(*command):
    subprocess.run(command, check=True)


class Wire(threading.Thread):
    """Moves packets between the hosts."""

    def __init__(self, seed):
        super().__init__(daemon=True)
        self.chance = random.Random(seed)
        self.cut, self.loss, self.delay = set(), {}, {}
        self.files, self.going = [], True
        self.moved = self.dropped = 0

    def plug(self, host):
        name = "%s%d" % (PREFIX, host)
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        self.files.append(file)
        inside = []
        if host != CLIENTS:
            run("ip", "netns", "add", name)
            run("ip", "link", "set", name, "netns", name)
            inside = ["ip", "netns", "exec", name]
            run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "address", "add", address(host) + "/24", "dev", name)
        run(*inside, "ip", "link", "set", name, "up", "txqueuelen", "1000")

    def unplug(self):
        self.going = False
        for host in range(HOSTS):
            subprocess.run(["ip", "netns", "delete", "%s%d" % (PREFIX, host)], stderr=subprocess.DEVNULL)
        for file in self.files:
            os.close(file)

    def run(self):
        poller, due, number = select.poll(), [], 0
        for file in self.files:
            poller.register(file, select.POLLIN)
        where = {file: host for host, file in enumerate(self.files)}
        while self.going:
            wait = 100.0 if not due else max(0.0, min(100.0, (due[0][0] - time.monotonic()) * 1000))
            for file, _ in poller.poll(wait):
                for _ in range(64):
                    try:
                        packet = os.read(file, 65536)
                    except BlockingIOError:
                        break
                    except OSError:
                        return
                    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:19] != b"\x0a\xb1\x00":
                        continue
                    link = (where[file], packet[19] - 10)
                    if not 0 <= link[1] <= CLIENTS:
                        continue
                    if link in self.cut or self.chance.random() < self.loss.get(link, 0.0):
                        self.dropped += 1
                        continue
                    number += 1
                    at = time.monotonic() + self.delay.get(link, 0.0)
                    heapq.heappush(due, (at, number, link[1], packet))
            now = time.monotonic()
            while due and due[0][0] <= now:
                _, _, to, packet = heapq.heappop(due)
                try:
                    os.write(self.files[to], packet)
                    self.moved += 1
                except (BlockingIOError, OSError):
                    self.dropped += 1

    def heal(self):
        self.cut, self.loss, self.delay = set(), {}, {}


def between(a, b):
    return {(a, b), (b, a)}


REPLICA_LINKS = [(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b]


class Cluster:
    def __init__(self, binary, folder, tls):
        self.binary, self.folder, self.processes = binary, folder, [None] * HOSTS
        text = "[tcp]\naddress = \"0.0.0.0:8090\"\n[cluster]\nenabled = true\nname = \"netns\"\n"
        text += "[cluster.auth]\nenabled = true\nshared_secret = \"%s\"\n" % SECRET
        if tls:
            text += "[cluster.tls]\nenabled = true\nself_signed = true\n"
        for transport in ("quic", "http", "websocket"):
            text += "[%s]\nenabled = false\n" % transport
        for host in range(HOSTS):
            text += "[[cluster.nodes]]\nname = \"n%d\"\nip = \"%s\"\nreplica_id = %d\n" % (host, address(host), host)
            text += "ports = { tcp = 8090, tcp_replica = 9090 }\n"
        self.config = os.path.join(folder, "cluster.toml")
        with open(self.config, "w") as file:
            file.write(text)

    def log(self, host):
        return os.path.join(self.folder, "node-%d.log" % host)

    def start(self, host):
        with open(self.log(host), "a") as log:
            self.processes[host] = subprocess.Popen(
                ["ip", "netns", "exec", "%s%d" % (PREFIX, host), self.binary, "serve",
                 "--with-default-root-credentials", "--replica-id", str(host),
                 "--config", self.config, "--data", os.path.join(self.folder, "data-%d" % host)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, host):
        # `ip netns exec` replaces itself, so this is the server.
        self.processes[host].kill()
        self.processes[host].wait()
        self.processes[host] = None

    def stop(self):
        for process in self.processes:
            if process:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            if process:
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def links(self, host):
        with open(self.log(host)) as log:
            return log.read().count("replica connected")

    def primary(self):
        """Whoever said last that it is the metadata primary."""
        found = (-1, 0)
        for host in range(HOSTS):
            with open(self.log(host)) as log:
                for line in log:
                    if "metadata group" in line and 'role="primary"' in line and 'status="normal"' in line:
                        view = int(line.split("view=")[1].split()[0])
                        found = max(found, (view, host))
        return found[1]


class Load:
    def __init__(self, binary, seed):
        nodes = ["%s:8090" % address(host) for host in range(HOSTS)]
        self.process = subprocess.Popen([binary, str(seed)] + nodes, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.expect("started")

    def line(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the load has ended: a promise was not kept, or service never came back")
            line = line.strip()
            if line.isdigit() or line in ("started", "intact"):
                return line
            print("    load:", line)

    def expect(self, what):
        found = self.line()
        assert found == what, found

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.line()

    def served(self):
        return int(self.ask("served")) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--biplane", required=True, help="the server's binary")
    parser.add_argument("--load", required=True, help="the netns_load binary")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=12, help="how long each fault lasts")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    options = parser.parse_args()
    print("seed %d, %s, faults of %g s" % (options.seed, "plain" if options.plain else "TLS", options.seconds))
    failures = []
    with tempfile.TemporaryDirectory(prefix="biplane-netns-") as folder:
        wire = Wire(options.seed)
        cluster = Cluster(options.biplane, folder, not options.plain)
        load = None
        try:
            for host in range(HOSTS + 1):
                wire.plug(host)
            wire.start()
            for host in range(HOSTS):
                cluster.start(host)
            time.sleep(8)

            victim = None

            def vanish():
                # Without a FIN or a reset: the host loses its network first.
                wire.cut.update((a, b) for a in range(HOSTS + 1) for b in range(HOSTS + 1) if victim in (a, b))
                cluster.kill(victim)

            # There is no topic yet, so nothing at all is sent between the two backups. The lower one
            # has to dial, and nobody tells it that the host it was linked with has been away.
            _, victim = sorted(host for host in range(HOSTS) if host != cluster.primary())
            vanish()
            time.sleep(2)
            before = cluster.links(victim)
            wire.heal()
            cluster.start(victim)
            start = time.monotonic()
            while cluster.links(victim) < before + 2 and time.monotonic() - start < 3 * BACK_LIMIT:
                time.sleep(0.05)
            back = time.monotonic() - start
            late = "  TOO LATE" if back > BACK_LIMIT else ""
            print("%-44s both links of host %d after %.2f s%s" % ("a host vanishes from an idle cluster", victim, back, late))
            if late:
                failures.append("a host vanishes from an idle cluster")
            load = Load(options.load, options.seed)

            def scenario(name, break_it, mend=None, serves=True):
                before = [cluster.links(host) for host in range(HOSTS)]
                break_it()
                time.sleep(options.seconds)
                during = load.served() if serves else None
                if mend:
                    mend()
                wire.heal()
                back = load.served()
                time.sleep(3)
                steady = load.served()
                links = [cluster.links(host) - b for host, b in enumerate(before)]
                good = back <= BACK_LIMIT
                if not good:
                    failures.append(name)
                during = "-" if during is None else "%.2f s" % during
                print("%-44s during %8s  healed %5.2f s  then %5.2f s  new links %s%s"
                      % (name, during, back, steady, links, "" if good else "  TOO LATE"))

            print("%-44s %.2f s" % ("whole network", load.served()))
            first = cluster.primary()
            second, third = (first + 1) % HOSTS, (first + 2) % HOSTS
            scenario("one link cut (primary, backup)", lambda: wire.cut.update(between(first, second)))
            scenario("one link cut (the backups)", lambda: wire.cut.update(between(second, third)))
            scenario("cut one way (primary to backup)", lambda: wire.cut.add((first, third)))
            scenario("cut one way (backup to primary)", lambda: wire.cut.add((third, first)))
            scenario("200 ms delay on every link",
                     lambda: wire.delay.update({link: 0.2 for link in REPLICA_LINKS}))
            scenario("5 % loss on every link",
                     lambda: wire.loss.update({link: 0.05 for link in REPLICA_LINKS}))
            primary = cluster.primary()
            scenario("primary alone", lambda: wire.cut.update(
                l for l in REPLICA_LINKS if primary in l))
            scenario("nobody hears anybody", lambda: wire.cut.update(REPLICA_LINKS), serves=False)

            victim = (cluster.primary() + 1) % HOSTS
            scenario("a host vanishes and comes back", vanish, lambda: cluster.start(victim))
            print("%-44s %s" % ("all nodes hold all that was acknowledged:", load.ask("finish")))
            print("packets: %d moved, %d dropped" % (wire.moved, wire.dropped))
        finally:
            if load:
                load.process.kill()
                load.process.wait()
            cluster.stop()
            wire.unplug()
            if failures or sys.exc_info()[0]:
                for host in range(HOSTS):
                    with open(cluster.log(host)) as log:
                        print("--- node %d\n%s" % (host, "".join(log.readlines()[-40:])))
    if failures:
        raise SystemExit("too late: " + ", ".join(failures))


if __name__ == "__main__":
    main()
