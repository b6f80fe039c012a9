"""Pictures in requests: decoded in processes that can be ended.

No decoder is trusted with the server's time or memory. What a file's header claims is checked first (pixels, sides,
scans of a JPEG). Decoding then happens in another process, whose memory is limited and which is killed when its time is
up.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.images import COLOUR_MODES, FORMATS, GREY_MODES, channels_first, converted
from smoothcert.errors import DataError, InvalidValueError, SmoothcertError
from smoothcert.extras import require

MOST_SIDE = 1 << 14
MOST_SCANS = 64  # of a progressive JPEG; encoders write about ten
_FULL_SCANS = 16  # of the largest picture; a smaller one may have more
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"
_MEMORY = 320 << 20  # the largest picture within the limits, a WebP, takes 270 MiB
_NICENESS = 5  # votes come first
_START_SECONDS = 30.0
_LENGTHS = struct.Struct("<II")  # of the header and of what follows it


class TooLargeError(SmoothcertError):
    """More than a request may bring."""


class PictureDecoder:
    """Decodes one picture at a time in a process, started when it is needed and not there."""

    def __init__(self, seconds: float, memory: int = _MEMORY) -> None:
        """``memory``: bytes that the process may take beyond what it has when it begins."""
        self._seconds, self._memory = seconds, memory
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None

    async def decode(self, content: bytes, shape: tuple[int, ...], pixels: int) -> NDArray[np.float64]:
        """A picture's numbers in [0, 1], brought to the model's size."""
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise InvalidValueError(f"this model takes inputs of shape {list(shape)}, which no picture has")
        require("PIL.Image", "reading a picture")
        if content.startswith(_JPEG) and (scans := content.count(_SCAN)) > MOST_SCANS:
            raise TooLargeError(f"a JPEG of {scans} scans, where {MOST_SCANS} are the most")
        asked = json.dumps({"shape": shape, "pixels": pixels}).encode()
        process = await self._started()
        try:
            async with asyncio.timeout(self._seconds):
                answer, numbers = await _exchange(process, asked, content)
        except TimeoutError:
            await self.close()
            raise TooLargeError(f"a picture that takes more than {self._seconds:g} s to decode") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            raise TooLargeError("a picture that takes more memory to decode than there is for one") from None
        except BaseException:  # the caller left; the process is in the middle of a picture
            await self.close()
            raise
        if kind := answer.get("error"):
            raise {"large": TooLargeError, "value": InvalidValueError}.get(kind, DataError)(answer["text"])
        return np.frombuffer(numbers, dtype="<f8").reshape(shape).copy()

    async def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._starting is not None:
            self._starting.cancel()
        process, self._process, self._starting = self._process, None, None
        if process is not None:
            await _end(process)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            if self._starting is None:
                self._starting = asyncio.create_task(_start(self._memory))
            # A caller who leaves meanwhile doesn't end it: the next picture needs it as well.
            self._process = await asyncio.shield(self._starting)
            self._starting = None
        return self._process


async def _start(memory: int) -> asyncio.subprocess.Process:
    words = (sys.executable, "-m", "smoothcert.service.pictures", str(memory))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
    try:
        async with asyncio.timeout(_START_SECONDS):
            await process.stdout.readexactly(1)  # it is ready: its start is not the picture's time
    except BaseException:
        await _end(process)
        raise
    return process


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]  # else pipes wait for the garbage collector


async def _exchange(
    process: asyncio.subprocess.Process, asked: bytes, content: bytes
) -> tuple[dict[str, Any], bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_LENGTHS.pack(len(asked), len(content)) + asked + content)
    await process.stdin.drain()
    told, numbers = _LENGTHS.unpack(await process.stdout.readexactly(_LENGTHS.size))
    answer = json.loads(await process.stdout.readexactly(told))
    return answer, await process.stdout.readexactly(numbers)


def decoded(content: bytes, shape: Sequence[int], pixels: int) -> NDArray[np.float64]:
    """A picture's numbers in [0, 1], brought to ``shape``; bombs are refused by what their header claims."""
    from PIL import Image as pillow  # noqa: N813 - its class has the same name as its module

    pillow.MAX_IMAGE_PIXELS = None  # the limit is ours, and so is what is said of it
    try:
        with pillow.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > pixels or max(width, height) > MOST_SIDE:
                raise TooLargeError(
                    f"a picture of {width}x{height} pixels, where {pixels} and sides of {MOST_SIDE} are the most"
                )
            scans = content.count(_SCAN) if content.startswith(_JPEG) else 0
            if scans * width * height > _FULL_SCANS * pixels:
                raise TooLargeError(
                    f"a JPEG of {scans} scans of {width}x{height} pixels, where {_FULL_SCANS} of {pixels} are the most"
                )
            if image.mode not in GREY_MODES | COLOUR_MODES:
                raise InvalidValueError(f"the picture's values have more than 8 bits (mode {image.mode})")
            ready = converted(image, "L" if shape[0] == 1 else "RGB")
            if ready.size != (shape[2], shape[1]):
                ready = ready.resize((shape[2], shape[1]), pillow.Resampling.BILINEAR)
            return channels_first(ready) / 255.0
    except (SmoothcertError, MemoryError):
        raise
    except Exception as error:  # decoders raise nearly any exception on a damaged file
        raise DataError(f"the picture can't be read ({type(error).__name__})") from None


def _answer(content: bytes, shape: Sequence[int], pixels: int) -> tuple[dict[str, str], bytes]:
    try:
        return {}, np.ascontiguousarray(decoded(content, shape, pixels), dtype="<f8").tobytes()
    except TooLargeError as error:
        return {"error": "large", "text": str(error)}, b""
    except InvalidValueError as error:
        return {"error": "value", "text": str(error)}, b""
    except MemoryError:
        return {
            "error": "large",
            "text": "a picture that takes more memory to decode than there is for one",
        }, b""
    except SmoothcertError as error:
        return {"error": "data", "text": str(error)}, b""


def _limit_memory(more: int) -> None:
    """Beyond what is there now, so much; systems that don't count address space are left as they are."""
    import resource
    from pathlib import Path

    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Decode what comes in on standard input until it ends."""
    import PIL.Image  # before memory is limited

    PIL.Image.init()
    _limit_memory(int(sys.argv[1]))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(b"!")
    sink.flush()
    while len(lengths := source.read(_LENGTHS.size)) == _LENGTHS.size:
        asked_length, length = _LENGTHS.unpack(lengths)
        asked, content = json.loads(source.read(asked_length)), source.read(length)
        answer, numbers = _answer(content, asked["shape"], asked["pixels"])
        told = json.dumps(answer).encode()
        sink.write(_LENGTHS.pack(len(told), len(numbers)) + told + numbers)
        sink.flush()


if __name__ == "__main__":
    main()
