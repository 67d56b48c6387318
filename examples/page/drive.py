#!/usr/bin/env python3
"""Drives the cluster page in a real browser, and fails when it does not show what happens.

Three nodes on loopback, a headless Chromium, and the page at `/` of one node: log in, see three
nodes, find a partition group, kill the metadata primary (it goes red, the view changes), write
while it is away, start it again and see how far it is with catching up, kill the node that served
the page, at the width of a phone. A picture of each step is left in --out.

Needs nothing but Python's standard library, `chromium` and `chromedriver`:

    apt-get install chromium chromium-driver
    cargo build --release
    examples/page/drive.py --biplane target/release/biplane --out /tmp/page
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

USER, PASSWORD = "operator", "page-password"
SECRET = "a shared secret of this drive alone, 1"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def call(method, url, body=None, headers=None, timeout=30):
    """One request; the status and the body as JSON, if it is some."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        status, text = refused.code, refused.read()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode(errors="replace")


def wait(what, limit, probe):
    """Asks until the answer is true; the answer, and how long it took."""
    began = time.monotonic()
    while True:
        try:
            found = probe()
        except (OSError, KeyError) as problem:
            found, last = None, problem
        else:
            last = found
        if found:
            took = time.monotonic() - began
            print(f"  {what}: after {took:.1f} s", flush=True)
            return found
        if time.monotonic() - began > limit:
            raise SystemExit(f"{limit} s passed without {what}; last: {last!r}")
        time.sleep(0.1)


