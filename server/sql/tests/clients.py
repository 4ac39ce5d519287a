"""What clients that others wrote do with the service: each case is one thing that users of PostgreSQL expect to work.

Usage: clients.py PORT [PART OF A NAME]

Each case prints one line. `ok`: as PostgreSQL. `refused`: the service said that it lacks this (0A000) and what to do
instead. `FAIL`: anything else, a wrong answer above all. `absent`: the client is not installed. The program ends with 1
if a case fails. Against PostgreSQL itself all cases are ok. PGUSER and PGDATABASE say who asks, and for what.
"""
import sys

# Importing a file of cases runs them.
from client_cases import psycopg3, statements, drivers, frameworks, programs  # noqa: F401
from client_cases.harness import COUNTS

print(", ".join(f"{count} {word}" for word, count in COUNTS.items()))
sys.exit(1 if COUNTS["FAIL"] else 0)
