"""The servers that table.py runs clients on: a group of three replicas, and stock memcached beside it."""

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


class Stock:
    """Stock memcached under three loopback addresses: one cache, as a group is."""

    def __init__(self, port):
        program = shutil.which("memcached")
        if program is None:
            raise Trouble("memcached is not installed; install it with: apt-get install memcached")
        hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        command = [program, "-l", ",".join(hosts), "-p", str(port), "-U", "0", "-m", "256"]
        if os.geteuid() == 0:
            command += ["-u", "nobody"]
        self.servers = [f"{host}:{port}" for host in hosts]
        self.front_port = port + 1
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_for_port("127.0.0.1", port, self.child)

    def stop(self):
        stop(self.child)


class Group:
    """Three replicas by `crosscheck up`, which starts a killed one again."""

    def __init__(self, crosscheck, port):
        self.crosscheck = crosscheck
        self.port = port
        self.servers = [f"127.0.0.1:{port + n}" for n in range(3)]
        self.front_port = port + 3
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
