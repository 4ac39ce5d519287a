"""Every call of greenstalk, at the replicas of a group whose ports are the arguments."""

import sys

import threading

import greenstalk

ports = [int(port) for port in sys.argv[1:]]
clients = [greenstalk.Client(("127.0.0.1", port)) for port in ports]
first, second, third = (clients * 3)[:3]


def fails(error, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except error:
        return
    raise AssertionError(f"{call} raises no {error.__name__}")


first.use("mail")
assert first.using() == "mail"
second.watch("mail")
assert second.ignore("default") == 1
assert second.watching() == ["mail"]
fails(greenstalk.NotIgnoredError, second.ignore, "mail")

a = first.put("first", priority=10)
b = first.put("urgent", priority=1, ttr=100)
c = first.put("later", delay=1000)
assert first.peek_ready().id == b and first.peek_delayed().id == c
fails(greenstalk.NotFoundError, first.peek_buried)
job = second.reserve(timeout=0)
assert (job.id, job.body) == (b, "urgent")
fails(greenstalk.NotFoundError, third.touch, job)
fails(greenstalk.NotFoundError, third.delete, job)
second.touch(job)
second.release(job, priority=20)
job = second.reserve(timeout=0)
assert job.id == a
second.bury(job, priority=5)
assert first.peek_buried().id == a and third.stats_job(a)["state"] == "buried"
assert first.kick(10) == 1
assert first.kick(10) == 1, "then delayed ones"
second.bury(second.reserve_job(c))
second.kick_job(c)
fails(greenstalk.NotFoundError, second.kick_job, c)
stats = third.stats_job(b)
assert (stats["tube"], stats["releases"], stats["pri"]) == ("mail", 1, 20), stats
assert third.stats_tube("mail")["current-jobs-ready"] == 3
assert third.stats()["total-jobs"] == 3
assert sorted(third.tubes()) == ["default", "mail"]
fails(greenstalk.NotFoundError, third.stats_tube, "nix")
first.pause_tube("mail", 1000)
fails(greenstalk.TimedOutError, second.reserve, timeout=0)
first.pause_tube("mail", 0)
for _ in range(3):
    second.delete(second.reserve(timeout=0))
fails(greenstalk.TimedOutError, second.reserve, timeout=0)
fails(greenstalk.JobTooBigError, first.put, "x" * 65536)
fails(greenstalk.NotFoundError, first.delete, 4711)
first.put("x" * 65535, ttr=1)
job = second.reserve(timeout=0)
assert len(job.body) == 65535
fails(greenstalk.DeadlineSoonError, second.reserve, timeout=0)
second.delete(job)
threading.Timer(0.2, first.put, ["waited for"]).start()
job = second.reserve()
assert job.body == "waited for"
second.delete(job)
fails(greenstalk.TimedOutError, second.reserve, timeout=1)
threading.Timer(0.2, first.put, ["within a minute"]).start()
second.delete(second.reserve(timeout=60))
for client in clients:
    client.close()
print("all calls answered")
