#!/usr/bin/env python3
"""Which functions of the C library servers import, and which of them sei/wrap.h has in handlers.

    apt-get download lighttpd redis-tools mosquitto ...     (no root; any folder)
    for f in *.deb; do dpkg-deb -x "$f" unpacked; done
    python3 hardening/sei/tests/imports/imports.py unpacked/usr/sbin/lighttpd unpacked/usr/bin/mosquitto ...

prints a row per program, and writes functions.txt beside this file, which the test `imports` compares with wrap.h.
Functions of startup.txt are left out: those with which a process is set up, threads and signals among them, and
those with which an event loop waits.
"""

import collections
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
WRAP = HERE.parent.parent / "include/sei/wrap.h"
# The compiler redirects these itself, or puts them in line.
BUILT_IN = {"malloc", "calloc", "free", "memcpy", "memmove", "memset"}
OTHER_NAMES = {"open_2": "open", "open64_2": "open"}


def plain(name):
    """The name in the source: without fortification, large files and standards."""
    name = re.sub(r"^__(isoc99_|xpg_(?=strerror_r))", "", name)
    fortified = re.fullmatch(r"__(\w+)_chk", name)
    name = fortified.group(1) if fortified else name
    name = OTHER_NAMES.get(name.removeprefix("__"), name)
    return name.removesuffix("64")


def imported(program, startup):
    output = subprocess.run(["nm", "-D", "--undefined-only", program], capture_output=True, text=True, check=True)
    symbols = (line.split()[-1] for line in output.stdout.splitlines())
    names = {symbol.split("@")[0] for symbol in symbols if "@GLIBC" in symbol}
    return {plain(name) for name in names - startup}


def covered():
    text = WRAP.read_text()
    return BUILT_IN | set(re.findall(r"SEI_WRAP\([^,]+, (\w+),", text)) | set(
        re.findall(r"(\w+)\)?\([^()]*\) SEI_PURE", text)) | set(re.findall(r"transaction_wrap\((\w+)\)\)\)", text))


def main():
    startup = set((HERE / "startup.txt").read_text().split())
    programs = {pathlib.Path(path).name: imported(path, startup) for path in sys.argv[1:]}
    known = covered()
    counts = collections.Counter(name for names in programs.values() for name in names)
    print("| Program | imports | in handlers | of them | with start-up functions |\n|---|---|---|---|---|")
    uses = met = 0
    for path in sys.argv[1:]:
        program = pathlib.Path(path).name
        names, everything = programs[program], imported(path, set())
        uses, met = uses + len(names), met + len(names & known)
        print(f"| {program} | {len(names)} | {len(names & known)} | {100 * len(names & known) // len(names)} % | "
              f"{100 * len(everything & known) // len(everything)} % |")
    print(f"| all | {uses} | {met} | {100 * met / uses:.1f} % | |")
    lines = [f"{'+' if name in known else '-'} {name} {count}\n" for name, count in sorted(counts.items())]
    (HERE / "functions.txt").write_text("".join(lines))


main()
