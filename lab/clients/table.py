"""Runs client libraries written by others on a group of three replicas, kills one under each, and writes a table.

    table.py install [LANGUAGE ...]                   brings the libraries of table.toml into target/clients
    table.py run --crosscheck PROGRAM [--only WORD]   tries those whose library, language or protocol contains WORD

Each library does its checks on stock memcached and on the group at once, so that a check that fails on both is known as
such. Then a loop of set and get runs while replica 2 is killed and comes back, and all replicas must be equal.

    table.py separate [--only WORD]                   the loops on three separate caches: each must see losses

Exit code: 0 when every library did as table.toml says, 1 when one did not, 2 for a wrong command line.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tomllib

import fronts
import servers

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS_S = 120  # seconds that all checks of a library may take
LOOP_S = 8  # seconds of the loop
AT_ONCE = 3  # loops that run at once, under one kill
KILL_AFTER_S = 2  # seconds of the loop before replica 2 is killed
BEGIN, END = "<!-- table of clients: begin -->", "<!-- table of clients: end -->"


class Program:
    """One run of a library's program: what it printed, and whether it had to be ended."""

    def __init__(self, command, seconds, place):
        self.lines = []
        self.begun = threading.Event()
        self.child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"CLIENTS_SERVERS": ",".join(place.servers)},  # those behind a front
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.timer = threading.Timer(seconds, self.end)
        self.timer.start()
        self.late = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(line.rstrip("\n").split("\t"))
            if line.startswith("version\t"):
                self.begun.set()
        self.begun.set()

    def end(self):
        self.late = True
        os.killpg(self.child.pid, signal.SIGKILL)

    def finish(self):
        self.child.wait()
        self.timer.cancel()
        self.reader.join(5)
        return self

    def fields(self, kind):
        return [line[1:] for line in self.lines if line[0] == kind]

    def told(self):
        """Lines that are no results: the program's remarks, or its last words."""
        kinds = ("version", "ok", "no", "loop", "skip")
        return "\n".join("      " + "\t".join(line) for line in self.lines if line[0] not in kinds)


def command_of(row, languages):
    return [*shlex.split(languages[row["language"]]["program"]), row["name"]]


def run_checks(row, languages, places):
    """Runs the checks of a library on all `places` at once; per place: version, passed, failed with the reason."""
    started = []
    for place in places:
        front = fronts.start(row.get("front"), place)
        command = [*command_of(row, languages), "checks", ",".join(front.servers)]
        started.append((front, Program(command, CHECKS_S, place)))
    results = []
    for front, program in started:
        program.finish()
        front.stop()
        failed = {check: why for check, why in program.fields("no")}
        passed = [check for [check] in program.fields("ok")]
        if program.late:
            failed["end"] = f"no end within {CHECKS_S} s, after {', '.join(passed[-1:]) or 'nothing'}"
        elif program.child.returncode != 0:
            failed["end"] = f"exit code {program.child.returncode}"
            print(program.told())
        version = next((version for [version] in program.fields("version")), "")
        results.append({"version": version, "passed": passed, "failed": failed})
    return results


def run_loops(rows, languages, group):
    """Runs the loops of several libraries at once, while replica 2 is killed and comes back; a result for each."""
    started = []
    for row in rows:
        front = fronts.start(row.get("front"), group)
        command = [*command_of(row, languages), "loop", str(LOOP_S), ",".join(front.servers)]
        started.append((front, Program(command, 2 * LOOP_S + 60, group)))
    for _, program in started:
        program.begun.wait()
    time.sleep(KILL_AFTER_S)
    wait_for_return = group.kill(2)
    for front, program in started:
        program.finish()
        front.stop()
    wait_for_return()
    equal = group.is_equal()
    return [loop_result(row, program) | {"equal": equal} for row, (_, program) in zip(rows, started)]


def loop_result(row, program):
    told = program.told()
    print(f"{title(row)}, loop" + (f"\n{told}" if told else ""), flush=True)
    numbers = [[int(field) for field in fields] for fields in program.fields("loop")]
    if not numbers:
        return {"trouble": "no end in time" if program.late else f"exit code {program.child.returncode}"}
    [[pairs, wrong, failed, gap_ms]] = numbers
    return {"pairs": pairs, "wrong": wrong, "failed_calls": failed, "longest_gap_s": gap_ms / 1000}


