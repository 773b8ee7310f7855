"""The office and its mail: people, mailboxes and message texts, all invented.

Everything is drawn from a seed, so two recordings with the same options fill the
same mailboxes with the same messages.
"""

import argparse
import base64
import random
from dataclasses import dataclass
from functools import cached_property

DOMAIN = "office.example"
PASSWORD = "tape"

# Share of a mailbox's messages that each folder holds. Dovecot creates a folder
# when the first message is delivered to it.
FOLDERS = {
    "INBOX": 0.42,
    "Sent": 0.22,
    "Archive": 0.16,
    "Projects": 0.08,
    "Customers": 0.07,
    "Trash": 0.05,
}

# Sizes: median in bytes and sigma of a lognormal, then bounds.
Size = tuple[float, float, int, int]
TEXT_SIZE: Size = (1_800, 0.9, 200, 40_000)
HTML_SIZE: Size = (7_000, 0.8, 1_500, 80_000)
ATTACHMENT_SIZE: Size = (90_000, 1.2, 2_000, 4_000_000)

# Share of each kind of message in the office's mail.
KINDS = {"text": 0.48, "html": 0.41, "attachment": 0.07, "notice": 0.04}

FIRST_NAMES = (
    "ada anna ben clara david elena emil eva felix frida georg hana ivan jana jonas karl lea lena "
    "luca maja marta max mila nina noah olga oskar paul petra rosa sara simon sofia theo tom vera"
).split()
LAST_NAMES = (
    "adler bauer berg brandt ebert engel falk fischer graf haas hahn jansen keller klein koch krug "
    "lang lenz lorenz maier moser neumann otto peters pohl richter roth sauer schulz seidel sommer "
    "stein vogel wagner weber winter wolf zimmer"
).split()

SYLLABLES = (
    "ka ro mi ten sal ver do li pra mon te gur an sel vo ri nat pel or dim us tra ken lo bas fin "
    "er qua tis mel on rad ce hu"
).split()
# Words that clients search for. Each stands in about one message in a hundred.
SEARCHED = tuple(f"{name}-{number}" for name in ("order", "offer", "case") for number in range(8))


@dataclass(frozen=True)
class Person:
    """One mailbox and the program that reads it."""

    name: str
    messages: int
    client: str  # desktop, webmail or pop3
    phone: bool

    @property
    def address(self) -> str:
        return f"{self.name}@{DOMAIN}"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that say which office it is: the same for filling and for the load."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mailboxes", type=int, required=True)
    parser.add_argument("--messages", type=int, required=True, help="mean per mailbox")
    parser.add_argument("--seed", type=int, required=True)
    return parser


