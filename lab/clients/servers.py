"""The servers that table.py runs clients on: a group of three replicas, and stock memcached beside it."""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

RESTART_MS = 2000  # how long a killed replica stays away
PATIENCE = 60  # seconds in which a group is ready, and a replica is back


class Trouble(Exception):
    """A server did not do what the table needs."""


def memcached(hosts, port):
    program = shutil.which("memcached")
    if program is None:
        raise Trouble("memcached is not installed; install it with: apt-get install memcached")
    command = [program, "-l", ",".join(hosts), "-p", str(port), "-U", "0", "-m", "256"]
    if os.geteuid() == 0:
        command += ["-u", "nobody"]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    wait_for_port(hosts[0], port, child)
    return child


class Stock:
    """Stock memcached under three loopback addresses: one cache, as a group is."""

    def __init__(self, port):
        hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        self.servers = [f"{host}:{port}" for host in hosts]
        self.front_ports = itertools.cycle(range(port + 1, port + 9, 2))
        self.child = memcached(hosts, port)

    def stop(self):
        stop(self.child)


class Separate:
    """Three caches of stock memcached that know nothing of each other: what a killed one had is lost."""

    def __init__(self, port):
        self.ports = [port + n for n in range(3)]
        self.servers = [f"127.0.0.1:{one}" for one in self.ports]
        self.front_ports = itertools.cycle(range(port + 3, port + 9, 2))
        self.children = [memcached(["127.0.0.1"], one) for one in self.ports]

    def kill(self, number):
        self.children[number - 1].kill()
        self.children[number - 1].wait()
        thread = threading.Timer(RESTART_MS / 1000, self.restart, [number - 1])
        thread.start()
        return thread.join

    def restart(self, at):
        self.children[at] = memcached(["127.0.0.1"], self.ports[at])

    def is_equal(self):
        return True

    def stop(self):
        for child in self.children:
            stop(child)


class Group:
    """Three replicas by `crosscheck up`, which starts a killed one again."""

    def __init__(self, crosscheck, port):
        self.crosscheck = crosscheck
        self.port = port
        self.servers = [f"127.0.0.1:{port + n}" for n in range(3)]
        self.front_ports = itertools.cycle(range(port + 3, port + 9, 2))
        self.pids = {}
        self.changed = threading.Condition()
        self.ready = False
        self.serving = []
        self.starts = 0
        command = [crosscheck, "up", "--json", "--port", str(port), "--restart-after", str(RESTART_MS)]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()
        self.wait_until("the group is ready", lambda: self.ready)

    def listen(self):
        for line in self.child.stdout:
            event = json.loads(line)
            with self.changed:
                if event["event"] == "started":
                    self.pids[event["replica"]] = event["pid"]
                    self.starts += 1
                elif event["event"] == "ready":
                    self.ready = True
                elif event["event"] == "status":
                    self.serving = [replica["serving"] for replica in event["replicas"]]
                self.changed.notify_all()

    def wait_until(self, what, holds):
        with self.changed:
            if not self.changed.wait_for(holds, PATIENCE):
                raise Trouble(f"within {PATIENCE} s it did not come about that {what}")

    def kill(self, replica):
        """Ends a replica with SIGKILL; returns a function that waits until it serves again."""
        with self.changed:
            starts = self.starts
            self.serving = []
            os.kill(self.pids[replica], signal.SIGKILL)
        return lambda: self.wait_until(
            f"replica {replica} is back", lambda: self.starts > starts and self.serving == [True] * 3
        )

    def is_equal(self):
        """Whether all replicas have the same state, bit for bit."""
        command = [self.crosscheck, "digest", "--port", str(self.port), "--json"]
        output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        return output.returncode == 0 and json.loads(output.stdout)["equal"]

    def stop(self):
        stop(self.child)


def wait_for_port(host, port, child):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError as error:
            if child.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"nothing listens on {host}:{port}: {error}") from error
            time.sleep(0.05)


def stop(child):
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
