"""Fills the mailboxes through Dovecot's LMTP, in the order in which mail would have come.

A store that grew mail by mail has its files and directories mixed on the disk; one
copied mailbox by mailbox would read far more sequentially than any server does.
"""

import random
import socket
import sys
import threading
from queue import Queue

from corpus import DOMAIN, FOLDERS, Corpus, Person, arguments, staff

# A delivery: recipient with folder, and the message.
Delivery = tuple[str, bytes]
# Deliveries waiting for a connection: bounds the memory used.
WAITING = 64
CONNECTIONS = 3


class Lmtp:
    """One LMTP connection."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.answers = self.socket.makefile("rb")
        self.expect(b"220")
        self.socket.sendall(b"LHLO fill\r\n")
        self.expect(b"250")

    def expect(self, code: bytes) -> None:
        line = self.answers.readline()
        while line[3:4] == b"-":
            line = self.answers.readline()
        if not line.startswith(code):
            raise RuntimeError(f"LMTP: expected {code.decode()}, got {line!r}")

    def deliver(self, recipient: str, message: bytes) -> None:
        envelope = f"MAIL FROM:<fill@relay.example>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n"
        self.socket.sendall(envelope.encode())
        self.expect(b"250")
        self.expect(b"250")
        self.expect(b"354")
        self.socket.sendall(message + b"\r\n.\r\n")
        self.expect(b"250")


def detailed(person: Person, folder: str) -> str:
    """The address that delivers into a folder."""
    detail = "" if folder == "INBOX" else f"+{folder}"
    return f"{person.name}{detail}@{DOMAIN}"


def worker(path: str, todo: "Queue[Delivery | None]", failures: list[str]) -> None:
    try:
        connection = Lmtp(path)
        while (delivery := todo.get()) is not None:
            connection.deliver(*delivery)
    except (OSError, RuntimeError) as error:
        failures.append(str(error))
        while todo.get() is not None:
            pass


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--lmtp", required=True, help="Dovecot's LMTP socket")
    options = parser.parse_args()

    people = staff(options.mailboxes, options.messages, options.seed)
    rng = random.Random(f"{options.seed}/fill")
    order = [person for person in people for _ in range(person.messages)]
    rng.shuffle(order)
    corpus = Corpus(options.seed)

    todo: Queue[Delivery | None] = Queue(WAITING)
    failures: list[str] = []
    workers = [threading.Thread(target=worker, args=(options.lmtp, todo, failures)) for _ in range(CONNECTIONS)]
    for thread in workers:
        thread.start()
    size = 0
    for number, person in enumerate(order, start=1):
        folder = rng.choices(tuple(FOLDERS), tuple(FOLDERS.values()))[0]
        sender = rng.choice(people).address
        message = corpus.message(sender, person.address)
        size += len(message)
        todo.put((detailed(person, folder), message))
        if failures:
            break
        if number % 5_000 == 0:
            print(f"  {number} of {len(order)} messages, {size / 1e6:.0f} MB", flush=True)
    for _ in workers:
        todo.put(None)
    for thread in workers:
        thread.join()
    if failures:
        print(f"fill: {failures[0]}", file=sys.stderr)
        return 1
    print(f"  {len(order)} messages in {len(people)} mailboxes, {size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
