"""The checks, in this order. Each leaves the fleet as it was."""

import asyncio
import pathlib
import shutil
import subprocess
import time

from fleet import PATIENCE, Failure, Gate, shard, until
from load import CreditSubscriber, Poster, Subscriber
from nats import fields, number, rival_claims

# Longer than the lease: a host that hears no leader waits up to 5 s.
LEASE_SECONDS = 6
# After this time without a request, there are no more; a slot of `idle` is half a second.
QUIET_SECONDS = 4
# The times of the steps of the control, after which an attempt has failed: until hosts fetch or claim, and until both claims
# are decided.
CONTROL_SECONDS = 120
DECISION_SECONDS = 20
# Shorter than the time in which brokers elect another leader.
MUTE_SECONDS = 2
# On a busy machine another host may lead before the value is sent.
TEAR_COUNT = 5

CHECKS = []


def check(is_short):
    def add(function):
        function.is_short = is_short
        CHECKS.append(function)
        return function
    return add


def other(host):
    return (host + 1) % 3


@check(True)
async def plain(suite):
    """all hosts have the same events, and the upstream one reader"""
    await suite.recovers("all events after")
    await until("one request of /sse is open", lambda: suite.upstream.open_streams == 1)


async def kill(suite, processes, hosts):
    """Kills, waits until the others work, and starts again. Hosts are those whose daemon is killed."""
    for process in processes:
        process.kill()
    await suite.recovers("others", without=hosts)
    for process in processes:
        process.start()
    await suite.recovers("all")


async def stop(suite, processes, hosts):
    for process in processes:
        process.stop()
    await asyncio.sleep(LEASE_SECONDS)
    await suite.recovers("others", without=hosts)
    for process in processes:
        process.resume()
    await suite.recovers("all")


@check(True)
async def kill_leader(suite):
    """the leader's daemon is killed"""
    host = suite.fleet.leader("sse")
    await kill(suite, [suite.fleet.daemons[host]], [host])


@check(False)
async def kill_follower(suite):
    """another daemon is killed"""
    host = other(suite.fleet.leader("sse"))
    await kill(suite, [suite.fleet.daemons[host]], [host])


@check(True)
async def stop_leader(suite):
    """the leader's daemon is stopped for longer than the lease"""
    host = suite.fleet.leader("sse")
    await stop(suite, [suite.fleet.daemons[host]], [host])


@check(False)
async def stop_follower(suite):
    """another daemon is stopped for longer than the lease"""
    host = other(suite.fleet.leader("sse"))
    await stop(suite, [suite.fleet.daemons[host]], [host])


@check(True)
async def kill_leading_broker(suite):
    """the leading broker is killed"""
    await kill(suite, [suite.fleet.brokers[await suite.fleet.leading_broker("sse")]], [])


@check(False)
async def kill_following_broker(suite):
    """another broker is killed"""
    await kill(suite, [suite.fleet.brokers[other(await suite.fleet.leading_broker("sse"))]], [])


@check(False)
async def stop_leading_broker(suite):
    """the leading broker is stopped for longer than the lease"""
    await stop(suite, [suite.fleet.brokers[await suite.fleet.leading_broker("sse")]], [])


@check(False)
async def stop_following_broker(suite):
    """another broker is stopped for longer than the lease"""
    await stop(suite, [suite.fleet.brokers[other(await suite.fleet.leading_broker("sse"))]], [])


@check(True)
async def kill_both(suite):
    """the leader's daemon and the leading broker are killed together"""
    host = suite.fleet.leader("sse")
    await kill(suite, [suite.fleet.daemons[host], suite.fleet.brokers[await suite.fleet.leading_broker("sse")]], [host])


@check(False)
async def stop_both(suite):
    """the leader's daemon and the leading broker are stopped together"""
    host = suite.fleet.leader("sse")
    await stop(suite, [suite.fleet.daemons[host], suite.fleet.brokers[await suite.fleet.leading_broker("sse")]], [host])


async def divide(suite, host):
    """A host that leads does not fetch any more once it must know that it cannot append."""
    begin = suite.clock()
    suite.fleet.partition(host, True)
    await asyncio.sleep(LEASE_SECONDS)
    await suite.recovers("others", without=[host])
    excess = suite.upstream.fetches_while_cut("/poll", host, begin)
    suite.fleet.partition(host, False)
    await suite.recovers("all")
    if excess:
        raise Failure(excess)


@check(True)
async def divide_leader(suite):
    """the leader and a broker are separated from the others"""
    await divide(suite, suite.fleet.leader("sse"))


@check(False)
async def divide_leading_broker(suite):
    """the leading broker and a host are separated from the others"""
    await divide(suite, await suite.fleet.leading_broker("sse"))


