"""Adapters for Python's libraries: each is used as its documentation shows, with all servers of a group.

See harness.py for the command line and the output.
"""

import asyncio
import importlib.metadata
import os
import threading

import harness
import through
from harness import Library, same


class HashClient(Library):
    """pymemcache's client for several servers: it hashes keys, and leaves a dead server out for some seconds."""

    unicode_keys = True

    def __init__(self, servers):
        from pymemcache.client.hash import HashClient as Client

        self.servers = servers
        options = {"timeout": 3, "connect_timeout": 3, "retry_attempts": 0, "dead_timeout": 6, "ignore_exc": False}
        options |= {"default_noreply": False, "allow_unicode_keys": True, "encoding": "utf-8", "use_pooling": True}
        self.client = Client(servers, **options)
        for name in ("add", "replace", "append", "prepend", "incr", "decr", "touch", "delete", "gets", "cas"):
            setattr(self, name, getattr(self.client, name))
        self.get_many = self.client.get_many

    def set(self, key, value, ttl=0):
        return self.client.set(key, value, expire=ttl)

    def get(self, key):
        return self.client.get(key)

    def set_many(self, values):
        same("keys that failed", self.client.set_many(values), [])

    def set_noreply(self, key, value):
        self.client.set(key, value, noreply=True)

    def flush(self):
        self.client.flush_all(noreply=False)


def as_bytes(value):
    return value.encode() if isinstance(value, str) else value


class PythonMemcached(Library):
    silent = True
    unicode_keys = True

    def __init__(self, servers):
        import memcache

        self.servers = servers
        names = [f"{host}:{port}" for host, port in servers]
        self.client = memcache.Client(names, socket_timeout=3, dead_retry=6, cache_cas=True)
        for name in ("add", "replace", "append", "prepend", "touch", "incr", "decr", "set_multi"):
            setattr(self, name, getattr(self.client, name))

    def set(self, key, value, ttl=0):
        return self.client.set(key, value, time=ttl)

    def get(self, key):
        return as_bytes(self.client.get(key))

    def delete(self, key):
        # It takes NOT_FOUND for success, so the reply alone tells nothing.
        found = self.get(key) is not None
        return bool(self.client.delete(key)) and found

    def gets(self, key):
        self.client.reset_cas()
        return as_bytes(self.client.gets(key)), None

    def cas(self, key, value, unique):
        return self.client.cas(key, value)

    def get_many(self, keys):
        return {key: as_bytes(value) for key, value in self.client.get_multi(keys).items()}

    def set_many(self, values):
        same("keys that failed", self.client.set_multi(values), [])

    def set_noreply(self, key, value):
        self.client.set(key, value, noreply=True)

    def version(self):
        return self.client.get_stats()[0][1]["version"]

    def flush(self):
        self.client.flush_all()


