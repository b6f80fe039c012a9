import pytest

from smoothcert.datasets import small_images


@pytest.fixture(autouse=True)
def no_data_from_the_environment(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)
    monkeypatch.setattr(small_images, "DEBIAN_PLACE", tmp_path / "debian")
