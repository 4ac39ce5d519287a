"""Runs libmemcached's own tools, each as a check; lab/clients/python/harness.py tells the command line and the output.

`tools` and `tools-binary` are the programs that operators call; `memccapable-ascii` and `memccapable-binary` are
libmemcached's own test of a server, of which every line is a check.
"""

import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import time

LIMIT = 30  # seconds that one call may take


def call(*command, code=0, cwd=None):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, cwd=cwd)
    if done.returncode != code:
        raise ValueError(f"{command[0]}: exit code {done.returncode}: {(done.stdout + done.stderr)[-120:]!r}")
    return done.stdout


def same(what, got, expected):
    if got != expected:
        raise ValueError(f"{what}: got {got!r:.80}, expected {expected!r:.80}")


class Tools:
    """The programs, with the servers and the protocol of this run."""

    def __init__(self, servers, binary, folder):
        self.servers = servers
        self.options = [f"--servers={servers}", *(["--binary"] if binary else [])]
        self.binary = binary
        self.folder = pathlib.Path(folder)
        self.key = f"tool-{secrets.token_hex(4)}"
        self.value = secrets.token_bytes(50_000)

    def run(self, program, *arguments, code=0):
        return call(program, *self.options, *arguments, code=code, cwd=self.folder)

    def memccp(self):
        (self.folder / self.key).write_bytes(self.value)
        self.run("memccp", self.key)
        for server in self.servers.split(","):
            same(server, call("memccat", f"--servers={server}", self.key).rstrip(b"\n"), self.value.rstrip(b"\n"))

    def memccat(self):
        self.run("memccat", f"--file={self.key}-back", self.key)
        same("the file", (self.folder / f"{self.key}-back").read_bytes(), self.value)

    def memcexist(self):
        self.run("memcexist", self.key)
        self.run("memcexist", f"{self.key}-nobody", code=1)

    def memctouch(self):
        self.run("memctouch", "--expire=1000", self.key)
        self.run("memctouch", "--expire=1000", f"{self.key}-nobody", code=1)

    def memcdump(self):
        (self.folder / f"{self.key}-small").write_bytes(b"x")
        self.run("memccp", f"{self.key}-small")
        # Stock memcached lists an item some moments after it was stored.
        deadline = time.monotonic() + 6
        while f"{self.key}-small" not in call("memcdump", f"--servers={self.servers}").decode().split():
            same("listed in time", time.monotonic() < deadline, True)
            time.sleep(0.2)

    def memcrm(self):
        self.run("memcrm", self.key)
        self.run("memcexist", self.key, code=1)

    def memcping(self):
        call("memcping", f"--servers={self.servers}")

    def memcstat(self):
        told = call("memcstat", f"--servers={self.servers}").decode()
        same("versions told", len(re.findall(r"\bversion: 1\.", told)), len(self.servers.split(",")))

    def memcslap(self):
        for test in ("set", "get", "mget"):
            for more in ([], ["--non-blocking"]):
                self.run("memcslap", f"--test={test}", "--concurrency=4", "--execute-number=50", *more)

    def memcflush(self):
        (self.folder / "flushed").write_bytes(b"x")
        self.run("memccp", "flushed")
        self.run("memcflush")
        self.run("memcexist", "flushed", code=1)


def run_tools(servers, binary):
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(servers, binary, folder)
        names = ["memccp", "memccat", "memcexist", "memctouch", "memcdump", "memcrm", "memcping", "memcstat"]
        for name in [*names, "memcslap", "memcflush"]:
            try:
                getattr(tools, name)()
                print(f"ok\t{name}", flush=True)
            except (ValueError, OSError, subprocess.TimeoutExpired) as error:
                print(f"no\t{name}\t{str(error)[:200]}", flush=True)


def run_capable(servers, option):
    """Every test of memccapable has a line; it goes on after one that fails."""
    host, _, port = servers.split(",")[0].rpartition(":")
    command = ["memccapable", "-h", host, "-p", port, option, "-t", "10"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    for name, end in re.findall(r"^(\w+ [\w ]*\w) +\[(.*)\]", done.stdout + done.stderr, re.MULTILINE):
        name = name.replace(" ", "_")
        print(f"ok\t{name}" if end == "pass" else f"no\t{name}\t{end}", flush=True)
    if done.returncode:
        print(f"no\tend\texit code {done.returncode}")


def main():
    name, _, servers = sys.argv[1], sys.argv[2], sys.argv[-1]
    print("version\t" + re.search(r"libmemcached v([\d.]+)", call("memcslap", "--version").decode())[1])
    if name.startswith("tools"):
        run_tools(servers, name == "tools-binary")
    else:
        run_capable(servers, "-a" if name == "memccapable-ascii" else "-b")


if __name__ == "__main__":
    main()
