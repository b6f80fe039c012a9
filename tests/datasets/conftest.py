import pytest

from smoothcert.datasets import published


@pytest.fixture(autouse=True)
def no_data_from_the_environment(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)
    monkeypatch.setattr(published, "DEBIAN_PLACE", tmp_path / "debian")
