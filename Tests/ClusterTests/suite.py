"""A fleet under load, and what must be true of it after each fault."""

import asyncio
import collections

from fleet import PATIENCE, Failure, shard, until
from load import LinePublisher, Oracle, Poster, Subscriber, Upstream, brief
from nats import Client, records, rival_claims

STREAMS = ("sse", "poll", "notes", "large")
# From here on, the figure has what was waited for.
SLOW_SECONDS = 15


class Suite:
    def __init__(self, fleet, streamctl):
        self.fleet, self.oracle = fleet, Oracle()
        self.upstream = Upstream(fleet.folder / "upstream.sock", fleet.host, self.claims)
        self.claims_by_shard = {}
        self.subscribers = [
            Subscriber(f"subscriber of host {host}", stream, host, fleet, self.oracle)
            for host in range(3) for stream in STREAMS]
        self.travellers = [Subscriber("traveller", stream, 0, fleet, self.oracle) for stream in ("sse", "notes")]
        self.lines = [
            LinePublisher("named", 0, fleet, streamctl, True), LinePublisher("second", 1, fleet, streamctl, True),
            LinePublisher("anonymous", 2, fleet, streamctl, False)]
        self.posters = [Poster(f"poster-{host}", host, fleet) for host in range(3)]
        self.times = []
        self.tasks = []
        self.has_wiped_broker = False

    async def __aenter__(self):
        await self.upstream.__aenter__()
        self.clock = asyncio.get_running_loop().time
        for process in self.fleet.brokers + self.fleet.daemons:
            process.start()
        for host in range(3):
            await until(f"daemon {host} listens", lambda: self.fleet.socket(host).exists())
        for each in self.subscribers + self.travellers + self.lines + self.posters:
            self.begin_task(each.run())
        self.begin_task(self._travel())
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.upstream.__aexit__()

    def begin_task(self, coroutine):
        self.tasks.append(asyncio.create_task(coroutine))
        return self.tasks[-1]

    async def _travel(self):
        """Each traveller goes to another host again and again, also to one that is not running."""
        while True:
            await asyncio.sleep(2)
            for traveller in self.travellers:
                traveller.move((traveller.host + 1) % 3)

    def begin(self):
        self.times = []
        self.oracle.begin()
        for task in self.tasks:
            if task.done() and not task.cancelled() and task.exception():
                raise task.exception()

    def figures(self):
        return f": {', '.join([*self.times, f'longest time without an event {self.oracle.pause():.1f} s'])}"

    def take_violations(self):
        violations, self.oracle.violations = self.oracle.violations, []
        return [*violations[:5], *([f"and {len(violations) - 5} more"] if len(violations) > 5 else [])]

    def claims(self, stream):
        """The host of each claim of a stream's shard that has succeeded until now, in the order of calls, because terms rise
        within an epoch only."""
        claims = self.claims_by_shard.setdefault(shard(stream), [])
        terms = [(term, host) for number, term, host in self.fleet.terms() if number == shard(stream)]
        new = collections.Counter(terms) - collections.Counter(claims)
        claims.extend(sorted(new.elements()))
        return [host for _, host in claims]

    async def recovers(self, what, without=()):
        """Waits until all hosts but some have what was sent and published until now, and prints how long that took."""
        start = self.clock()
        number = self.upstream.newest
        hosts = [host for host in range(3) if host not in without]
        lines = [value for line in self.lines for value in line.values()[-1:] if line.host in hosts]
        posted = {poster: len(poster.confirmed) for poster in self.posters
                  if poster.host in hosts and not poster.is_finished}
        missing, last = [], ""

        def is_done():
            nonlocal last
            last = "; ".join(missing) or last
            missing.clear()
            if self.oracle.numbers < number:
                missing.append(f"sse is at {self.oracle.numbers}, not {number}")
            missing.extend(f"{line!r} is not in notes" for line in lines if not self.oracle.published[line])
            missing.extend(
                f"{poster.name} has no confirmation of {poster.pending!r}, which is in notes "
                f"{self.oracle.published[poster.pending]} times" for poster, count in posted.items() if len(poster.confirmed) == count)
            return not missing

        async def waits(condition):
            try:
                await until("", condition, lambda: PATIENCE - (self.clock() - start))
            except Failure:
                raise Failure(f"{what}: not within {PATIENCE} s: {'; '.join(missing)}") from None

        await waits(is_done)
        newest = dict(self.oracle.newest)

        def have_all():
            nonlocal last
            last = "; ".join(missing) or last
            missing.clear()
            missing.extend(
                f"{each.name} has {each.stream} up to {each.last}, not {newest[each.stream]} {dict(each.refusals) or ''}"
                for each in self.subscribers + self.travellers
                if (each.host in hosts or each in self.travellers) and each.last < newest.get(each.stream, 0))
            return not missing

        await waits(have_all)
        seconds = self.clock() - start
        self.times.append(f"{what} {seconds:.1f} s" + (f" ({last})" if seconds > SLOW_SECONDS else ""))

    async def arrives(self, subscriber, stream):
        """Waits for an event. Fails with what the daemons say of the stream."""
        requests = self.upstream.requests[f"/{stream}"]
        try:
            await asyncio.wait_for(subscriber.receive(), PATIENCE)
        except asyncio.TimeoutError:
            states = [f"host {host}: {await self.fleet.state(host, stream)}" for host in range(3)]
            requests = self.upstream.requests[f"/{stream}"] - requests
            raise Failure(f"no event of {stream} after {requests} requests of it; {'; '.join(states)}") from None

    async def is_repaired(self):
        """Ends all faults."""
        for process in self.fleet.brokers + self.fleet.daemons:
            if process.is_stopped:
                process.resume()
            if not process.is_running:
                process.start()
        for host in range(3):
            self.fleet.partition(host, False)
            self.fleet.limit(host, None)
        self.fleet.lose_answers(0)
        try:
            await self.recovers("repaired")
            return True
        except Failure as failure:
            print(f"        {failure}")
            return False

    async def pause(self, is_paused):
        """Lets nothing be published, and waits until all that was is in the streams; or ends that."""
        for each in self.lines + self.posters:
            each.is_paused = is_paused
        if is_paused:
            await until("all values are confirmed", lambda: not any(poster.pending for poster in self.posters))
            values = [value for line in self.lines for value in line.values()[-1:]]
            await until("all lines have arrived", lambda: all(self.oracle.published[value] for value in values))

    async def finish_publishers(self):
        """Each value is in the stream once, but for those whose confirmation has not arrived: at most once."""
        for line in self.lines:
            line.pause = 0
        for poster in self.posters:
            poster.is_finished = True
        await until("streamctl pub ends", lambda: all(line.status is not None for line in self.lines))
        for line in self.lines:
            if line.status:
                raise Failure(f"streamctl pub of {line.name} has ended with {line.status}")
        wanted = [value for line in self.lines for value in line.values()]
        wanted += [value for poster in self.posters for value in poster.confirmed]
        await until(
            "all published values have arrived", lambda: all(self.oracle.published[value] == 1 for value in wanted))
        return len(wanted)

    async def replicas(self):
        """All replicas have the same entries, and they have the events that subscribers have received. A broker returns the
        entries of its own replica while it leads the log: each leads for a while."""
        count, newest = 0, dict(self.oracle.newest)  # the logs have more by the time they are read
        for number in sorted({shard(stream) for stream in STREAMS}):
            stream, found = f"streamd-test-{number}", {}
            state = (await self.fleet.information(stream))["state"]
            numbers = range(state["first_seq"], state["last_seq"] + 1)
            for broker in range(3):
                entries = await self._entries(broker, stream, numbers)
                for sequence, entry in entries.items():
                    if found.setdefault(sequence, entry) != entry:
                        raise Failure(f"broker {broker} has another entry {sequence} of {stream}")
                if len(entries) != len(numbers):
                    raise Failure(f"broker {broker} has {len(entries)} of {len(numbers)} entries of {stream}")
            for problem in rival_claims(found):
                raise Failure(f"{stream}: {problem}")
            count += self._compare(found, newest)
        self.times.append(f"{count} events")

    async def _entries(self, broker, stream, numbers):
        """The entries of a broker's replica, which leads for that."""
        end = self.clock() + PATIENCE
        while self.clock() < end:
            await self.fleet.lead_log(stream, broker)
            async with await Client.to(self.fleet.ports[broker]) as client:
                entries = await client.entries(stream, numbers[0], numbers[-1])
            information = await self.fleet.information(stream)
            if information["cluster"]["leader"] == f"broker-{broker}":
                return entries
        raise Failure(f"broker {broker} does not lead {stream} for long enough to read it")

    def _compare(self, entries, newest):
        found = {}
        for name, identifier, time, data in records(entries):
            found.setdefault(name, {}).setdefault(identifier, []).append((time, brief(data.decode())))
        count = 0
        for name, events in found.items():
            for identifier, event in self.oracle.events[name].items():
                if min(events) <= identifier <= newest[name]:
                    count += 1
                    if event not in events.get(identifier, []):
                        raise Failure(f"{name}: {identifier} is {event} on hosts, and {events.get(identifier)} in the log")
        return count