def staff(count: int, mean_messages: int, seed: int) -> list[Person]:
    """Draws `count` people whose mailboxes hold `mean_messages` on average."""
    rng = random.Random(f"{seed}/staff")
    sigma = 0.7
    median = mean_messages / 2.718281828 ** (sigma * sigma / 2)
    people = []
    for number in range(count):
        first = FIRST_NAMES[number % len(FIRST_NAMES)]
        last = LAST_NAMES[(number * 7 + number // len(FIRST_NAMES)) % len(LAST_NAMES)]
        client = rng.choices(("desktop", "webmail", "pop3"), (0.5, 0.42, 0.08))[0]
        people.append(
            Person(
                name=f"{first}.{last}{number}",
                messages=max(20, int(rng.lognormvariate(0, sigma) * median)),
                client=client,
                phone=client != "pop3" and rng.random() < 0.5,
            )
        )
    return people


def draw(rng: random.Random, size: Size) -> int:
    """Draws a number of bytes."""
    median, sigma, low, high = size
    return max(low, min(high, int(rng.lognormvariate(0, sigma) * median)))


class Corpus:
    """Writes messages."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed}/corpus")
        self.serial = 0

    @cached_property
    def words(self) -> list[str]:
        rng = self.rng
        return ["".join(rng.choices(SYLLABLES, k=rng.choice((1, 1, 2, 2, 3)))) for _ in range(4_000)]

    @cached_property
    def paragraphs(self) -> list[str]:
        """Ready-made paragraphs: a message is put together from them."""
        rng = self.rng
        made = []
        for _ in range(4_000):
            words = rng.choices(self.words, k=rng.randint(15, 90))
            lines = [" ".join(words[at : at + 11]) for at in range(0, len(words), 11)]
            made.append("\r\n".join(lines) + ".\r\n\r\n")
        return made

    @cached_property
    def attachment_pool(self) -> str:
        """Base64 lines of random bytes; an attachment is a piece of them."""
        return base64.encodebytes(self.rng.randbytes(12_000_000)).decode().replace("\n", "\r\n")

    def text(self, length: int) -> str:
        parts: list[str] = []
        have = 0
        while have < length:
            part = self.rng.choice(self.paragraphs)
            parts.append(part)
            have += len(part)
        if self.rng.random() < 0.3:
            parts.insert(1, f"This is about {self.rng.choice(SEARCHED)}.\r\n")
        return "".join(parts)

    def html(self, length: int) -> str:
        rng = self.rng
        parts = ['<html><body style="font-family:sans-serif"><table width="100%">\r\n']
        have = 0
        while have < length:
            part = (
                f'<tr><td style="padding:{rng.randint(1, 9)}px;color:#{rng.randrange(1 << 24):06x}">\r\n'
                f"<p>{rng.choice(self.paragraphs)}</p></td></tr>\r\n"
            )
            parts.append(part)
            have += len(part)
        parts.append("</table></body></html>\r\n")
        return "".join(parts)

    def headers(self, sender: str, to: str, subject: str) -> list[str]:
        rng = self.rng
        self.serial += 1
        relay = f"mx{rng.randint(1, 9)}.relay.example"
        stamp = (
            f"{rng.choice(('Mon', 'Tue', 'Wed', 'Thu', 'Fri'))}, {rng.randint(1, 28)} May 2024 "
            f"{rng.randint(6, 20):02}:{rng.randrange(60):02}:{rng.randrange(60):02} +0200"
        )
        signature = base64.b64encode(rng.randbytes(192)).decode()
        folded = "\r\n\t".join(signature[at : at + 70] for at in range(0, len(signature), 70))
        lines = [
            f"Received: from {relay} ({relay} [192.0.2.{rng.randint(1, 254)}])\r\n\tby "
            f"mail.{DOMAIN} (Postfix) with ESMTPS id {rng.randrange(1 << 40):010X}\r\n\tfor <{to}>; {stamp}",
            f"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=relay.example; s=s1;\r\n\tb={folded}",
            f"Date: {stamp}",
            f"From: {sender}",
            f"To: {to}",
            f"Subject: {subject}",
            f"Message-ID: <{self.serial}.{rng.randrange(1 << 48):012x}@{sender.partition('@')[2]}>",
            "MIME-Version: 1.0",
        ]
        if rng.random() < 0.6:
            thread = " ".join(f"<{rng.randrange(1 << 48):012x}@{DOMAIN}>" for _ in range(rng.randint(1, 6)))
            lines.append("References: " + thread.replace(" ", "\r\n\t"))
        if rng.random() < 0.5:
            lines.append(f"X-Spam-Status: No, score={rng.uniform(-4, 2):.1f} required=5.0")
        return lines

    def message(self, sender: str, to: str, kind: str = "") -> bytes:
        """Writes one message. Lines end in CR LF and none starts with a dot."""
        rng = self.rng
        if not kind:
            kind = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        subject = " ".join(rng.choices(self.words, k=rng.randint(2, 7)))
        lines = self.headers(sender, to, subject)
        boundary = f"=_{rng.randrange(1 << 64):016x}"
        plain = 'Content-Type: text/plain; charset="utf-8"'
        if kind in ("text", "notice"):
            length = draw(rng, TEXT_SIZE) if kind == "text" else rng.randint(300, 900)
            return "\r\n".join([*lines, plain, "", self.text(length)]).encode()
        if kind == "html":
            page = self.html(draw(rng, HTML_SIZE))
            lines.append(f'Content-Type: multipart/alternative; boundary="{boundary}"')
            second = f'Content-Type: text/html; charset="utf-8"\r\n\r\n{page}'
        elif kind == "newsletter":
            page = self.html(rng.randint(20_000, 60_000))
            lines.append(f'Content-Type: multipart/alternative; boundary="{boundary}"')
            second = f'Content-Type: text/html; charset="utf-8"\r\n\r\n{page}'
        elif kind == "attachment":
            length = draw(rng, ATTACHMENT_SIZE) * 4 // 3
            start = rng.randrange(len(self.attachment_pool) - length) // 78 * 78
            lines.append(f'Content-Type: multipart/mixed; boundary="{boundary}"')
            second = (
                "Content-Type: application/octet-stream\r\n"
                "Content-Transfer-Encoding: base64\r\n"
                f'Content-Disposition: attachment; filename="{rng.choice(self.words)}.bin"\r\n\r\n'
                f"{self.attachment_pool[start : start + length]}"
            )
        else:
            raise ValueError(f"unknown kind of message: {kind}")
        first = f"{plain}\r\n\r\n{self.text(draw(rng, TEXT_SIZE))}"
        body = f"\r\n--{boundary}\r\n{first}\r\n--{boundary}\r\n{second}\r\n--{boundary}--\r\n"
        return ("\r\n".join(lines) + "\r\n" + body).encode()
