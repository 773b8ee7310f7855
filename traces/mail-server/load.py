"""The office's day: seeded mail clients against the server, and the passwd file that they log in with."""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from clients import Imap, Pop3, ProtocolError, Smtp
from corpus import DOMAIN, PASSWORD, SEARCHED, Corpus, Person, arguments, staff

DAY_START = 7.0
DAY_HOURS = 12.0
# Sessions open at once; a session beyond waits for its turn.
OPEN_SESSIONS = 48
# The load is void when more sessions than this share of them fail.
FAILED_SHARE = 0.01

HEADERS = "BODY.PEEK[HEADER.FIELDS (FROM TO CC SUBJECT DATE MESSAGE-ID REFERENCES CONTENT-TYPE PRIORITY)]"
# Where people look, by weight.
BROWSED = {"INBOX": 0.6, "Archive": 0.15, "Projects": 0.1, "Customers": 0.08, "Sent": 0.07}

# Sessions, per person who has such a client, or mails, per person, a day.
PER_DAY = {
    "desktop": 2.0,
    "webmail": 5.0,
    "phone": 5.0,
    "pop3": 6.0,
    "search": 2.0,
    "sync": 0.08,
    "backup": 0.12,
    "mail_in": 2.0,
    "newsletter": 0.007,
}


def shares(*percent: int) -> dict[str, float]:
    return {kind: share / 100 for kind, share in zip(PER_DAY, percent, strict=True)}


# (name, from hour, percent of each kind's sessions). Each column adds up to 100.
PHASES: list[tuple[str, float, dict[str, float]]] = [
    #                     desktop webmail phone pop3 search sync backup mail_in newsletter
    ("early", 7.0, shares(6, 4, 22, 10, 2, 0, 0, 8, 0)),
    ("morning peak", 8.5, shares(36, 22, 14, 20, 13, 20, 0, 20, 0)),
    ("forenoon", 10.0, shares(18, 24, 12, 20, 29, 30, 0, 24, 0)),
    ("lunch", 12.0, shares(4, 6, 18, 10, 4, 5, 0, 8, 0)),
    ("newsletters", 13.0, shares(14, 12, 6, 10, 12, 15, 0, 12, 100)),
    ("afternoon", 14.0, shares(20, 28, 12, 20, 36, 30, 0, 24, 0)),
    ("evening", 17.0, shares(2, 4, 16, 10, 4, 0, 100, 4, 0)),
]


@dataclass(frozen=True)
class Ports:
    imap: int
    pop3: int
    smtp: int


@dataclass(frozen=True)
class Start:
    """One session of the plan."""

    hour: float
    kind: str
    person: Person
    seed: str


def plan(people: list[Person], seed: int) -> list[Start]:
    """The day's sessions in order of time."""
    rng = random.Random(f"{seed}/plan")
    clients: dict[str, list[Person]] = {
        "phone": [person for person in people if person.phone],
        "search": [person for person in people if person.client != "pop3"],
        "sync": [person for person in people if person.client == "desktop"],
    }
    for kind in ("desktop", "webmail", "pop3"):
        clients[kind] = [person for person in people if person.client == kind]
    starts = []
    ends = [hour for _, hour, _ in PHASES[1:]] + [DAY_START + DAY_HOURS]
    for (_, begin, shares), end in zip(PHASES, ends, strict=True):
        for kind, share in shares.items():
            whose = clients.get(kind, people)
            for number in range(round(share * PER_DAY[kind] * len(whose))):
                starts.append(
                    Start(rng.uniform(begin, end), kind, rng.choice(whose), f"{seed}/{begin}/{kind}/{number}")
                )
    return sorted(starts, key=lambda start: start.hour)