class EventLoop:
    """An event loop in a thread of its own, for libraries with asyncio."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)


class Aiomcache(Library):
    """aiomcache knows one server: its users keep a client per server and go on with the next one."""

    def __init__(self, servers):
        self.servers = servers
        self.events = EventLoop()
        # It begins with the server that is killed under the loop.
        self.clients = [self.events.run(self.connect(*server)) for server in servers[1:] + servers[:1]]

    async def connect(self, host, port):
        import aiomcache

        return aiomcache.Client(host, port, conn_args={"limit": 2**22})

    def call(self, method, key, *arguments, **named):
        import aiomcache

        for attempt in range(len(self.clients)):
            try:
                return self.events.run(getattr(self.clients[0], method)(key, *arguments, **named))
            except (OSError, EOFError, asyncio.IncompleteReadError):
                self.clients.append(self.clients.pop(0))
            except aiomcache.ClientException as error:
                if "NOT_FOUND" in str(error):
                    return None
                raise
        raise ConnectionError("no server")

    def set(self, key, value, ttl=0):
        return self.call("set", key.encode(), value, exptime=ttl)

    def get(self, key):
        return self.call("get", key.encode())

    def add(self, key, value):
        return self.call("add", key.encode(), value)

    def replace(self, key, value):
        return self.call("replace", key.encode(), value)

    def append(self, key, value):
        return self.call("append", key.encode(), value)

    def prepend(self, key, value):
        return self.call("prepend", key.encode(), value)

    def incr(self, key, delta):
        return self.call("incr", key.encode(), delta)

    def decr(self, key, delta):
        return self.call("decr", key.encode(), delta)

    def touch(self, key, ttl):
        return self.call("touch", key.encode(), ttl)

    def delete(self, key):
        return self.call("delete", key.encode())

    def gets(self, key):
        return self.call("gets", key.encode())

    def cas(self, key, value, unique):
        return self.call("cas", key.encode(), value, unique)

    def get_many(self, keys):
        got = self.events.run(self.clients[0].multi_get(*(key.encode() for key in keys)))
        return {key: value for key, value in zip(keys, got) if value is not None}

    def version(self):
        return self.events.run(self.clients[0].version()).decode()

    def flush(self):
        self.events.run(self.clients[0].flush_all())


class Emcache(Library):
    """emcache hashes keys over its nodes; `purge_unhealthy_nodes` leaves dead ones out."""

    def __init__(self, servers):
        import emcache

        self.servers = servers
        self.events = EventLoop()
        hosts = [emcache.MemcachedHostAddress(host, port) for host, port in servers]
        options = {"timeout": 1.0, "purge_unhealthy_nodes": True}
        self.client = self.events.run(emcache.create_client(hosts, **options))
        self.not_stored = (emcache.NotStoredStorageCommandError, emcache.NotFoundCommandError)

    def call(self, method, key, *arguments, **named):
        """Whether the command had an effect: emcache raises an error where it had none."""
        try:
            result = self.events.run(getattr(self.client, method)(key.encode(), *arguments, **named))
        except self.not_stored:
            return None
        return True if result is None else result

    def set(self, key, value, ttl=0):
        return self.call("set", key, value, exptime=ttl)

    def get(self, key):
        item = self.events.run(self.client.get(key.encode()))
        return item and item.value

    def add(self, key, value):
        return self.call("add", key, value)

    def replace(self, key, value):
        return self.call("replace", key, value)

    def append(self, key, value):
        return self.call("append", key, value)

    def prepend(self, key, value):
        return self.call("prepend", key, value)

    def incr(self, key, delta):
        return self.call("increment", key, delta)

    def decr(self, key, delta):
        return self.call("decrement", key, delta)

    def touch(self, key, ttl):
        return self.call("touch", key, ttl)

    def gat(self, key, ttl):
        item = self.events.run(self.client.gat(ttl, key.encode()))
        return item and item.value

    def delete(self, key):
        return self.call("delete", key)

    def gets(self, key):
        item = self.events.run(self.client.gets(key.encode()))
        return item.value, item.cas

    def cas(self, key, value, unique):
        return self.call("cas", key, value, unique)

    def get_many(self, keys):
        found = self.events.run(self.client.get_many([key.encode() for key in keys]))
        return {key.decode(): item.value for key, item in found.items()}

    def set_noreply(self, key, value):
        self.call("set", key, value, noreply=True)


class Pylibmc(Library):
    """pylibmc is libmemcached: consistent hashing that ejects a server after failures."""

    binary = False
    far = 10**9  # its counters take a C int

    def __init__(self, servers):
        import pylibmc

        self.servers = servers
        names = [f"{host}:{port}" for host, port in servers]
        behaviors = {"ketama": True, "cas": True, "tcp_nodelay": True, "connect_timeout": 1000, "retry_timeout": 1}
        behaviors |= {"receive_timeout": 3_000_000, "send_timeout": 3_000_000, "remove_failed": 1, "dead_timeout": 6}
        self.client = pylibmc.Client(names, binary=self.binary, behaviors=behaviors)
        self.not_found = pylibmc.NotFound
        for name in ("add", "append", "prepend", "delete"):
            setattr(self, name, getattr(self.client, name))

    def found(self, method, *arguments):
        """What `method` says; None where pylibmc raises an error because the key is not there."""
        try:
            return method(*arguments)
        except self.not_found:
            return None

    def replace(self, key, value):
        return self.found(self.client.replace, key, value)

    def set(self, key, value, ttl=0):
        return self.client.set(key, value, time=ttl)

    def get(self, key):
        return as_bytes(self.client.get(key))

    def incr(self, key, delta):
        return self.found(self.client.incr, key, delta)

    def decr(self, key, delta):
        return self.found(self.client.decr, key, delta)

    def gets(self, key):
        return self.client.gets(key)

    def cas(self, key, value, unique):
        return self.client.cas(key, value, unique)

    def get_many(self, keys):
        return self.client.get_multi(keys)

    def set_many(self, values):
        same("keys that failed", self.client.set_multi(values), [])

    def version(self):
        return self.client.get_stats()[0][1]["version"]

    def flush(self):
        self.client.flush_all()


class PylibmcBinary(Pylibmc):
    binary = True


class BinaryMemcached(Library):
    """python-binary-memcached has the binary protocol only, and no word for a failure but False and None."""

    silent = True

    def __init__(self, servers):
        import bmemcached

        self.servers = servers
        names = [f"{host}:{port}" for host, port in servers]
        self.client = bmemcached.DistributedClient(names, socket_timeout=3)
        for name in ("add", "replace"):
            setattr(self, name, getattr(self.client, name))

    def set(self, key, value, ttl=0):
        return self.client.set(key, value, time=ttl)

    def get(self, key):
        return as_bytes(self.client.get(key))

    def delete(self, key):
        # It takes "not found" for success, so the reply alone tells nothing.
        found = self.get(key) is not None
        return bool(self.client.delete(key)) and found

    def gets(self, key):
        return self.client.gets(key)

    def cas(self, key, value, unique):
        return self.client.cas(key, value, unique)

    def get_many(self, keys):
        return self.client.get_multi(keys)

    def set_many(self, values):
        same("keys that failed", self.client.set_multi(values), [])

    def flush(self):
        self.client.flush_all()


class Django(Library):
    """Django's cache over pymemcache, with all servers in LOCATION."""

    longest_key = 250 - len(":1:")

    def __init__(self, servers):
        from django.conf import settings

        self.servers = servers
        place = [f"{host}:{port}" for host, port in servers]
        backend = "django.core.cache.backends.memcached.PyMemcacheCache"
        options = {"timeout": 3, "connect_timeout": 3, "retry_attempts": 0, "dead_timeout": 6}
        cache = {"BACKEND": backend, "LOCATION": place, "OPTIONS": options, "TIMEOUT": None}
        if not settings.configured:
            settings.configure(CACHES={"default": cache}, SESSION_ENGINE="django.contrib.sessions.backends.cache")
        from django.core.cache import CacheHandler

        self.client = CacheHandler({"default": cache})["default"]

    def set(self, key, value, ttl=None):
        self.client.set(key, value, ttl)
        return self.client.get(key) is not None

    def get(self, key):
        return self.client.get(key)

    def add(self, key, value):
        return self.client.add(key, value, None)

    def delete(self, key):
        return self.client.delete(key)

    def touch(self, key, ttl):
        return self.client.touch(key, ttl)

    def get_many(self, keys):
        return self.client.get_many(keys)

    def set_many(self, values):
        same("keys that failed", self.client.set_many(values, None), [])

    def flush(self):
        self.client.clear()