class Cluster:
    """Three nodes, each a process."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        ports = free_ports(9)
        self.tcp, self.http, peers = ports[0:3], ports[3:6], ports[6:9]
        nodes = "".join(
            f'\n[[cluster.nodes]]\nname = "node-{node}"\nreplica_id = {node}\nip = "127.0.0.1"\n'
            f"ports = {{ tcp = {self.tcp[node]}, http = {self.http[node]}, "
            f"tcp_replica = {peers[node]} }}\n"
            for node in range(3)
        )
        self.config = folder / "cluster.toml"
        self.config.write_text(
            "[websocket]\nenabled = false\n[quic]\nenabled = false\n"
            '[cluster]\nenabled = true\nname = "paper-plane"\n'
            f'[cluster.auth]\nenabled = true\nshared_secret = "{SECRET}"\n{nodes}'
        )
        self.processes = [None] * 3
        for node in range(3):
            self.start(node)

    def start(self, node):
        log = open(self.folder / f"node-{node}.log", "ab")
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"IGGY_ROOT_USERNAME": USER, "IGGY_ROOT_PASSWORD": PASSWORD}
        self.processes[node] = subprocess.Popen(
            [self.program, "serve", "--replica-id", str(node), "--config", self.config,
             "--data", self.folder / f"data-{node}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder,
        )

    def kill(self, node):
        self.processes[node].send_signal(signal.SIGKILL)
        self.processes[node].wait()
        self.processes[node] = None

    def url(self, node):
        return f"http://127.0.0.1:{self.http[node]}"

    def ready(self, node):
        return call("GET", self.url(node) + "/health/ready", timeout=2)[0] == 200

    def token(self, node):
        body = {"username": USER, "password": PASSWORD}
        return call("POST", self.url(node) + "/users/login", body)[1]["access_token"]["token"]

    def status(self, node):
        headers = {"authorization": "Bearer " + self.token(node)}
        return call("GET", self.url(node) + "/status", headers=headers)[1]

    def primary(self, among):
        return next(node for node in among if self.status(node)["metadata"]["leads"])

    def write(self, node, megabytes):
        """Leaves so many megabytes in topics of their own."""
        rate, producers = 60, 4
        subprocess.run(
            [self.program, "bench", "produce", "--address", f"127.0.0.1:{self.tcp[node]}",
             "--user", USER, "--producers", str(producers), "--partitions", "2", "--streams", "2",
             "--batch", "1000", "--size", "1000", "--rate", str(rate), "--warmup", "0",
             "--seconds", str(max(1, megabytes / rate)), "--no-probes", "--keep"],
            check=True, env={"PATH": os.environ["PATH"], "BIPLANE_PASSWORD": PASSWORD},
            stdout=subprocess.DEVNULL,
        )

    def stop(self):
        for process in self.processes:
            if process:
                process.kill()
                process.wait()


class Browser:
    """The little of WebDriver that a page with a form needs."""

    def __init__(self, folder, chromium, chromedriver):
        (port,) = free_ports(1)
        self.driver = subprocess.Popen(
            [chromedriver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.base = f"http://127.0.0.1:{port}"
        wait("a driver", 20, lambda: call("GET", self.base + "/status")[1]["value"]["ready"])
        flags = [*FLAGS, f"--user-data-dir={folder / 'browser'}"]
        options = {"args": flags, "binary": chromium}
        body = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        status, made = call("POST", self.base + "/session", body, timeout=90)
        if status != 200:
            raise SystemExit(f"no browser: {made}")
        self.session = f"{self.base}/session/{made['value']['sessionId']}"

    def ask(self, method, path, body=None):
        status, answer = call(method, self.session + path, body)
        if status != 200:
            raise SystemExit(f"{path}: {answer}")
        return answer["value"]

    def run(self, script):
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def command(self, name, **parameters):
        self.ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def width(self, pixels):
        self.command("Emulation.setDeviceMetricsOverride", width=pixels, height=900,
                     deviceScaleFactor=1, mobile=pixels < 600)

    def shoot(self, path, full=True):
        parameters = {"format": "png", "captureBeyondViewport": full}
        if full:
            height = self.run("return document.documentElement.scrollHeight")
            width = self.run("return document.documentElement.clientWidth")
            parameters["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        body = {"cmd": "Page.captureScreenshot", "params": parameters}
        picture = self.ask("POST", "/goog/cdp/execute", body)["data"]
        path.write_bytes(base64.b64decode(picture))
        print(f"  picture {path.name}", flush=True)

    def close(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()


# What is on the page, read as somebody who looks at it would.
TEXT = "return document.getElementById('%s').innerText"
CIRCLES = """return [...document.querySelectorAll('#map g')].map((group) => ({
  name: group.querySelector('text').textContent,
  words: group.querySelectorAll('text')[1].textContent,
  stroke: getComputedStyle(group.querySelector('circle')).stroke}))"""
LINKS = """return [...document.querySelectorAll('#map line')].map((line) =>
  getComputedStyle(line).stroke)"""
COLOUR = """const probe = document.createElement('i'); document.body.append(probe);
  probe.style.color = 'var(--%s)'; const found = getComputedStyle(probe).color;
  probe.remove(); return found"""
BAR = """return [...document.querySelectorAll('#work .bar')].map((bar) =>
  [bar.getAttribute('aria-label'), Number(bar.getAttribute('aria-valuenow'))])"""
FIND = """const find = document.getElementById('find'); find.value = '%s';
  find.dispatchEvent(new Event('input'))"""
OVERFLOW = """return document.documentElement.scrollWidth
  - document.documentElement.clientWidth"""


def drive(cluster, browser, out, megabytes):
    def text(name):
        return browser.run(TEXT % name)

    def circles():
        return {one["name"]: one for one in browser.run(CIRCLES)}

    for node in range(3):
        wait(f"node {node} to be ready", 60, lambda node=node: cluster.ready(node))
    first = cluster.primary(range(3))
    served_by = next(node for node in range(3) if node != first)
    cluster.write(served_by, 120)

    print("log in")
    browser.width(1100)
    browser.ask("POST", "/url", {"url": cluster.url(served_by) + "/"})
    browser.shoot(out / "1-login.png", full=False)
    fields = {"user": USER, "password": "wrong"}

    def log_in():
        for name, value in fields.items():
            browser.run(f"document.getElementById('{name}').value = '{value}'")
        browser.run("document.querySelector('#login button').click()")

    assert not browser.run(CIRCLES), "nothing is shown before a login"
    log_in()
    wait("a refusal", 10, lambda: "Wrong user" in text("refusal"))
    fields["password"] = PASSWORD
    log_in()

    print("three nodes")
    wait("three nodes", 20, lambda: text("summary") == "all nodes serve" and len(circles()) == 3)
    good, bad = browser.run(COLOUR % "good"), browser.run(COLOUR % "bad")
    seen = circles()
    assert all(one["stroke"] == good for one in seen.values()), seen
    assert seen[f"node-{first}"]["words"] == "primary", seen
    assert browser.run(LINKS) == [good] * 3
    wait("groups with their primaries", 10, lambda: "1 to 4 of 4" in text("shown"))
    assert "node-" in text("groups"), text("groups")
    browser.run(FIND % "/1")
    wait("the groups that were looked for", 10, lambda: "of 2 (4 in all)" in text("shown"))
    browser.run(FIND % "")
    view = cluster.status(served_by)["metadata"]["view"]
    browser.shoot(out / "2-three-nodes.png")

    print(f"kill node {first}, the primary")
    cluster.kill(first)
    wait("red", 20, lambda: circles()[f"node-{first}"]["stroke"] == bad)
    browser.shoot(out / "3-killed.png")
    wait("a new primary", 30, lambda: any(
        one["words"] == "primary" for name, one in circles().items() if name != f"node-{first}"))
    now = cluster.status(served_by)["metadata"]["view"]
    assert now > view, (view, now)
    wait("the view on the page", 10, lambda: f"in view {now}" in text("events"))
    assert browser.run(LINKS).count(bad) == 2
    assert text("summary") == "1 of 3 nodes does not answer", text("summary")
    browser.shoot(out / "4-view-change.png")

    print(f"write {megabytes} MB meanwhile")
    cluster.write(served_by, megabytes)
    browser.shoot(out / "5-written.png")

    print(f"start node {first} again")
    cluster.start(first)
    bars = wait("a bar", 60, lambda: [
        bar for bar in browser.run(BAR) if bar[0].startswith(f"node-{first} ") and 0 < bar[1] < 100])
    print(f"  {bars}")
    assert text("summary") == "1 of 3 nodes is catching up", text("summary")
    browser.shoot(out / "6-catching-up-top.png", full=False)
    browser.shoot(out / "6-catching-up.png")
    browser.width(390)
    time.sleep(0.5)
    browser.shoot(out / "6-catching-up-phone.png")
    assert browser.run(OVERFLOW) == 0, "a phone need not scroll sideways"
    browser.width(1100)
    wait("all to serve again", 300, lambda: text("summary") == "all nodes serve")
    wait("nothing left to do", 120, lambda: text("work").startswith("None: every"))
    for said in ["answers again", "is catching up", "has what the others have"]:
        assert f"node-{first} {said}" in text("events"), text("events")
    browser.shoot(out / "7-all-again.png")

    print(f"kill node {served_by}, which served the page")
    cluster.kill(served_by)
    wait("red", 20, lambda: circles()[f"node-{served_by}"]["stroke"] == bad)
    left = [node for node in range(3) if node != served_by]
    wait("the others", 30, lambda: all(
        circles()[f"node-{node}"]["stroke"] == good for node in left))
    browser.width(390)
    time.sleep(0.5)
    browser.shoot(out / "8-phone.png")
    assert browser.run(OVERFLOW) == 0, "a phone need not scroll sideways"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--biplane", default="target/release/biplane", type=pathlib.Path)
    parser.add_argument("--out", default="page-pictures", type=pathlib.Path)
    parser.add_argument("--megabytes", default=1500, type=int,
                        help="written while a node is away, so that its bar is there to be seen")
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    parser.add_argument("--chromedriver", default=shutil.which("chromedriver") or "chromedriver")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="biplane-page-") as folder:
        folder = pathlib.Path(folder)
        cluster = Cluster(options.biplane.resolve(), folder)
        browser = None
        try:
            browser = Browser(folder, options.chromium, options.chromedriver)
            drive(cluster, browser, options.out, options.megabytes)
        except BaseException:
            for log in sorted(folder.glob("node-*.log")):
                print(f"--- {log.name}", *log.read_text().splitlines()[-15:], sep="\n")
            if browser:
                browser.shoot(options.out / "failed.png")
            raise
        finally:
            if browser:
                browser.close()
            cluster.stop()
    print("the page shows what happens")


if __name__ == "__main__":
    sys.exit(main())