class Session:
    """What one person's client does in one session."""

    def __init__(self, office: "Office", start: Start) -> None:
        self.office = office
        self.person = start.person
        self.rng = random.Random(start.seed)

    def imap(self) -> Imap:
        return Imap(self.office.ports.imap, self.person.name)

    async def think(self, seconds: float) -> None:
        """Waits as long as a person would, on the day's scale."""
        await asyncio.sleep(self.rng.expovariate(1 / seconds) / self.office.compression)

    def folder(self) -> str:
        return self.rng.choices(tuple(BROWSED), tuple(BROWSED.values()))[0]

    def old_or_new(self, exists: int) -> int:
        """A message number: often one of the newest, else any."""
        if self.rng.random() < 0.5:
            return max(1, exists - int(self.rng.expovariate(1 / 12)))
        return self.rng.randint(1, exists)

    async def read(self, imap: Imap, exists: int) -> None:
        """Opens a message and marks it read; sometimes files or deletes it."""
        number = self.old_or_new(exists)
        await imap.command(f"FETCH {number} (UID FLAGS BODYSTRUCTURE)")
        await imap.command(f"FETCH {number} BODY.PEEK[]")
        if number > exists - 12:
            await imap.command(f"STORE {number} +FLAGS.SILENT (\\Seen)")
        await self.think(40)
        chance = self.rng.random()
        if chance < 0.025:
            await imap.command(f"MOVE {number} Archive")
        elif chance < 0.05:
            await imap.command(f"MOVE {number} Trash")
        elif chance < 0.085:
            await self.answer(imap)

    async def answer(self, imap: Imap) -> None:
        """Sends a mail and keeps a copy in Sent."""
        office = self.office
        people = self.rng.sample(office.people, self.rng.choice((1, 1, 1, 2, 3)))
        recipients = [person.address for person in people]
        if self.rng.random() < 0.4:
            recipients = ["someone@customer.example"]
        message = office.corpus.message(self.person.address, recipients[0])
        await office.send(self.person.address, recipients, message)
        await imap.command("APPEND Sent (\\Seen)", message)

    async def desktop(self) -> None:
        """A client with a local cache: fetches what is new, reads on."""
        async with self.imap() as imap:
            await imap.command('LIST "" *')
            for folder in BROWSED:
                await imap.command(f"STATUS {folder} (MESSAGES UIDNEXT UNSEEN)")
            exists = await imap.select("INBOX")
            if not exists:
                return
            await imap.command("FETCH 1:* (UID FLAGS)")
            new = max(1, exists - self.rng.randint(3, 12))
            await imap.command(f"FETCH {new}:* (UID RFC822.SIZE {HEADERS})")
            await imap.command(f"FETCH {new}:* (UID BODY.PEEK[])")
            for _ in range(self.rng.randint(8, 20)):
                await self.read(imap, exists)
                exists = await imap.select(self.folder()) or await imap.select("INBOX")
                if not exists:
                    return
                await self.think(120)
            await imap.command("EXPUNGE")
            await imap.idle(self.rng.uniform(60, 900) / self.office.compression)

    async def webmail(self) -> None:
        """A client without a cache: lists pages of a folder, opens messages, looks for subjects."""
        async with self.imap() as imap:
            await imap.command('LIST "" *')
            for _ in range(self.rng.randint(1, 4)):
                exists = await imap.select(self.folder())
                if not exists:
                    continue
                page = 50
                last = exists if self.rng.random() < 0.5 else self.rng.randint(1, exists)
                first = max(1, last - page + 1)
                await imap.command(f"FETCH {first}:{last} (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)")
                await self.think(30)
                if self.rng.random() < 0.15:
                    await imap.command(f'SEARCH HEADER SUBJECT "{self.rng.choice(self.office.corpus.words)}"')
                for _ in range(self.rng.randint(1, 6)):
                    exists = max(1, exists - 2)
                    await self.read(imap, exists)

    async def phone(self) -> None:
        """A quick look: flags of the newest messages, the beginnings of some, a few in full."""
        async with self.imap() as imap:
            exists = await imap.select("INBOX")
            if not exists:
                return
            await imap.command(f"FETCH {max(1, exists - 99)}:* (UID FLAGS)")
            await imap.command(f"FETCH {max(1, exists - 24)}:* (UID {HEADERS} BODY.PEEK[TEXT]<0.1024>)")
            for _ in range(self.rng.randint(1, 4)):
                await imap.command(f"FETCH {self.old_or_new(exists)} (BODYSTRUCTURE BODY.PEEK[1])")
                await self.think(60)

    async def search(self) -> None:
        """Looks for a word in the texts of a folder: without a text index the server reads them all."""
        async with self.imap() as imap:
            await imap.select(self.folder())
            await imap.command(f'SEARCH BODY "{self.rng.choice(SEARCHED)}"')
            await self.think(30)

    async def load(self, imap: Imap, folder: str) -> None:
        """Loads a folder as a whole, in batches."""
        exists = await imap.select(folder)
        for first in range(1, exists + 1, 20):
            batch = f"{first}:{min(exists, first + 19)}"
            await imap.command(f"FETCH {batch} (UID FLAGS {HEADERS})")
            await imap.command(f"FETCH {batch} (UID BODY.PEEK[])")

    async def sync(self) -> None:
        """A new computer, or a client that lost its cache: loads the folders that are looked at most."""
        async with self.imap() as imap:
            for folder in ("INBOX", "Sent"):
                await self.load(imap, folder)

    async def backup(self) -> None:
        """The evening's backup over IMAP: one mailbox as a whole."""
        async with self.imap() as imap:
            for folder in BROWSED:
                await self.load(imap, folder)

    async def pop3(self) -> None:
        """Fetches the newest mail and leaves most of it on the server."""
        async with Pop3(self.office.ports.pop3, self.person.name) as pop3:
            exists = await pop3.lines("UIDL")
            await pop3.lines("LIST")
            for number in range(max(1, exists - self.rng.randint(2, 20)), exists + 1):
                await pop3.lines(f"RETR {number}")
                if self.rng.random() < 0.1:
                    await pop3.command(f"DELE {number}")

    async def mail_in(self) -> None:
        """A mail from outside."""
        message = self.office.corpus.message("sender@customer.example", self.person.address)
        recipients = [self.person.address]
        if self.rng.random() < 0.15:
            recipients += [person.address for person in self.rng.sample(self.office.people, 2)]
        await self.office.send("sender@customer.example", recipients, message)

    async def newsletter(self) -> None:
        """One mail to many."""
        people = self.rng.sample(self.office.people, min(len(self.office.people), self.rng.randint(20, 80)))
        message = self.office.corpus.message("news@list.example", f"everybody@{DOMAIN}", "newsletter")
        await self.office.send("news@list.example", [person.address for person in people], message)

    async def visit(self) -> None:
        """The first visit after the filling: lets the server know which fields this client asks for."""
        if self.person.client == "pop3":
            async with Pop3(self.office.ports.pop3, self.person.name) as pop3:
                await pop3.lines("UIDL")
                await pop3.lines("LIST")
            return
        what = f"RFC822.SIZE {HEADERS}" if self.person.client == "desktop" else "RFC822.SIZE ENVELOPE BODYSTRUCTURE"
        async with self.imap() as imap:
            await imap.command('LIST "" *')
            for folder in BROWSED:
                if await imap.select(folder):
                    await imap.command(f"FETCH 1:* (UID FLAGS INTERNALDATE {what})")