def django_counts(client, make):
    client.client.set(harness.key("number"), 10)
    same("incr", client.client.incr(harness.key("number"), 5), 15)
    same("decr", client.client.decr(harness.key("number"), 20), 0)


def django_objects(client, make):
    value = {"list": [1, 2.5, None], "text": "日本"}
    client.client.set(harness.key("object"), value)
    same("get", client.client.get(harness.key("object")), value)
    same("get_or_set", client.client.get_or_set(harness.key("made"), lambda: 7), 7)
    client.client.set(harness.key("v"), 1, version=2)
    same("another version", client.client.get(harness.key("v"), version=1), None)


def django_sessions(client, make):
    from django.contrib.sessions.backends.cache import SessionStore

    session = SessionStore()
    session["cart"] = list(range(100))
    session.save()
    same("load", SessionStore(session.session_key)["cart"], list(range(100)))
    session.cycle_key()
    same("after cycle_key", SessionStore(session.session_key)["cart"], list(range(100)))
    session.delete()
    same("exists after delete", SessionStore().exists(session.session_key), False)


class FlaskCaching(Library):
    """Flask-Caching over a client with settings for failover: from a list it makes one that has none."""

    silent = True
    longest_key = 250 - len("flask_cache_")

    def __init__(self, servers):
        import flask
        from flask_caching import Cache

        self.servers = servers
        under = PythonMemcached(servers).client
        self.app = flask.Flask("clients")
        config = {"CACHE_TYPE": "MemcachedCache", "CACHE_MEMCACHED_SERVERS": under, "CACHE_DEFAULT_TIMEOUT": 0}
        self.cache = Cache(self.app, config=config)
        self.client = self.app.extensions["cache"][self.cache]

    def set(self, key, value, ttl=0):
        return self.client.set(key, value, timeout=ttl)

    def get(self, key):
        return self.client.get(key)

    def add(self, key, value):
        return self.client.add(key, value)

    def delete(self, key):
        return self.client.delete(key)

    def get_many(self, keys):
        return {key: value for key, value in self.client.get_dict(*keys).items() if value is not None}

    def set_many(self, values):
        self.client.set_many(values)

    def flush(self):
        self.client.clear()


