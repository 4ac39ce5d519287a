"""Adapters for servers between a client and a group; table.py starts those, with all replicas in their settings.

The server that these adapters get is the one in front; CLIENTS_SERVERS has those behind it.
"""

import http.client
import os
import subprocess
import threading

from harness import Library, Wrong, same


def version(package):
    """Debian's version of the front, without the revision of its packaging."""
    query = ["dpkg-query", "-W", "-f", "${Version}", package]
    told = subprocess.run(query, capture_output=True, text=True).stdout
    return told.split("+")[0].split("-")[0]


class Twemproxy(Library):
    """pymemcache with twemproxy as its only server."""

    def __init__(self, servers):
        from pymemcache.client.base import PooledClient

        self.servers = servers
        self.client = PooledClient(servers[0], timeout=5, connect_timeout=3, default_noreply=False)
        for name in ("add", "replace", "append", "prepend", "incr", "decr", "touch", "delete", "gets", "cas"):
            setattr(self, name, getattr(self.client, name))
        self.get_many = self.client.get_many

    def set(self, key, value, ttl=0):
        return self.client.set(key, value, expire=ttl)

    def get(self, key):
        return self.client.get(key)


class Http:
    """Requests on a kept connection per thread."""

    def __init__(self, server):
        self.server = server
        self.local = threading.local()

    def request(self, method, path, body=None):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = http.client.HTTPConnection(*self.server, timeout=5)
        try:
            connection.request(method, path, body)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise


class NginxMemcached(Library):
    """nginx's memcached module reads; what it reads is written to the group itself, as by an application."""

    def __init__(self, servers):
        from pymemcache.client.hash import HashClient

        self.servers = servers
        behind = [tuple(server.rsplit(":", 1)) for server in os.environ["CLIENTS_SERVERS"].split(",")]
        options = {"timeout": 3, "connect_timeout": 3, "retry_attempts": 0, "dead_timeout": 6, "use_pooling": True}
        self.client = HashClient([(host, int(port)) for host, port in behind], default_noreply=False, **options)
        self.http = Http(servers[0])

    def set(self, key, value, ttl=0):
        return self.client.set(key, value, expire=ttl)

    def get(self, key):
        status, body = self.http.request("GET", f"/memcached?key={key}")
        if status not in (200, 404):
            raise Wrong(f"status {status}")
        return body if status == 200 else None

    def delete(self, key):
        return self.client.delete(key)

    def flush(self):
        self.client.flush_all()


class NginxMemc(Library):
    """nginx's memc module reads and writes: the method is the command."""

    def __init__(self, servers):
        self.servers = servers
        self.http = Http(servers[0])

    def change(self, method, path, body=None):
        """Whether the change had an effect: the module says 404 where there is nothing, 200 for NOT_STORED."""
        status, reply = self.http.request(method, path, body)
        if status == 404 or b"NOT_STORED" in reply or b"EXISTS" in reply:
            return False
        if status not in (200, 201):
            raise ValueError(f"status {status}: {reply[:60]!r}")
        return True

    def set(self, key, value, ttl=0):
        return self.change("PUT", f"/store?key={key}&seconds={ttl}", value)

    def get(self, key):
        status, body = self.http.request("GET", f"/store?key={key}")
        if status not in (200, 404):
            raise Wrong(f"status {status}")
        return body if status == 200 else None

    def add(self, key, value):
        return self.change("POST", f"/store?key={key}&seconds=0", value)

    def delete(self, key):
        return self.change("DELETE", f"/store?key={key}")

    def incr(self, key, delta):
        return self.number("incr", key, delta)

    def decr(self, key, delta):
        return self.number("decr", key, delta)

    def number(self, command, key, delta):
        status, body = self.http.request("GET", f"/memc?cmd={command}&key={key}&value={delta}")
        same("status", status in (201, 404), True)
        return int(body) if status == 201 else None

    def version(self):
        status, body = self.http.request("GET", "/memc?cmd=version")
        same("status", status, 200)
        return body.decode().replace("VERSION ", "").strip()

    def flush(self):
        same("status", self.http.request("GET", "/memc?cmd=flush_all")[0], 200)
