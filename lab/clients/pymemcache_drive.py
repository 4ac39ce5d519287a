"""Drives several replicas at once with client libraries written by others, and checks what they return against a model.

    pymemcache_drive.py [--seconds S | --rounds N] [--seed N] HOST:PORT [HOST:PORT ...]

Every worker uses one library on one replica and has keys of its own, so that its model is exact. All workers count on
the same counters, change one item by compare-and-swap, and read through the next replica what they have just written
through theirs. Exit code: 0 when everything was as the model says, 1 otherwise.
"""

import argparse
import random
import sys
import threading
import time

import memcache
from pymemcache.client.base import Client


class Wrong(Exception):
    """A library returned something that the model forbids."""


def check(what, got, expected):
    if got != expected:
        raise Wrong(f"{what}: got {got!r:.200}, the model says {expected!r:.200}")


class Pymemcache:
    """pymemcache: bytes in, bytes out."""

    name = "pymemcache"

    def __init__(self, server):
        self.client = Client(server, connect_timeout=5, timeout=15, no_delay=True)

    def set(self, key, value):
        return self.client.set(key, value, noreply=False)

    def add(self, key, value):
        return self.client.add(key, value, noreply=False)

    def replace(self, key, value):
        return self.client.replace(key, value, noreply=False)

    def append(self, key, value):
        return self.client.append(key, value, noreply=False)

    def prepend(self, key, value):
        return self.client.prepend(key, value, noreply=False)

    def get(self, key):
        return self.client.get(key)

    def get_many(self, keys):
        return self.client.get_many(keys)

    def delete(self, key):
        return self.client.delete(key, noreply=False)

    def incr(self, key, delta):
        return self.client.incr(key, delta, noreply=False)

    def decr(self, key, delta):
        return self.client.decr(key, delta, noreply=False)

    def touch(self, key):
        return self.client.touch(key, expire=1000, noreply=False)

    def change(self, key, change):
        """One attempt at compare-and-swap; whether it took effect."""
        value, unique = self.client.gets(key)
        return self.client.cas(key, change(value), unique, noreply=False)

    def set_many(self, values):
        check("set_many: keys that failed", self.client.set_many(values, noreply=False), [])

    def version(self):
        return self.client.version().decode()


class PythonMemcached:
    """python-memcached: another parser, another way to say that a key is missing."""

    name = "python-memcached"

    def __init__(self, server):
        self.client = memcache.Client([f"{server[0]}:{server[1]}"], socket_timeout=15, cache_cas=True, dead_retry=0)

    def set(self, key, value):
        return bool(self.client.set(key, value))

    def add(self, key, value):
        return bool(self.client.add(key, value))

    def replace(self, key, value):
        return bool(self.client.replace(key, value))

    def append(self, key, value):
        return bool(self.client.append(key, value))

    def prepend(self, key, value):
        return bool(self.client.prepend(key, value))

    def get(self, key):
        return as_bytes(self.client.get(key))

    def get_many(self, keys):
        return {key: as_bytes(value) for key, value in self.client.get_multi(keys).items()}

    def delete(self, key):
        return bool(self.client.delete(key))

    def incr(self, key, delta):
        return self.client.incr(key, delta)

    def decr(self, key, delta):
        return self.client.decr(key, delta)

    def touch(self, key):
        return bool(self.client.touch(key, 1000))

    def change(self, key, change):
        self.client.reset_cas()
        value = as_bytes(self.client.gets(key))
        return bool(self.client.cas(key, change(value)))

    def set_many(self, values):
        check("set_multi: keys that failed", self.client.set_multi(values), [])

    def version(self):
        [(_, stats)] = self.client.get_stats()
        return stats["version"]


def as_bytes(value):
    return value.encode() if isinstance(value, str) else value


