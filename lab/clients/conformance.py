"""Holds a memcached server against the byte-exact exchanges of exchanges.txt, so that no client can tell servers apart.

    conformance.py HOST:PORT [HOST:PORT ...]     each must answer like stock memcached
    conformance.py --only WORD HOST:PORT         cases whose name contains WORD

Exit code: 0 when every byte was as expected, 1 otherwise, 2 for a wrong command line or table. Uses Python's standard
library only.
"""

import argparse
import itertools
import pathlib
import re
import secrets
import socket
import sys
import threading
import time

HERE = pathlib.Path(__file__).parent
SILENCE = 3.0  # seconds without a byte after which a reply that has not come will not come
RUN = secrets.token_hex(3)
serial = itertools.count()


class Case:
    """One named exchange: steps of sending, expecting and waiting."""

    def __init__(self, name, line):
        self.name = name
        self.line = line
        self.steps = []

    def add(self, kind, text):
        if kind in ("send", "expect") and self.steps and self.steps[-1][0] == kind:
            self.steps[-1][1].append(text)
        else:
            self.steps.append((kind, [text]))


def load_cases(path):
    """Reads the table; a line it cannot read ends the program."""
    cases = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("== "):
            cases.append(Case(line[3:], number))
        elif line and not line.startswith("#"):
            if not cases or not add_line(cases[-1], line):
                sys.exit(f"{path.name}:{number}: cannot read `{line}`")
    return cases


def add_line(case, line):
    mark, _, rest = line.partition(" ")
    if mark == ">" or mark == ">|":
        case.add("send", (rest, mark == ">"))
    elif line == "< (closed)":
        case.add("closed", None)
    elif mark in ("<", "<|", "<*"):
        case.add("expect", (mark, rest))
    elif mark == "~":
        case.add("wait", float(rest))
    else:
        return False
    return True


def unescape(text):
    replaced = re.sub(
        r"\\(x[0-9a-f]{2}|.)",
        lambda m: {"r": "\r", "n": "\n", "t": "\t", "\\": "\\"}.get(m[1]) or chr(int(m[1][1:], 16)),
        text,
    )
    return replaced.encode("latin-1")


def expand(text, prefix, known):
    """Fills in prefix, repetitions and remembered numbers."""
    text = text.replace("$", prefix)
    text = re.sub(r"\{(.)\*(\d+)\}", lambda m: m[1] * int(m[2]), text)
    return re.sub(r"\{=(\w+)\}", lambda m: known.get(m[1], "0"), text)


def pattern_of(lines, prefix, known):
    """The regular expression of an expected reply."""
    out = b""
    for mark, text in lines:
        if mark == "<*":
            out += b"(?:" + text.replace("$", prefix).encode("latin-1") + rb"\r\n)+"
            continue
        for part in re.split(r"(\{N(?::\w+)?\})", expand(text, prefix, known)):
            number = re.fullmatch(r"\{N(?::(\w+))?\}", part)
            if number and number[1]:
                out += b"(?P<" + number[1].encode() + b">[0-9]{1,20})"
            elif number:
                out += b"[0-9]{1,20}"
            else:
                out += re.escape(unescape(part))
        if mark == "<":
            out += rb"\r\n"
    return re.compile(out, re.DOTALL)


class Connection:
    """A socket that reads until a reply fits, or nothing more comes."""

    def __init__(self, server):
        self.socket = socket.create_connection(server, timeout=10)

    def send(self, data):
        self.socket.settimeout(20)
        self.socket.sendall(data)

    def read(self, pattern):
        received = b""
        self.socket.settimeout(SILENCE)
        while not pattern.fullmatch(received):
            try:
                chunk = self.socket.recv(1 << 20)
            except TimeoutError:
                return received
            except ConnectionError:
                return received + b"(reset)"
            if not chunk:
                return received + b"(closed)"
            received += chunk
        return received


def run_case(case, server):
    """The first reply that is not as expected, as (received, expected pattern), or None."""
    prefix = f"{RUN}{next(serial):03d}"
    known = {}
    connection = Connection(server)
    closed = False
    for kind, parts in case.steps:
        if kind == "send":
            data = b"".join(unescape(expand(t, prefix, known)) + (b"\r\n" if end else b"") for t, end in parts)
            connection.send(data)
        elif kind == "wait":
            time.sleep(parts[0])
        elif kind == "closed":
            closed = True
            received = connection.read(re.compile(rb"(?!)"))
            if received not in (b"(closed)", b"(reset)"):
                return received, b"(closed)", prefix
        else:
            pattern = pattern_of(parts, prefix, known)
            received = connection.read(pattern)
            match = pattern.fullmatch(received)
            if not match:
                return received, pattern.pattern, prefix
            known.update({name: value.decode() for name, value in match.groupdict().items()})
    if not closed:
        connection.send(b"mn\r\n")
        received = connection.read(re.compile(rb"MN\r\n"))
        if received != b"MN\r\n":
            return received, rb"MN\r\n (the fence: nothing may be left over)", prefix
    return None


def shown(data):
    text = data.decode("latin-1") if isinstance(data, bytes) else data
    text = text.encode("unicode_escape").decode()
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-60:]} ({len(text)} characters)"


def judge(case, server):
    """A sentence on what is wrong, or None."""
    outcome = run_case(case, server)
    if outcome is None:
        return None
    received, expected, prefix = outcome
    return f"received {shown(received.replace(prefix.encode(), b'$'))}\n      expected {shown(expected)}"


def run_server(cases, server):
    """Runs every case; flush_all has no friends, so cases with it run alone and last."""
    failures = {}
    alone = [case for case in cases if "flush_all" in case.name]
    together = [case for case in cases if case not in alone]
    queue = iter(together)
    lock = threading.Lock()

    def attempt(case):
        try:
            failure = judge(case, server)
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
        if failure:
            failures[case.line] = (case.name, failure)

    def work():
        while True:
            with lock:
                case = next(queue, None)
            if case is None:
                return
            attempt(case)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for case in alone:
        attempt(case)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="HOST:PORT")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name contains WORD")
    arguments = parser.parse_args()
    cases = load_cases(HERE / "exchanges.txt")
    cases = [case for case in cases if arguments.only in case.name]
    wrong = 0
    for server in arguments.servers:
        host, _, port = server.rpartition(":")
        failures = run_server(cases, (host, int(port)))
        for line, (name, failure) in sorted(failures.items()):
            print(f"{server}: {name} (exchanges.txt:{line})\n      {failure}")
        wrong += len(failures)
        print(f"{server}: {len(cases) - len(failures)} of {len(cases)} exchanges as expected")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