class Office:
    """All people, the server's ports and what was done so far."""

    def __init__(self, people: list[Person], ports: Ports, seed: int, compression: float) -> None:
        self.people = people
        self.ports = ports
        self.compression = compression
        self.corpus = Corpus(seed + 1)
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.turns = asyncio.Semaphore(OPEN_SESSIONS)

    async def send(self, sender: str, recipients: list[str], message: bytes) -> None:
        async with Smtp(self.ports.smtp) as smtp:
            await smtp.deliver(sender, recipients, message)
        self.done["mails sent"] += 1
        self.done["recipients in the office"] += sum(address.endswith(f"@{DOMAIN}") for address in recipients)

    async def run(self, start: Start) -> None:
        session = Session(self, start)
        act: Callable[[], Awaitable[None]] = getattr(session, start.kind)
        async with self.turns:
            try:
                await act()
                self.done[start.kind] += 1
            except (ProtocolError, OSError, asyncio.IncompleteReadError) as error:
                self.failures.append(f"{start.kind} of {start.person.name}: {error}")

    def verdict(self) -> int:
        for name, count in sorted(self.done.items()):
            print(f"  {count:7} {name}")
        if self.failures:
            print(f"  {len(self.failures)} sessions failed, the first: {self.failures[0]}", file=sys.stderr)
        return int(len(self.failures) > FAILED_SHARE * sum(self.done.values()))


async def day(office: Office, starts: list[Start], seconds: float) -> int:
    begin = time.monotonic()
    running = []
    phases = list(PHASES)
    for start in starts:
        while phases and phases[0][1] <= start.hour:
            print(f"  {time.monotonic() - begin:6.1f} s  {phases.pop(0)[0]}", flush=True)
        due = (start.hour - DAY_START) / DAY_HOURS * seconds
        await asyncio.sleep(max(0.0, begin + due - time.monotonic()))
        running.append(asyncio.create_task(office.run(start)))
    await asyncio.gather(*running)
    print(f"  {time.monotonic() - begin:6.1f} s  end")
    return office.verdict()


async def visit(office: Office) -> int:
    await asyncio.gather(*(office.run(Start(0, "visit", person, person.name)) for person in office.people))
    return office.verdict()


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("task", choices=("users", "visit", "day"))
    parser.add_argument("--seconds", type=float, default=200.0, help="that the day takes")
    parser.add_argument("--imap", type=int)
    parser.add_argument("--pop3", type=int)
    parser.add_argument("--smtp", type=int)
    options = parser.parse_args()

    people = staff(options.mailboxes, options.messages, options.seed)
    if options.task == "users":
        for person in people:
            print(f"{person.name}:{PASSWORD}::::::")
        return 0
    ports = Ports(options.imap, options.pop3, options.smtp)
    office = Office(people, ports, options.seed, DAY_HOURS * 3600 / options.seconds)
    if options.task == "visit":
        return asyncio.run(visit(office))
    return asyncio.run(day(office, plan(people, options.seed), options.seconds))


if __name__ == "__main__":
    sys.exit(main())