class Worker(threading.Thread):
    """One library on one replica with a model of its own keys."""

    def __init__(self, number, library, server, next_server, arguments, shared):
        super().__init__(daemon=True)
        self.label = f"worker {number} ({library.name} on {server[0]}:{server[1]})"
        self.prefix = f"py{shared.run}w{number}-"
        self.client = library(server)
        self.beside = Pymemcache(next_server)
        self.random = random.Random(arguments.seed * 1000 + number)
        self.arguments = arguments
        self.shared = shared
        self.model = {}
        self.done = 0
        self.failure = None

    def run(self):
        deadline = time.monotonic() + self.arguments.seconds
        try:
            check("version looks like one", self.client.version().split(".")[0].isdigit(), True)
            while not self.shared.stop.is_set():
                self.step()
                self.done += 1
                if self.arguments.rounds and self.done >= self.arguments.rounds:
                    break
                if not self.arguments.rounds and time.monotonic() > deadline:
                    break
            keys = sorted(self.model)
            check("every key, at the end, through the next replica", self.beside.get_many(keys), self.model)
        except Exception as error:  # any exception of a library is a failure of the server or of the test
            self.failure = f"{self.label}: after {self.done} steps: {type(error).__name__}: {error}"
            self.shared.stop.set()

    def value(self):
        length = self.random.choice([0, 1, 10, 100, 1000, 20000]) if self.random.random() < 0.5 else 30
        return self.random.randbytes(length)

    def step(self):
        key = f"{self.prefix}{self.random.randrange(12)}"
        number_key = f"{self.prefix}n{self.random.randrange(4)}"
        action = self.random.choice(ACTIONS)
        action(self, number_key if action in NUMBERS else key)

    def do_set(self, key):
        value = self.value()
        check(f"set {key}", self.client.set(key, value), True)
        self.model[key] = value
        check(f"read {key} through the next replica", self.beside.get(key), value)

    def do_add(self, key):
        value = self.value()
        check(f"add {key}", self.client.add(key, value), key not in self.model)
        self.model.setdefault(key, value)

    def do_replace(self, key):
        value = self.value()
        check(f"replace {key}", self.client.replace(key, value), key in self.model)
        if key in self.model:
            self.model[key] = value

    def do_extend(self, key):
        value = self.value()[:50]
        in_front = self.random.random() < 0.5
        stored = self.client.prepend(key, value) if in_front else self.client.append(key, value)
        check(f"append or prepend {key}", stored, key in self.model)
        if key in self.model:
            self.model[key] = value + self.model[key] if in_front else self.model[key] + value

    def do_get(self, key):
        check(f"get {key}", self.client.get(key), self.model.get(key))

    def do_get_many(self, key):
        keys = [f"{self.prefix}{n}" for n in range(12)]
        check("get_many", self.client.get_many(keys), {k: self.model[k] for k in keys if k in self.model})

    def do_set_many(self, key):
        values = {f"{self.prefix}{n}": self.value() for n in range(self.random.randrange(1, 6))}
        self.client.set_many(values)
        self.model.update(values)

    def do_delete(self, key):
        check(f"delete {key}", self.client.delete(key), key in self.model)
        self.model.pop(key, None)

    def do_touch(self, key):
        check(f"touch {key}", self.client.touch(key), key in self.model)

    def do_change(self, key):
        if key in self.model and len(self.model[key]) < 50_000:
            check(f"cas {key}", self.client.change(key, lambda value: value + b"+"), True)
            self.model[key] += b"+"

    def do_number(self, key):
        number = self.random.randrange(1000)
        check(f"set {key}", self.client.set(key, b"%d" % number), True)
        self.model[key] = b"%d" % number

    def do_count(self, key):
        """Numbers that lose a digit keep their length, so the model compares numbers."""
        delta = self.random.randrange(1, 50)
        known = int(self.model[key]) if key in self.model else None
        if self.random.random() < 0.7:
            got, expected = self.client.incr(key, delta), None if known is None else known + delta
        else:
            got, expected = self.client.decr(key, delta), None if known is None else max(0, known - delta)
        check(f"incr or decr {key}", got, expected)
        if expected is not None:
            self.model[key] = (b"%d" % expected).ljust(len(self.model[key]))

    def do_shared_count(self, key):
        value = self.client.incr(self.shared.counter, 1)
        with self.shared.lock:
            check(f"{value} of the shared counter is new", value in self.shared.values, False)
            self.shared.values.add(value)

    def do_shared_change(self, key):
        if self.client.change(self.shared.item, lambda value: b"%d" % (int(value) + 1)):
            with self.shared.lock:
                self.shared.changes += 1


NUMBERS = {Worker.do_number, Worker.do_count}
ACTIONS = [
    Worker.do_set, Worker.do_set, Worker.do_add, Worker.do_replace, Worker.do_extend, Worker.do_get, Worker.do_get,
    Worker.do_get_many, Worker.do_set_many, Worker.do_delete, Worker.do_touch, Worker.do_change, Worker.do_number,
    Worker.do_count, Worker.do_count, Worker.do_count, Worker.do_shared_count, Worker.do_shared_change,
]


class Shared:
    """What all workers use at once."""

    def __init__(self, servers, seed):
        self.run = f"{time.time_ns():x}"[-8:]
        self.counter = f"py{self.run}counter"
        self.item = f"py{self.run}item"
        self.values = set()
        self.changes = 0
        self.lock = threading.Lock()
        self.stop = threading.Event()
        first = Pymemcache(servers[0])
        check("set the shared counter", first.set(self.counter, b"0"), True)
        check("set the shared item", first.set(self.item, b"0"), True)

    def audit(self, servers):
        for server in servers:
            client = Pymemcache(server)
            check(f"the shared counter at {server}", int(client.get(self.counter)), len(self.values))
            check(f"the shared item at {server}", int(client.get(self.item)), self.changes)
        check("values of the shared counter", self.values, set(range(1, len(self.values) + 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=0, help="steps of each worker, instead of a time")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    servers = [(server.rpartition(":")[0], int(server.rpartition(":")[2])) for server in arguments.servers]
    shared = Shared(servers, arguments.seed)
    libraries = [Pymemcache, PythonMemcached]
    workers = [
        Worker(2 * n + kind, library, server, servers[(n + 1) % len(servers)], arguments, shared)
        for n, server in enumerate(servers)
        for kind, library in enumerate(libraries)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failures = [worker.failure for worker in workers if worker.failure]
    if not failures:
        try:
            shared.audit(servers)
        except Wrong as wrong:
            failures.append(str(wrong))
    for failure in failures:
        print(failure)
    steps = sum(worker.done for worker in workers)
    print(
        f"{steps} steps by {len(workers)} workers on {len(servers)} servers: {len(failures)} wrong; "
        f"{len(shared.values)} shared increments, {shared.changes} shared swaps"
    )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
