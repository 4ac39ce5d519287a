"""PostgreSQL's own programs: psql and pgbench."""
import os
import re
import subprocess

from .harness import DATABASE, PORT, SECONDS, USER, Told, case, same


def run(*command, text=None, ok=(0,)):
    """Runs a program, which says what it was told if it fails."""
    if not any(os.access(os.path.join(folder, command[0]), os.X_OK) for folder in os.get_exec_path()):
        raise ImportError(command[0])
    where = ["-h", "127.0.0.1", "-p", str(PORT), "-U", USER]
    done = subprocess.run([command[0], *where, *command[1:]], input=text, capture_output=True, text=True,
                          timeout=SECONDS)
    errors = [line for line in done.stderr.splitlines() if "ERROR" in line or "error:" in line]
    if done.returncode not in ok or errors:
        hint = next((line for line in done.stderr.splitlines() if line.startswith("HINT:")), None)
        code = re.search(r"ERROR:\s+([0-9A-Z]{5}): ", done.stderr)
        code = code and code.group(1)
        raise Told(code, hint, (errors or done.stderr.splitlines() or [f"ends with {done.returncode}"])[0])
    return done.stdout


def psql(*commands):
    arguments = [part for command in commands for part in ("-c", command)]
    return run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", *arguments, DATABASE)


def psql_tables():
    psql("DROP TABLE IF EXISTS c_psql_child; DROP TABLE IF EXISTS c_psql",
         "CREATE TABLE c_psql (id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE, n numeric(8,2) DEFAULT 1)",
         "CREATE TABLE c_psql_child (id int PRIMARY KEY, p int REFERENCES c_psql(id) ON DELETE CASCADE)",
         "CREATE INDEX c_psql_n ON c_psql (n)")


def has(text, *parts):
    for part in parts:
        if part not in " ".join(text.split()):
            raise AssertionError(f"{part!r} is missing in {text!r}")


@case("psql: statements")
def _():
    same(psql("SELECT 1 AS a, 'x' AS b"), " a | b \n---+---\n 1 | x\n(1 row)\n\n")


@case("psql: a script with a transaction")
def _():
    psql_tables()
    lines = ["BEGIN;", "INSERT INTO c_psql VALUES (1, 'a');", "SAVEPOINT s;", "DELETE FROM c_psql;", "ROLLBACK TO s;",
             "COMMIT;", "\\t on", "\\a", "SELECT count(*) FROM c_psql;"]
    script = "".join(line + "\n" for line in lines)
    same(run("psql", "-X", "-q", DATABASE, text=script), "1\n")


@case("psql: \\copy both ways")
def _():
    psql_tables()
    script = "\\copy c_psql (id, name) from stdin\n1\ta\n2\tb\n\\.\n\\copy c_psql (id, name) to stdout\n"
    same(run("psql", "-X", "-q", DATABASE, text=script), "1\ta\n2\tb\n")


@case("psql: \\d")
def _():
    psql_tables()
    has(psql("\\d"), "public | c_psql | table")


@case("psql: \\dt")
def _():
    psql_tables()
    has(psql("\\dt c_psql*"), "public | c_psql | table", "public | c_psql_child | table")


@case("psql: \\di, \\dv, \\ds, \\dn")
def _():
    psql_tables()
    has(psql("\\di c_psql*"), "c_psql_n | index", "c_psql_pkey | index")
    psql("\\dv", "\\ds")
    has(psql("\\dn"), "public")


@case("psql: \\l")
def _():
    has(psql("\\l"), DATABASE, "UTF8")


@case("psql: \\du")
def _():
    has(psql("\\du"), "Superuser")


@case("psql: \\df")
def _():
    has(psql("\\df"), "List of functions")


@case("psql: \\d of a table")
def _():
    psql_tables()
    has(psql("\\d c_psql"), "id | integer | | not null", "name | character varying(20) | | not null",
        '"c_psql_pkey" PRIMARY KEY, btree (id)', '"c_psql_n" btree (n)', '"c_psql_name_key" UNIQUE CONSTRAINT',
        "Referenced by:")
    has(psql("\\d c_psql_child"), "FOREIGN KEY (p) REFERENCES c_psql(id) ON DELETE CASCADE")


@case("psql: \\dt+, \\d+")
def _():
    psql_tables()
    has(psql("\\dt+ c_psql"), "c_psql | table")
    has(psql("\\d+ c_psql"), "id | integer")


@case("pgbench: makes its tables")
def _():
    run("pgbench", "-i", "-q", "-s", "1", DATABASE)
    has(psql("SELECT count(*) FROM pgbench_accounts"), "100000")


def pgbench(mode):
    before = psql("SELECT count(*) FROM pgbench_history")
    run("pgbench", "-n", "-c", "2", "-t", "5", "-M", mode, "--max-tries", "100", DATABASE)
    count = lambda text: int(text.split()[2])
    same(count(psql("SELECT count(*) FROM pgbench_history")) - count(before), 10)
    sums = [psql(f"SELECT coalesce(sum({column}), 0) FROM pgbench_{table}").split()[2] for column, table in
            (("abalance", "accounts"), ("tbalance", "tellers"), ("bbalance", "branches"), ("delta", "history"))]
    same(len(set(sums)), 1)


@case("pgbench: transactions as simple queries")
def _():
    pgbench("simple")


@case("pgbench: transactions with parameters")
def _():
    pgbench("extended")


@case("pgbench: transactions as prepared statements")
def _():
    pgbench("prepared")
