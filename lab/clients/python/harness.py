"""What every Python library of table.toml has to do: named checks, and a loop that goes on while a server is killed.

    run.py LIBRARY checks HOST:PORT,HOST:PORT,...
    run.py LIBRARY loop SECONDS HOST:PORT,HOST:PORT,...

Prints lines that table.py reads, fields separated by tabs: `version V`, `ok CHECK`, `no CHECK WHY`, and
`loop PAIRS WRONG FAILED GAP_MS`. The programs in other languages do and print the same.
"""

import secrets
import sys
import threading
import time

RUN = secrets.token_hex(4)
BINARY = bytes(range(256)) * 4 + b"\r\nEND\r\nVALUE x 0 3\r\nabc\r\n"
KEYS_IN_LOOP = 40
PAUSE = 0.002  # seconds between two pairs of the loop: a bounded load
LAST_READ = 15  # seconds in which every key of the loop must be readable after it


class Wrong(Exception):
    """A library returned something else than its documentation says."""


def same(what, got, expected):
    if got != expected:
        raise Wrong(f"{what}: got {got!r:.80}, expected {expected!r:.80}")


class Library:
    """Base of the adapters: a check whose method an adapter leaves out is not made."""

    silent = False  # whether a read that failed looks like one of a key that is not there
    longest_key = 250  # bytes of a key at most
    far = 10**12  # how far its counters go in one step

    def __init__(self, servers):
        raise NotImplementedError


def key(name):
    return f"py-{RUN}-{name}"


def set_get(c, make):
    same("set", bool(c.set(key("a"), b"value")), True)
    same("get", c.get(key("a")), b"value")
    same("set again", bool(c.set(key("a"), b"other")), True)
    same("get again", c.get(key("a")), b"other")


def missing(c, make):
    same("get", c.get(key("nobody")), None)


def empty_value(c, make):
    same("set", bool(c.set(key("empty"), b"")), True)
    same("get", c.get(key("empty")), b"")


def add(c, make):
    same("add", bool(c.add(key("add"), b"1")), True)
    same("add again", bool(c.add(key("add"), b"2")), False)
    same("get", c.get(key("add")), b"1")


def replace(c, make):
    same("replace what is not there", bool(c.replace(key("replace"), b"1")), False)
    c.set(key("replace"), b"1")
    same("replace", bool(c.replace(key("replace"), b"2")), True)
    same("get", c.get(key("replace")), b"2")


def append(c, make):
    same("append to nothing", bool(c.append(key("append"), b"1")), False)
    c.set(key("append"), b"ab")
    same("append", bool(c.append(key("append"), b"c")), True)
    same("get", c.get(key("append")), b"abc")


def prepend(c, make):
    same("prepend to nothing", bool(c.prepend(key("prepend"), b"1")), False)
    c.set(key("prepend"), b"bc")
    same("prepend", bool(c.prepend(key("prepend"), b"a")), True)
    same("get", c.get(key("prepend")), b"abc")


def cas(c, make):
    c.set(key("cas"), b"1")
    value, unique = c.gets(key("cas"))
    same("gets", value, b"1")
    same("cas", bool(c.cas(key("cas"), b"2", unique)), True)
    c.set(key("cas"), b"3")
    same("cas with an old unique", bool(c.cas(key("cas"), b"4", unique)), False)
    same("get", c.get(key("cas")), b"3")


def incr(c, make):
    same("incr of nothing", c.incr(key("nobody"), 1), None)
    c.set(key("incr"), b"10")
    same("incr", c.incr(key("incr"), 5), 15)
    same("incr far", c.incr(key("incr"), c.far), c.far + 15)


def decr(c, make):
    c.set(key("decr"), b"10")
    same("decr", c.decr(key("decr"), 3), 7)
    same("decr below zero", c.decr(key("decr"), 100), 0)


