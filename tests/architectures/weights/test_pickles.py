"""Checkpoints are pickles, and a pickle runs code only when its owner is trusted."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.architectures.weights import load_model
from smoothcert.errors import ModelError
from tests.architectures.weights.examples import network, same_state


class Settings:
    """Stands for whatever object a training script pickled along."""


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (leave_trace, (self.trace,))


def leave_trace(path):
    path.touch()


class TestPickles:
    @pytest.mark.parametrize("zipped", [True, False])
    def test_refused_by_default_and_nothing_runs(self, tmp_path, zipped):
        payload = {"arch": "lenet", "state_dict": {}, "trap": Trap(tmp_path / "trace")}
        torch.save(payload, tmp_path / "c.pth", _use_new_zipfile_serialization=zipped)
        with pytest.raises(ModelError) as caught:
            load_model(tmp_path / "c.pth")
        for part in ("c.pth", "leave_trace", "trust_pickle=True", "--trust-pickle"):
            assert part in str(caught.value)
        assert not (tmp_path / "trace").exists()
        with pytest.raises(ModelError, match=r"'arch'.*'state_dict'"):
            load_model(tmp_path / "c.pth", trust_pickle=True)
        assert (tmp_path / "trace").exists(), "the trap must be a real one"

    @pytest.mark.parametrize("extra", [Settings(), np.float64(0.5)])
    def test_loads_if_trusted(self, tmp_path, extra):
        lenet = network("lenet", (1, 28, 28))
        torch.save({"arch": "lenet", "state_dict": lenet.state_dict(), "extra": extra}, tmp_path / "c.pth")
        with pytest.raises(ModelError, match="trust_pickle"):
            load_model(tmp_path / "c.pth")
        assert same_state(load_model(tmp_path / "c.pth", trust_pickle=True)[0][1], lenet)

    def test_a_whole_module(self, tmp_path):
        lenet = network("lenet", (1, 28, 28))
        torch.save(nn.DataParallel(lenet), tmp_path / "c.pth")
        with pytest.raises(ModelError, match=r"torch\.nn\.parallel.*trust_pickle"):
            load_model(tmp_path / "c.pth", architecture="lenet")
        model, _ = load_model(tmp_path / "c.pth", architecture="lenet", trust_pickle=True)
        assert same_state(model[1], lenet)

    def test_unusual_pickle_protocol(self, tmp_path):
        lenet = network("lenet", (1, 28, 28))
        torch.save({"arch": "lenet", "state_dict": lenet.state_dict()}, tmp_path / "c.pth", pickle_protocol=5)
        with pytest.raises(ModelError, match=r"c\.pth.*trust_pickle"):
            load_model(tmp_path / "c.pth")
        assert same_state(load_model(tmp_path / "c.pth", trust_pickle=True)[0][1], lenet)

    @pytest.mark.parametrize("trust", [False, True])
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"hello world\n" * 30,
            b"<!DOCTYPE html>" * 30,
            b"PK\x03\x04 not really",
            pickle.dumps({"a": 1}),
        ],
    )
    def test_no_checkpoint_at_all(self, tmp_path, content, trust):
        (tmp_path / "c.pth").write_bytes(content)
        with pytest.raises(ModelError, match=r"c\.pth.*\(\w*Error\)") as caught:
            load_model(tmp_path / "c.pth", trust_pickle=trust)
        assert "trust" not in str(caught.value), "trust would not help"

    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize("kept", [0.01, 0.5, 0.99])
    def test_cut_short(self, tmp_path, zipped, kept):
        path = tmp_path / "c.pth"
        torch.save(
            {"arch": "lenet", "state_dict": network("lenet", (1, 28, 28)).state_dict()},
            path,
            _use_new_zipfile_serialization=zipped,
        )
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * kept)])
        with pytest.raises(ModelError, match=r"c\.pth.*\(\w*Error\)") as caught:
            load_model(path)
        assert "trust" not in str(caught.value), "trust would not help"

    def test_pickle_of_a_class_that_is_gone(self, tmp_path, monkeypatch):
        torch.save({"extra": Settings()}, tmp_path / "c.pth")
        monkeypatch.delitem(globals(), "Settings")
        with pytest.raises(ModelError, match=r"c\.pth.*AttributeError"):
            load_model(tmp_path / "c.pth", trust_pickle=True)