def title(row):
    return f"{row['language']}: {row['library']} ({row['protocol']})"


def complaints(row, stock, ours, loop):
    """What is not as table.toml says."""
    on_stock, known = row.get("stock", {}), row.get("known", {})
    found = [f"fails on stock: {check}: {why}" for check, why in stock["failed"].items() if check not in on_stock]
    expected = on_stock.keys() | known.keys()
    found += [f"fails: {check}: {why}" for check, why in ours["failed"].items() if check not in expected]
    found += [f"passes now, take it out of `known`: {check}" for check in known if check in ours["passed"]]
    if not ours["passed"]:
        found.append("no check passed")
    if loop is not None:
        found += loop_complaints(loop)
    return found


def loop_complaints(loop):
    found = [] if loop["equal"] else ["replicas differ afterwards"]
    if "trouble" in loop:
        return [*found, f"loop: {loop['trouble']}"]
    if loop["wrong"]:
        found.append(f"loop: {loop['wrong']} wrong values")
    if loop["pairs"] - loop["failed_calls"] < loop["pairs"] / 2:
        found.append(f"loop: {loop['failed_calls']} failed calls in {loop['pairs']} pairs")
    return found


def try_rows(rows, languages, stock, group):
    """The checks of each row, then the loops of all of them at once."""
    checked = []
    for row in rows:
        begun = time.monotonic()
        checked.append(run_checks(row, languages, [stock, group]))
        ours = checked[-1][1]
        count = len(ours["passed"]) + len(ours["failed"])
        seconds = time.monotonic() - begun
        print(f"{title(row)}: {len(ours['passed'])} of {count} checks in {seconds:.1f} s", flush=True)
    looping = [row for row, (_, ours) in zip(rows, checked) if ours["passed"] and not row.get("no_loop")]
    loops = dict(zip(map(id, looping), run_loops(looping, languages, group) if looping else []))
    results = []
    for row, (on_stock, ours) in zip(rows, checked):
        loop = loops.get(id(row))
        result = {key: row[key] for key in ("library", "language", "protocol")}
        result |= {"version": ours["version"] or on_stock["version"], "passed": ours["passed"]}
        result |= {"failed": ours["failed"], "failed_on_stock": on_stock["failed"], "loop": loop}
        result["reasons"] = row.get("stock", {}) | row.get("known", {})
        result["complaints"] = complaints(row, on_stock, ours, loop)
        for complaint in result["complaints"]:
            print(f"{title(row)}: {complaint}", flush=True)
        results.append(result)
    return results