def touch(c, make):
    same("touch nothing", bool(c.touch(key("nobody"), 100)), False)
    c.set(key("touch"), b"1", 2)
    same("touch", bool(c.touch(key("touch"), 100)), True)


def gat(c, make):
    c.set(key("gat"), b"1", 2)
    same("gat", c.gat(key("gat"), 100), b"1")
    same("gat of nothing", c.gat(key("nobody"), 100), None)


def delete(c, make):
    c.set(key("delete"), b"1")
    same("delete", bool(c.delete(key("delete"))), True)
    same("delete again", bool(c.delete(key("delete"))), False)
    same("get", c.get(key("delete")), None)


def multi_get(c, make):
    values = {key(f"many{n}"): b"v%d" % n for n in range(60)}
    for name, value in values.items():
        c.set(name, value)
    same("get_many", c.get_many([*values, key("nobody")]), values)


def multi_set(c, make):
    values = {key(f"together{n}"): b"v%d" % n for n in range(60)}
    c.set_many(values)
    same("get", {name: c.get(name) for name in values}, values)


def large(c, make):
    value = secrets.token_bytes(900_000)
    same("set", bool(c.set(key("large"), value)), True)
    same("get", c.get(key("large")) == value, True)


def too_large(c, make):
    try:
        same("set of 2 MB", bool(c.set(key("too_large"), secrets.token_bytes(2_000_000))), False)
    except Wrong:
        raise
    except Exception as error:
        print(f"# refused: {error!r:.100}")
    for _ in range(3):
        same("set afterwards", bool(c.set(key("after"), b"1")), True)
        same("get afterwards", c.get(key("after")), b"1")


def binary_value(c, make):
    c.set(key("binary"), BINARY)
    same("get", c.get(key("binary")), BINARY)


def unicode_value(c, make):
    value = "naïve — 日本語 🎉".encode()
    c.set(key("unicode"), value)
    same("get", c.get(key("unicode")), value)


def unicode_key(c, make):
    name = key("ключ-日本")
    c.set(name, b"1")
    same("get", c.get(name), b"1")


def long_key(c, make):
    name = key("k" * 250)[:c.longest_key]
    same("set", bool(c.set(name, b"1")), True)
    same("get", c.get(name), b"1")


def key_too_long(c, make):
    try:
        same("set", bool(c.set("k" * 251, b"1")), False)
    except Wrong:
        raise
    except Exception as error:
        print(f"# refused: {error!r:.100}")
    same("set afterwards", bool(c.set(key("after"), b"1")), True)


def every_server(c, make):
    clients = [make([server]) for server in c.servers]
    for number, client in enumerate(clients):
        client.set(key("across"), b"%d" % number)
        for other in clients:
            same(f"written by {number}, read", other.get(key("across")), b"%d" % number)


def noreply(c, make):
    for number in range(300):
        c.set_noreply(key("noreply"), b"%d" % number)
    same("get", c.get(key("noreply")), b"299")


def concurrent(c, make):
    failures = []

    def work(number):
        try:
            client = make(c.servers)
            for turn in range(60):
                client.set(key(f"thread{number}"), b"%d" % turn)
                same("get", client.get(key(f"thread{number}")), b"%d" % turn)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def expiry(c, make):
    same("set", bool(c.set(key("short"), b"1", 2)), True)
    same("get", c.get(key("short")), b"1")
    time.sleep(3.2)
    same("get after its time", c.get(key("short")), None)
    if hasattr(c, "touch"):
        same("get of what was touched", c.get(key("touch")), b"1")


def stats(c, make):
    same("stats", c.version()[:1].isdigit(), True)


def flush(c, make):
    c.set(key("flush"), b"1")
    c.flush()
    same("get", c.get(key("flush")), None)


