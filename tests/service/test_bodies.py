"""Bodies of requests and files of keys, read without a server."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

from smoothcert.errors import DataError
from smoothcert.service.bodies import TooLargeError, read_body
from smoothcert.service.keys import Keys, new_key


def test_pictures_are_inputs_and_bombs_are_refused() -> None:
    pillow = pytest.importorskip("PIL.Image")

    def png(size: tuple[int, int]) -> bytes:
        file = io.BytesIO()
        pillow.new("L", size, 200).save(file, "PNG")
        return file.getvalue()

    ((same,), _) = read_body(png((8, 6)), "image/png", (1, 6, 8), 1, 1000)
    assert same.shape == (1, 6, 8)
    assert np.all(same == 200 / 255)
    ((colour,), _) = read_body(png((16, 12)), "image/png", (3, 6, 8), 1, 1000)
    assert colour.shape == (3, 6, 8)
    with pytest.raises(TooLargeError, match=rf"5000x5000.*{1 << 20}"):
        read_body(png((5000, 5000)), "image/png", (1, 6, 8), 1, 1 << 20)
    for damaged in (png((8, 6))[:40], b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        with pytest.raises(DataError, match="UnidentifiedImageError"):
            read_body(damaged, "image/png", (1, 6, 8), 1, 1000)


def test_keys_are_kept_as_hashes_and_wrong_files_named(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key = new_key(path, "alice")
    assert key not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(DataError, match="'two words'"):
        new_key(path, "two words")
    path.write_text("alice nonsense\n")
    with pytest.raises(DataError, match=rf"--api-keys {path}.*\b1\b.*sha256:HASH"):
        Keys.read(path)
    with pytest.raises(DataError, match=rf"--api-keys {tmp_path / 'none'}.*smoothcert serve-key"):
        Keys.read(tmp_path / "none")