@check(False)
async def divide_leading_both(suite):
    """the leader and the leading broker are separated from the others"""
    host = suite.fleet.leader("sse")
    await suite.fleet.lead_log(f"streamd-test-{shard('sse')}", host)
    await divide(suite, host)


@check(False)  # a host that a busy machine lets lag cannot catch up meanwhile: it reads slower than the others append
async def lost_answers(suite):
    """a third of the brokers' answers is lost"""
    suite.fleet.lose_answers(1 / 3)
    await suite.recovers("with losses")
    await suite.recovers("again")
    suite.fleet.lose_answers(0)
    await suite.recovers("without")


@check(True)
async def start_together(suite):
    """all daemons are killed, and start at the same time"""
    for daemon in suite.fleet.daemons:
        daemon.kill()
    for daemon in suite.fleet.daemons:
        daemon.start()
    await suite.recovers("all")


@check(True)
async def claim_together(suite):
    """two hosts claim a shard at the same time"""
    host = suite.fleet.leader("sse")
    suite.fleet.gate = Gate("sse")
    suite.fleet.daemons[host].kill()
    try:
        await until("claims of two hosts are sent", suite.fleet.gate.opened.is_set)
        await suite.recovers("others", without=[host])
    finally:
        suite.fleet.gate.opened.set()
        suite.fleet.gate = None
    suite.fleet.daemons[host].start()
    await suite.recovers("all")
    for problem in rival_claims(await suite.fleet.entries("sse")):
        raise Failure(problem)


@check(True)
async def tear(suite):
    """a leader is killed within a value of 3 MiB"""
    for attempt in range(TEAR_COUNT):
        await tear_value(suite, f"torn-{attempt}")
        if is_torn(await suite.fleet.entries("large")):
            return
    raise Failure("no record is torn")


async def tear_value(suite, name):
    host = suite.fleet.leader("large")
    poster = Poster(name, other(host), suite.fleet, stream="large", padding=3 << 20)
    links = suite.fleet.limit(host, 3 << 19)  # a part and a half
    suite.begin_task(poster.run())
    await until("the value is sent", lambda: poster.pending is not None)
    poster.is_finished = True  # after this value
    await until(
        "the leader has sent a part",
        lambda: any(link.is_exhausted.is_set() for link in links) or suite.fleet.leader("large") != host)
    suite.fleet.daemons[host].kill()
    suite.fleet.limit(host, None)
    await suite.recovers("others", without=[host])
    suite.fleet.daemons[host].start()
    await suite.recovers("all")
    await until("the value is confirmed", lambda: bool(poster.confirmed))
    await until("the value is there once", lambda: suite.oracle.published[poster.confirmed[0]] == 1)


def is_torn(entries):
    """Whether a record has a first part, and no last one."""
    is_open = False
    for sequence in sorted(entries):
        entry = fields(entries[sequence][1][4:])
        if is_open and (not number(entry.get(5)) or number(entry.get(6)) == 0):
            return True
        is_open = bool(number(entry.get(5))) and not number(entry.get(7))
    return False


@check(False)
async def wipe_broker(suite):
    """the leading broker loses its files"""
    broker = await suite.fleet.leading_broker("sse")
    suite.fleet.brokers[broker].kill()
    shutil.rmtree(suite.fleet.folder / f"broker-{broker}")
    await suite.recovers("others")
    suite.fleet.brokers[broker].start()
    await suite.recovers("all")


@check(False)
async def wipe_host(suite):
    """a daemon that was killed loses its files"""
    host = other(suite.fleet.leader("sse"))
    suite.fleet.daemons[host].kill()
    shutil.rmtree(suite.fleet.folder / f"daemon-{host}")
    (suite.fleet.folder / f"daemon-{host}").mkdir()
    await suite.recovers("others", without=[host])
    suite.oracle.allow_gaps()  # the host begins with the newest claim
    suite.fleet.daemons[host].start()
    await suite.recovers("all")


@check(True)
async def restart_all(suite):
    """the daemons restart one after another"""
    for host in range(3):
        await suite.fleet.daemons[host].end()
        suite.fleet.daemons[host].start()
        await suite.recovers(f"daemon {host}")


@check(False)
async def away(suite):
    """a daemon is away while the others write, and claim"""
    host = suite.fleet.leader("sse")
    await suite.fleet.daemons[host].end()
    for _ in range(2):
        leader = suite.fleet.leader("sse")
        if leader != host:
            await suite.fleet.daemons[leader].end()
            suite.fleet.daemons[leader].start()
        await suite.recovers("others", without=[host])
    suite.fleet.daemons[host].start()
    await suite.recovers("all")


