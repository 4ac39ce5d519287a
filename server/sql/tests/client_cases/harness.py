"""Runs cases one by one, and tells an answer from a refusal and from a failure."""
import os
import signal
import sys
import traceback

PORT = int(sys.argv[1])
ONLY = sys.argv[2] if len(sys.argv) > 2 else ""
USER = os.environ.get("PGUSER", "postgres")
DATABASE = os.environ.get("PGDATABASE", "postgres")
ADDRESS = f"{USER}@127.0.0.1:{PORT}/{DATABASE}"
SECONDS = 60
COUNTS = {"ok": 0, "refused": 0, "FAIL": 0, "absent": 0}


class Told(Exception):
    """What a program wrote about its failure."""

    def __init__(self, code, hint, text):
        super().__init__(text)
        self.sqlstate, self.hint = code, hint


def code_and_hint(error):
    """The SQLSTATE and the hint of a client's exception, which may have another one inside."""
    code, hint, seen = None, None, set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        own = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        advice = getattr(error, "hint", None) or getattr(getattr(error, "diag", None), "message_hint", None)
        if not own and error.args and isinstance(error.args[0], dict):
            own, advice = error.args[0].get("C"), error.args[0].get("H")
        if own and code in (None, own):
            code, hint = own, hint or advice
        error = getattr(error, "orig", None) or error.__cause__ or error.__context__
    return code, hint


def case(name):
    """Runs a function as a case, at once."""
    def decorate(function):
        if ONLY not in name:
            return
        def late(*_):
            raise TimeoutError(f"no end after {SECONDS} seconds")
        signal.signal(signal.SIGALRM, late)
        signal.alarm(SECONDS)
        note = ""
        try:
            function()
            word = "ok"
        except ImportError as error:
            word, note = "absent", str(error)
        except Exception as error:
            code, hint = code_and_hint(error)
            word = "refused" if code == "0A000" and hint else "FAIL"
            text = " ".join(str(error).split())[:150] or traceback.format_exc().splitlines()[-2].strip()
            note = f"{type(error).__name__} {code or ''} {text}"
        finally:
            signal.alarm(0)
        COUNTS[word] += 1
        print(f"{word:8}{name}" + (f" | {note}" if note else ""), flush=True)
    return decorate


def same(found, expected):
    """Fails if an answer is not as expected."""
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def fails(code, function, *args):
    """Fails if a call does not raise an error with this SQLSTATE."""
    try:
        function(*args)
    except Exception as error:
        found, _ = code_and_hint(error)
        if found == "0A000" and code != "0A000":
            raise
        same(found, code)
        return
    raise AssertionError(f"no error {code}: {args!r}")
