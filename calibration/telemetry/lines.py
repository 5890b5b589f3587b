"""Files and standard input as lines of text: unpacked, decoded, cleaned, never whole in memory."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from simulator.errors import InputError, Problem, reason

STDIN = "-"
"""The name that stands for standard input."""

CUT = "…"
"""Ends the text of a line that was cut, so that no pattern takes the rest of a number for the number."""

_CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 4096
MOST_LINE_CHARACTERS = 1 << 20
"""A longer line of text is cut."""
MOST_JSON_CHARACTERS = 1 << 28
"""A JSON document or record may be as long."""

_TERMINAL_CODE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\^\[\[[0-9;]*[A-Za-z]"
)
_ODD_CHARACTERS = str.maketrans({"\u00a0": " ", "\u200b": None, "\ufeff": None, "\x08": None, "\x00": None})

_GZIP = b"\x1f\x8b"
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\x0b\x0c\x1b\x08")
_LEAST_TEXT = 0.98
"""Share of a file's first bytes that are no control codes; below it the file is no text."""

BINARY_KINDS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first"),
    (b"\xfd7zXZ\x00", "an xz archive: unpack it first"),
    (b"BZh", "a bzip2 archive: unpack it first"),
    (b"SQLite format 3\x00", "a SQLite database; `decodesim results` reads stores of `sweep`"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x80\x04\x95", "a Python pickle, which is never opened"),
    (b"\x80\x05\x95", "a Python pickle, which is never opened"),
    (b"\x7fELF", "a program"),
)
"""First bytes of files that are no text → what they are."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text; `number` counts from 1. `is_complete` is False when its end is missing."""

    number: int
    text: str
    is_complete: bool = True


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """The bytes of a file, or of standard input for `-`; gzip is unpacked, whatever the file is called.

    Raises InputError for what cannot be read, also while the caller reads, and for binary files.
    """
    try:
        with _raw(name) as raw:
            stream = _Rewound(raw).buffered()
            if stream.peek(2)[:2] == _GZIP:
                stream = _Rewound(cast(BinaryIO, gzip.GzipFile(fileobj=stream))).buffered()
            _refuse_binary(name, stream.peek(_HEAD_BYTES)[:_HEAD_BYTES])
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, BrokenPipeError):
            raise
        text = (
            "the gzip data is cut or damaged" if isinstance(error, EOFError | zlib.error) else reason(error)
        )
        raise InputError(Problem(file=shown_name(name), message=f"cannot be read: {text}")) from None


def shown_name(name: str) -> str:
    """The name of a source in messages."""
    return "<stdin>" if name == STDIN else name


def lines_of(stream: BinaryIO) -> Iterator[Line]:
    """The lines of a stream as clean text, of bounded length; a carriage return begins a new text."""
    encoding, skipped = _encoding(cast(io.BufferedReader, stream).peek(4))
    stream.read(skipped)
    decode = codecs.getincrementaldecoder(encoding)(errors="replace").decode
    number, parts, length, dropping = 1, list[str](), 0, False
    while chunk := stream.read(_CHUNK_BYTES):
        *ended, rest = decode(chunk).split("\n")
        for text in ended:
            if not dropping:
                yield from _texts(number, "".join((*parts, text)) if parts else text)
            number, parts, length, dropping = number + 1, [], 0, False
        if rest and not dropping:
            parts.append(rest)
            length += len(rest)
            if length > _limit(parts[0]):
                yield Line(number, clean("".join(parts)[:MOST_LINE_CHARACTERS]), is_complete=False)
                parts, length, dropping = [], 0, True
    if parts:
        *earlier, last = _texts(number, "".join(parts)) or [Line(number, "")]
        yield from earlier
        yield Line(number, last.text, is_complete=False)


def clean(text: str) -> str:
    """A text without terminal codes and odd spaces."""
    if "\x1b" in text or "^[[" in text:
        text = _TERMINAL_CODE.sub("", text)
    return text if text.isascii() and text.isprintable() else text.translate(_ODD_CHARACTERS)


def _limit(start: str) -> int:
    return MOST_JSON_CHARACTERS if start.lstrip()[:1] in ("{", "[") else MOST_LINE_CHARACTERS


def _texts(number: int, text: str) -> list[Line]:
    if "\r" not in text:
        return [Line(number, clean(text))]
    return [Line(number, clean(part)) for part in text.split("\r") if part]


@contextmanager
def _raw(name: str) -> Iterator[BinaryIO]:
    if name == STDIN:
        yield sys.stdin.buffer
        return
    with open(name, "rb", buffering=0) as raw:
        yield cast(BinaryIO, raw)


def _encoding(head: bytes) -> tuple[str, int]:
    """The encoding that a byte order mark shows, UTF-8 without one, and the length of the mark."""
    return next(((name, len(mark)) for mark, name in _BOMS if head.startswith(mark)), ("utf-8", 0))


def _refuse_binary(name: str, head: bytes) -> None:
    kind = next((kind for start, kind in BINARY_KINDS if head.startswith(start)), None)
    utf16 = any(head.startswith(mark) for mark, encoding in _BOMS if encoding != "utf-8")
    if kind is None and not utf16 and len(head.translate(None, _CONTROL)) < _LEAST_TEXT * len(head):
        kind = "a binary file"
    if kind is not None:
        raise InputError(
            Problem(file=shown_name(name), message=f"is {kind}", allowed="text or JSON, as is or in gzip")
        )


class _Rewound(io.RawIOBase):
    """A stream that can be looked at before it is read, also where it cannot seek, as standard input."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer for `io.BufferedReader` with enough to recognise a format, or to the end."""
        view = memoryview(cast(bytearray, buffer))
        filled = 0
        while filled < min(len(view), _HEAD_BYTES) and (data := self._stream.read(len(view) - filled)):
            view[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def buffered(self) -> io.BufferedReader:
        """The stream with `peek`."""
        return io.BufferedReader(self, _CHUNK_BYTES)