def markdown(results):
    """The table of docs/clients.md, and below it the checks that fail."""
    lines = [
        "| Language | Library | Version | Protocol | Checks | Pairs | Wrong | Failed | Gap, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    remarks = []
    for result in sorted(results, key=lambda result: result["language"]):
        passed, failed, loop = len(result["passed"]), result["failed"], result["loop"]
        cells = [result[key] for key in ("language", "library", "version", "protocol")]
        cells.append(f"{passed} of {passed + len(failed)}")
        if loop is None:
            cells += ["-"] * 4
        elif "trouble" in loop:
            cells += [loop["trouble"], "-", "-", "-"]
        else:
            cells += [loop["pairs"], loop["wrong"], loop["failed_calls"], f"{loop['longest_gap_s']:.2f}"]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
        remarks += [remark(result, check) for check in failed]
    return "\n".join([*lines, *([""] if remarks else []), *remarks])


def remark(result, check):
    where = "on stock memcached too" if check in result["failed_on_stock"] else "here alone"
    why = result["reasons"].get(check, result["failed"][check])
    text = f"- {result['language']}, {result['library']} ({result['protocol']}): `{check}` fails {where}: {why}."
    return textwrap.fill(text, 120, subsequent_indent="  ")


def write_table(path, table):
    text = path.read_text()
    before, mark, rest = text.partition(BEGIN)
    _, other, after = rest.partition(END)
    if not mark or not other:
        sys.exit(f"{path}: has no lines `{BEGIN}` and `{END}`")
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def missing_packages(entries):
    """Debian's packages that are not installed, but those whose command somebody else has brought."""
    pairs = [entry.rpartition(":") for entry in sorted(entries)]
    packages = [package for command, _, package in pairs if not (command and shutil.which(command))]
    query = ["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *packages]
    state = subprocess.run(query, capture_output=True, text=True)
    there = {line.split()[0] for line in state.stdout.splitlines() if line.endswith("ok installed")}
    return [package for package in packages if package not in there]


def install(languages, wanted):
    """Brings Debian's packages that are missing, then each language's libraries."""
    names = [name for name in languages if not wanted or name in wanted]
    missing = missing_packages({entry for name in names for entry in languages[name].get("apt", [])})
    if missing:
        root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "check": True}
        print(f"installing: {' '.join(missing)}", flush=True)
        subprocess.run([*root, "apt-get", "update", "-q"], **quiet)
        command = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-q", "-y", "--no-install-recommends"]
        subprocess.run([*root, *command, *missing], **quiet)
    (ROOT / "target/clients").mkdir(parents=True, exist_ok=True)
    for name in names:
        begun = time.monotonic()
        for command in languages[name].get("install", []):
            subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
        print(f"{name}: installed in {time.monotonic() - begun:.0f} s", flush=True)


def chosen_rows(arguments, table):
    words = arguments.only or [""]
    keys = ("library", "language", "protocol", "name")
    return [row for row in table["row"] if any(word in " ".join(row[key] for key in keys) for word in words)]


def run(arguments, chosen, languages):
    results = []
    stock = servers.Stock(arguments.port + 10)
    try:
        group = servers.Group(shutil.which(arguments.crosscheck) or arguments.crosscheck, arguments.port)
        try:
            for first in range(0, len(chosen), AT_ONCE):
                results += try_rows(chosen[first : first + AT_ONCE], languages, stock, group)
        finally:
            group.stop()
    finally:
        stock.stop()
    print("\n" + markdown(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.write:
        write_table(arguments.write, markdown(results))
    bad = [result for result in results if result["complaints"]]
    print(f"\n{len(results) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad or not results else 0


def run_separate(arguments, rows, languages):
    """Whether every loop sees that three separate caches lose what a killed one had, as it would that of a group."""
    looping = [row for row in rows if not row.get("no_loop")]
    caches = servers.Separate(arguments.port)
    blind = []
    try:
        for first in range(0, len(looping), AT_ONCE):
            batch = looping[first : first + AT_ONCE]
            for row, loop in zip(batch, run_loops(batch, languages, caches)):
                print(f"{title(row)}: {json.dumps(loop)}", flush=True)
                if not loop.get("wrong") and not loop.get("failed_calls"):
                    blind.append(title(row))
    finally:
        caches.stop()
    print(f"\n{len(looping) - len(blind)} see losses, {len(blind)} do not: {', '.join(blind)}")
    return 1 if blind or not looping else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("install", help="bring the libraries into target/clients")
    one.add_argument("languages", nargs="*", metavar="LANGUAGE")
    other = actions.add_parser("run", help="try the libraries on a group")
    other.add_argument("--crosscheck", required=True, metavar="PROGRAM", help="the binary to try them on")
    other.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results there")
    other.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the table between the marks there")
    third = actions.add_parser("separate", help="show that the loops see losses, on three separate caches")
    for action in (other, third):
        action.add_argument("--port", type=int, default=23100, help="first of 20 ports to use [default: 23100]")
        action.add_argument("--only", action="append", metavar="WORD", help="rows that contain it; may be repeated")
    arguments = parser.parse_args()
    table = tomllib.loads((pathlib.Path(__file__).parent / "table.toml").read_text())
    if arguments.action == "install":
        install(table["language"], arguments.languages)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end with this program
    rows = chosen_rows(arguments, table)
    if arguments.action == "separate":
        return run_separate(arguments, rows, table["language"])
    return run(arguments, rows, table["language"])


if __name__ == "__main__":
    sys.exit(main())