def flask_memoize(client, make):
    calls = []

    @client.cache.memoize(60)
    def double(number):
        calls.append(number)
        return 2 * number

    with client.app.app_context():
        same("three calls", [double(3), double(3), double(4)], [6, 6, 8])
        same("calls made", calls, [3, 4])
        client.cache.delete_memoized(double)
        same("after delete_memoized", (double(3), calls), (6, [3, 4, 3]))


class Dogpile(Library):
    """dogpile.cache's region over pymemcache, with its lock in the cache itself."""

    def __init__(self, servers):
        from dogpile.cache import make_region
        from dogpile.cache.api import NO_VALUE

        self.servers = servers
        self.no_value = NO_VALUE
        hosts = [f"{host}:{port}" for host, port in servers]
        arguments = {"url": hosts, "distributed_lock": True, "hashclient_retry_attempts": 0, "dead_timeout": 6}
        self.region = make_region().configure("dogpile.cache.pymemcache", arguments=arguments)

    def set(self, key, value, ttl=0):
        if ttl:
            self.region.backend.client.set(key, self.packed(value), expire=ttl)
        else:
            self.region.set(key, value)
        return True

    def packed(self, value):
        from dogpile.cache.api import CachedValue

        return CachedValue(value, {"ct": harness.time.time(), "v": 2})

    def get(self, key):
        value = self.region.get(key, ignore_expiration=True)
        return None if value is self.no_value else value

    def get_many(self, keys):
        found = dict(zip(keys, self.region.get_multi(keys)))
        return {key: value for key, value in found.items() if value is not self.no_value}

    def set_many(self, values):
        self.region.set_multi(values)


def dogpile_creates_once(client, make):
    """Threads ask for one value at once: the distributed lock lets one of them make it."""
    made = []

    def create():
        made.append(1)
        harness.time.sleep(0.1)
        return b"made"

    def work():
        found.append(client.region.get_or_create(harness.key("dogpile"), create))

    found = []
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same("values", found, [b"made"] * 6)
    same("times it was made", len(made), 1)


def version(package):
    return importlib.metadata.version(package)


LIBRARIES = {
    "pymemcache": (HashClient, version("pymemcache"), []),
    "python-memcached": (PythonMemcached, version("python-memcached"), []),
    "aiomcache": (Aiomcache, version("aiomcache"), []),
    "emcache": (Emcache, version("emcache"), []),
    "pylibmc": (Pylibmc, version("pylibmc"), []),
    "pylibmc-binary": (PylibmcBinary, version("pylibmc"), []),
    "python-binary-memcached": (BinaryMemcached, version("python-binary-memcached"), []),
    "django": (Django, version("Django"), [django_counts, django_objects, django_sessions]),
    "flask-caching": (FlaskCaching, version("Flask-Caching"), [flask_memoize]),
    "dogpile.cache": (Dogpile, version("dogpile.cache"), [dogpile_creates_once]),
    "twemproxy": (through.Twemproxy, through.version("nutcracker"), []),
    "nginx-memcached": (through.NginxMemcached, through.version("nginx"), []),
    "nginx-memc": (through.NginxMemc, through.version("libnginx-mod-http-memc"), []),
}

if __name__ == "__main__":
    harness.main(LIBRARIES)
    os._exit(0)  # event loops in threads of their own go on otherwise
