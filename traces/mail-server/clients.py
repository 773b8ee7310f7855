"""The three protocols, as far as the load speaks them: IMAP, POP3 and SMTP over asyncio."""

import asyncio
import re
from types import TracebackType
from typing import Self

from corpus import PASSWORD

HOST = "127.0.0.1"
# Longest line taken from the server; a search can answer with thousands of numbers.
LINE_LIMIT = 1 << 20


class ProtocolError(Exception):
    """The server refused a command or broke the protocol."""


class Connection:
    """A line-oriented connection, closed when its `async with` ends."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(HOST, self.port, limit=LINE_LIMIT)
        await self.greet()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.leave()
        finally:
            self.writer.close()

    async def greet(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    async def line(self) -> bytes:
        line = await self.reader.readline()
        if not line.endswith(b"\n"):
            raise ProtocolError(f"port {self.port}: connection closed by the server")
        return line

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Imap(Connection):
    """An IMAP session of one user."""

    def __init__(self, port: int, user: str) -> None:
        super().__init__(port)
        self.user = user
        self.serial = 0

    async def greet(self) -> None:
        await self.line()
        await self.command(f"LOGIN {self.user} {PASSWORD}")

    async def leave(self) -> None:
        await self.command("LOGOUT")

    async def answer(self) -> bytes:
        """Reads one response with its literals, whose contents are thrown away."""
        whole = b""
        while True:
            line = await self.line()
            whole += line
            literal = re.search(rb"\{(\d+)\}\r\n$", line)
            if literal is None:
                return whole
            left = int(literal[1])
            while left:
                part = await self.reader.read(min(left, 1 << 18))
                if not part:
                    raise ProtocolError("IMAP: connection closed inside a literal")
                left -= len(part)

    async def command(self, text: str, literal: bytes | None = None) -> list[bytes]:
        """Sends a command and returns the untagged responses."""
        self.serial += 1
        tag = f"a{self.serial}"
        request = f"{tag} {text}".encode()
        if literal is not None:
            request += b" {%d+}\r\n" % len(literal) + literal
        await self.send(request + b"\r\n")
        untagged = []
        while not (response := await self.answer()).startswith(tag.encode() + b" "):
            untagged.append(response)
        if not response.startswith(f"{tag} OK".encode()):
            raise ProtocolError(f"IMAP: {text[:80]}: {response!r}")
        return untagged

    async def select(self, folder: str) -> int:
        """Opens a folder and returns how many messages it holds."""
        for response in await self.command(f"SELECT {folder}"):
            if found := re.match(rb"\* (\d+) EXISTS", response):
                return int(found[1])
        raise ProtocolError(f"IMAP: SELECT {folder} told no number of messages")

    async def idle(self, seconds: float) -> None:
        self.serial += 1
        tag = f"a{self.serial}".encode()
        await self.send(tag + b" IDLE\r\n")
        while not (await self.line()).startswith(b"+"):
            pass
        await asyncio.sleep(seconds)
        await self.send(b"DONE\r\n")
        while not (await self.answer()).startswith(tag + b" OK"):
            pass


class Pop3(Connection):
    """A POP3 session of one user."""

    def __init__(self, port: int, user: str) -> None:
        super().__init__(port)
        self.user = user

    async def greet(self) -> None:
        await self.line()
        await self.command(f"USER {self.user}")
        await self.command(f"PASS {PASSWORD}")

    async def leave(self) -> None:
        await self.command("QUIT")

    async def command(self, text: str) -> bytes:
        await self.send(f"{text}\r\n".encode())
        line = await self.line()
        if not line.startswith(b"+OK"):
            raise ProtocolError(f"POP3: {text}: {line!r}")
        return line

    async def lines(self, text: str) -> int:
        """Sends a command with an answer of many lines and returns their number."""
        await self.command(text)
        count = 0
        while await self.line() != b".\r\n":
            count += 1
        return count


class Smtp(Connection):
    """An SMTP session."""

    async def greet(self) -> None:
        await self.expect(b"220")
        await self.command("EHLO client.office.example", b"250")

    async def leave(self) -> None:
        await self.command("QUIT", b"221")

    async def expect(self, code: bytes) -> None:
        line = await self.line()
        while line[3:4] == b"-":
            line = await self.line()
        if not line.startswith(code):
            raise ProtocolError(f"SMTP: expected {code.decode()}, got {line!r}")

    async def command(self, text: str, code: bytes) -> None:
        await self.send(f"{text}\r\n".encode())
        await self.expect(code)

    async def deliver(self, sender: str, recipients: list[str], message: bytes) -> None:
        await self.command(f"MAIL FROM:<{sender}>", b"250")
        for recipient in recipients:
            await self.command(f"RCPT TO:<{recipient}>", b"250")
        await self.command("DATA", b"354")
        await self.send(message + b"\r\n.\r\n")
        await self.expect(b"250")