@check(False)
async def wrong_clock(suite):
    """the clock of a daemon is an hour ahead"""
    library = suite.fleet.folder / "clock.so"
    source = pathlib.Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", str(library), str(source)], check=True)
    daemon = suite.fleet.daemons[other(suite.fleet.leader("sse"))]
    await daemon.end()
    daemon.environment = {"LD_PRELOAD": str(library)}
    daemon.start()
    await suite.recovers("all")
    others = [each for each in suite.fleet.daemons if each is not daemon]
    for each in others:  # it leads
        await each.end()
    await suite.recovers("it alone", without=[suite.fleet.daemons.index(each) for each in others])
    for each in others:
        each.start()
    await suite.recovers("all")
    await daemon.end()
    daemon.environment = {}
    daemon.start()
    await suite.recovers("afterwards")


@check(False)
async def wipe_all_brokers(suite):
    """all brokers lose their files"""
    await suite.pause(True)
    for broker in suite.fleet.brokers:
        broker.kill()
    for number in range(3):
        shutil.rmtree(suite.fleet.folder / f"broker-{number}")
    # The ids of a new epoch continue above those that may be in use, at the present time in microseconds.
    suite.oracle.allow_gaps(end=time.time_ns() // 1000)
    for broker in suite.fleet.brokers:
        broker.start()
    await suite.pause(False)
    await suite.recovers("all")


async def publishing(suite):
    """each published value is there once"""
    suite.times.append(f"{await suite.finish_publishers()} values")


async def demand(suite):
    """nothing is fetched without a subscriber that has credit, and from each upstream once a slot"""
    requests = suite.upstream.requests
    if requests["/idle"]:
        raise Failure(f"{requests['/idle']} requests of /idle without a subscriber")
    slots = suite.clock() - suite.upstream.start
    if excess := suite.upstream.excess("/poll", 1):
        raise Failure(excess)
    if not suite.upstream.conditional:
        raise Failure("no request has the tag of the last response")
    suite.times.append(f"{requests['/poll']} requests in {slots:.0f} slots with {len(suite.claims('poll'))} takeovers")

    async def is_quiet():
        nonlocal start, count
        if requests["/idle"] != count:
            start, count = suite.clock(), requests["/idle"]
        return suite.clock() - start > QUIET_SECONDS

    start, count = suite.clock(), 0
    socket = suite.fleet.socket(other(suite.fleet.leader("idle")))
    async with await CreditSubscriber.to(socket, "idle") as subscriber:
        for event in range(2):
            former = requests["/idle"]
            if event:
                subscriber.request()
            await suite.arrives(subscriber, "idle")
            if requests["/idle"] == former:
                raise Failure("an event of idle, and no request")
            await until("/idle is not fetched for a subscriber without credit", is_quiet)
    subscriber = Subscriber("late subscriber", "idle", other(suite.fleet.leader("idle")), suite.fleet, suite.oracle)
    task = suite.begin_task(subscriber.run())
    await until("/idle is fetched for a subscriber of another host", lambda: requests["/idle"] > 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until("/idle is fetched no more", is_quiet)


async def replicas(suite):
    """each replica has the events that all hosts have"""
    await suite.recovers("all")
    await suite.replicas()


async def travel(suite):
    """clients that change hosts see no gap and no repeat"""
    counts = [traveller.changes for traveller in suite.travellers]
    await until("travellers receive events of other hosts", lambda: all(
        traveller.changes > count + 3 for traveller, count in zip(suite.travellers, counts)))
    suite.times.append(f"{sum(traveller.changes for traveller in suite.travellers)} changes")


async def control(suite):
    """with a fence that compares the last entry of a subject, the log has two claims after the same entry

    Returns what it has found; raises Failure if it has found nothing. Only this is looked for: a fleet that fails in another
    way shows nothing. What subscribers see meanwhile does not count: a record that was acknowledged after the second claim
    is void, so that they may miss events.

    Nothing is stored until the broker that leads the log has both claims, because the others do not hear it."""
    async def mute():
        nonlocal broker
        broker = await suite.fleet.leading_broker("sse")
        suite.fleet.mute(broker, True)

    broker = None
    await until("a host has fetched", lambda: suite.oracle.numbers > 0, lambda: CONTROL_SECONDS)
    suite.fleet.gate = gate = Gate("sse", mute)
    suite.fleet.daemons[suite.fleet.leader("sse")].kill()
    await until("claims of two hosts are sent", gate.opened.is_set, lambda: CONTROL_SECONDS)
    suite.fleet.gate = None
    await asyncio.sleep(MUTE_SECONDS)
    suite.fleet.mute(broker, False)

    async def rivals():
        try:
            return next(rival_claims(await suite.fleet.entries("sse")), None)
        except (OSError, asyncio.TimeoutError):  # a broker is busy, or the log has another leader
            return None
    return await until("two claims follow the same entry", rivals, lambda: DECISION_SECONDS)


LAST_CHECKS = [travel, publishing, demand, replicas]
