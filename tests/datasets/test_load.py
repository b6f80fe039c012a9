import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smoothcert import datasets
from smoothcert.datasets import load
from smoothcert.errors import DataError, InvalidValueError

PACKAGE = Path(datasets.__file__).parent


def registered_in(source: str) -> list[str]:
    return [
        call.args[0].value
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef)
        for call in function.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "DATASETS.register"
        if isinstance(call.args[0], ast.Constant)
    ]


@pytest.mark.system
def test_importing_registers_every_data_set_and_brings_in_no_optional_package():
    """In a fresh interpreter, where no other test can have imported a file that the package forgets."""
    defined = [
        name for file in sorted(PACKAGE.glob("*.py")) for name in registered_in(file.read_text("utf-8"))
    ]
    assert {"cifar10", "digits", "fashion-mnist", "imagenet", "kitti", "mnist", "svhn"} <= set(defined)
    code = "import sys, smoothcert.datasets as d; print(*d.DATASETS.names()); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    registered, imported = map(str.split, done.stdout.splitlines())
    assert registered == sorted(defined)
    assert not {"torch", "sklearn", "PIL", "scipy"} & set(imported)


def test_unknown_name_lists_the_known_ones_and_the_forms():
    with pytest.raises(InvalidValueError, match=r"'mnits'.*'mnist'") as caught:
        load("mnits")
    for known in [*datasets.DATASETS.names(), "folder:PATH", "npz:PATH"]:
        assert known in str(caught.value)


def test_other_text_is_an_unknown_name():
    for spec in ("", ":", "http://somewhere", "Folder:x", "a:b", "nul\0l"):
        with pytest.raises(InvalidValueError, match="npz:PATH") as caught:
            load(spec)
        assert repr(spec) in str(caught.value)
    for kind in ("folder", "npz"):
        with pytest.raises(InvalidValueError, match=f"'{kind}:'.*{kind}:PATH"):
            load(f"{kind}:")
    for split in ("", "val", "Test", "validation"):
        with pytest.raises(InvalidValueError, match=f"split.*train, test.*'{split}'"):
            load("digits", split)
    with pytest.raises(DataError, match=rf"npz:{'x' * 5000}"):
        load(f"npz:{'x' * 5000}")


def test_name_wins_over_a_folder_called_the_same(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"mnist.*t10k"):
        load("mnist")


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.savez(tmp_path / "data.npz", x=np.zeros((2, 3)), y=[0, 1])
    assert len(load("~/data.npz")) == len(load("npz:~/data.npz")) == 2