# A check, and the methods of a library that it needs.
CHECKS = [
    (set_get, ()), (missing, ()), (empty_value, ()), (add, ("add",)), (replace, ("replace",)),
    (append, ("append",)), (prepend, ("prepend",)), (cas, ("gets", "cas")), (incr, ("incr",)), (decr, ("decr",)),
    (touch, ("touch",)), (gat, ("gat",)), (delete, ("delete",)), (multi_get, ("get_many",)),
    (multi_set, ("set_many",)), (large, ()), (too_large, ()), (binary_value, ()), (unicode_value, ()),
    (unicode_key, ("unicode_keys",)), (long_key, ()), (every_server, ()),
    (noreply, ("set_noreply",)), (concurrent, ()), (expiry, ()), (stats, ("version",)), (flush, ("flush",)),
    (key_too_long, ()),
]


def run_checks(library, servers, more):
    client = library(servers)
    offered = [(check, needs) for check, needs in CHECKS if all(getattr(client, need, None) for need in needs)]
    for check, _ in [*offered, *((check, ()) for check in more)]:
        try:
            check(client, library)
            print(f"ok\t{check.__name__}", flush=True)
        except Exception as error:
            why = f"{type(error).__name__}: {error}".replace("\n", " ").replace("\t", " ")
            print(f"no\t{check.__name__}\t{why:.200}", flush=True)


class Loop:
    """Pairs of a set and the get of a key that was set half a round before, and what each key may hold."""

    def __init__(self, client):
        self.client = client
        self.stored = {}
        self.attempted = {}  # values whose set failed: it may have been executed, or be so later
        self.pairs = self.wrong = self.failed = 0
        self.gap = 0.0
        self.last_good = time.monotonic()

    def run(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            name, earlier = (key(f"loop{n % KEYS_IN_LOOP}") for n in (self.pairs, self.pairs + KEYS_IN_LOOP // 2))
            good = self.pair(name, b"%s-%d" % (RUN.encode(), self.pairs), earlier)
            self.pairs += 1
            time.sleep(PAUSE if good else 10 * PAUSE)
        self.gap = max(self.gap, time.monotonic() - self.last_good)
        self.read_all()
        print(f"loop\t{self.pairs}\t{self.wrong}\t{self.failed}\t{round(self.gap * 1000)}", flush=True)

    def pair(self, name, value, earlier):
        try:
            if not self.client.set(name, value):
                raise Wrong("not stored")
            self.stored[name] = value
        except Exception as error:
            self.fail("set", error)
            self.attempted.setdefault(name, []).append(value)
        name = earlier if earlier in self.stored else name
        try:
            got = self.client.get(name)
        except Exception as error:
            return self.fail("get", error)
        if got is None and (self.client.silent or name not in self.stored):
            return self.fail("get", "nothing")
        if not self.allowed(name, got):
            return False
        self.gap = max(self.gap, time.monotonic() - self.last_good)
        self.last_good = time.monotonic()
        return True

    def allowed(self, name, got):
        if got == self.stored.get(name) or got in self.attempted.get(name, []):
            return True
        self.wrong += 1
        print(f"# wrong: {name} is {got!r:.60}, stored {self.stored.get(name)!r}", flush=True)
        return False

    def fail(self, call, error):
        self.failed += 1
        if self.failed <= 5:
            print(f"# {call}: {error!r:.120}", flush=True)
        return False

    def read_all(self):
        deadline = time.monotonic() + LAST_READ
        for name in self.stored:
            got = None
            while got is None:
                try:
                    got = self.client.get(name)
                except Exception as error:
                    print(f"# last get: {error!r:.120}")
                if got is None and time.monotonic() > deadline:
                    break
                if got is None:
                    time.sleep(0.1)
            self.allowed(name, got)


def main(libraries):
    name, action, *rest = sys.argv[1:]
    library, version, more = libraries[name]
    servers = [(host, int(port)) for host, _, port in (s.rpartition(":") for s in rest[-1].split(","))]
    print(f"version\t{version}")
    if action == "checks":
        run_checks(library, servers, more)
    else:
        Loop(library(servers)).run(float(rest[0]))
