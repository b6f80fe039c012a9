"""Checkpoints of other projects: what they imply, and pickles that are not run."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.architectures.spec import ModelSpec
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.errors import ModelError
from tests.architectures.examples import CIFAR_MEAN, CIFAR_STD, network, renamed, same_state
from tests.architectures.torchvision_names import resnet50_shapes


class TestPublishedCheckpoints:
    @pytest.fixture
    def resnet(self):
        return network("cifar_resnet20", (3, 32, 32))

    @pytest.mark.parametrize(
        "name", ["checkpoint.pth.tar", "checkpoint.pth", "checkpoint.pt", "checkpoint.tar"]
    )
    @pytest.mark.parametrize("zipped", [True, False])
    def test_cohen_form(self, tmp_path, resnet, name, zipped):
        """Sequential(NormalizeLayer, net) whose means and deviations never were in the state dict."""
        optimizer = torch.optim.SGD(resnet.parameters(), lr=0.1, momentum=0.9)
        payload = {
            "epoch": 90,
            "arch": "cifar_resnet20",
            "state_dict": renamed(resnet, "1.{}".format),
            "optimizer": optimizer.state_dict(),
        }
        torch.save(payload, tmp_path / name, _use_new_zipfile_serialization=zipped)
        model, spec = load_model(tmp_path / name)
        digits = tuple("0123456789")
        assert spec == ModelSpec("cifar_resnet20", (3, 32, 32), digits, CIFAR_MEAN, CIFAR_STD)
        x = torch.rand(2, 3, 32, 32)
        normalised = (x - torch.tensor(CIFAR_MEAN)[:, None, None]) / torch.tensor(CIFAR_STD)[:, None, None]
        assert torch.equal(model(x), resnet(normalised))
        assert not model.training

    def test_data_parallel_wrappers(self, tmp_path, resnet):
        for pattern in ("1.module.{}", "module.1.{}", "module.1.module.{}"):
            path = tmp_path / "c.pth"
            torch.save({"arch": "cifar_resnet20", "state_dict": renamed(resnet, pattern.format)}, path)
            model, spec = load_model(path)
            assert same_state(model[1], resnet)
            assert spec.mean == CIFAR_MEAN

    def test_statistics_in_the_checkpoint_win(self, tmp_path, resnet):
        for (mean, std), shape in zip(
            (("means", "sds"), ("mean", "std")) * 2, ((3,), (3, 1, 1), (1, 3, 1, 1))
        ):
            state = renamed(resnet, "1.module.{}".format)
            state[f"0.{mean}"] = torch.tensor([0.5, 0.25, 0.125]).reshape(shape)
            state[f"0.{std}"] = torch.tensor([1.0, 0.5, 0.25]).reshape(shape)
            torch.save({"arch": "cifar_resnet20", "state_dict": state}, tmp_path / "c.pth")
            _, spec = load_model(tmp_path / "c.pth")
            assert (spec.mean, spec.std) == ((0.5, 0.25, 0.125), (1.0, 0.5, 0.25))

    def test_salmans_form(self, tmp_path, resnet):
        """The same state dict behind a layer that only subtracts the mean: the file can't tell, the caller must."""
        path = tmp_path / "c.pth.tar"
        torch.save({"arch": "cifar_resnet20", "state_dict": renamed(resnet, "1.{}".format)}, path)
        model, spec = load_model(path, normalisation="centre")
        assert (spec.mean, spec.std) == (CIFAR_MEAN, (1.0, 1.0, 1.0))
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(model(x), resnet(x - torch.tensor(CIFAR_MEAN)[:, None, None]))
        raw, spec = load_model(path, normalisation="none")
        assert spec.mean is None
        assert torch.equal(raw(x), resnet(x))

    def test_what_a_checkpoint_leaves_open_is_said(self, tmp_path, resnet):
        torch.save(
            {"arch": "cifar_resnet20", "state_dict": renamed(resnet, "1.{}".format)}, tmp_path / "c.pth"
        )
        assumed = load_model(tmp_path / "c.pth")[1].assumed
        assert assumed is not None
        for part in ("c.pth", "0.4914", "0.2023", "--normalisation centre"):
            assert part in assumed
        assert load_model(tmp_path / "c.pth", normalisation="standard")[1].assumed is None
        torch.save({"arch": "cifar_resnet20", "state_dict": resnet.state_dict()}, tmp_path / "alone.pth")
        _, spec = load_model(tmp_path / "alone.pth")
        assert (spec.mean, spec.assumed) == (None, None)  # a network alone has no such layer
        assert load_model(tmp_path / "alone.pth", normalisation="standard")[1].std == CIFAR_STD

    def test_normalisation_that_is_known_or_can_not_be(self, tmp_path, resnet):
        state = renamed(resnet, "1.{}".format)
        state |= {"0.means": torch.zeros(3), "0.sds": torch.ones(3)}
        torch.save({"arch": "cifar_resnet20", "state_dict": state}, tmp_path / "c.pth")
        with pytest.raises(ModelError, match=r"c\.pth.*\bmean\b.*\bnormalisation\b"):
            load_model(tmp_path / "c.pth", normalisation="centre")
        lenet = network("lenet", (1, 28, 28))
        torch.save({"arch": "lenet", "state_dict": renamed(lenet, "1.{}".format)}, tmp_path / "l.pth")
        assert load_model(tmp_path / "l.pth")[1].assumed is None  # an identity, as published
        with pytest.raises(ModelError, match=r"l\.pth.*lenet.*normalisation.*'centre'"):
            load_model(tmp_path / "l.pth", normalisation="centre")
        save_model(
            torch.nn.Sequential(torch.nn.Identity(), resnet),
            ModelSpec("cifar_resnet20", (3, 32, 32), tuple("0123456789")),
            tmp_path,
        )
        with pytest.raises(ModelError, match=r"model\.safetensors.*normalisation"):
            load_model(tmp_path, normalisation="none")

    def test_resnet110_with_100_classes(self, tmp_path):
        deep = network("cifar_resnet110", (3, 32, 32), classes=100)
        torch.save(
            {"arch": "cifar_resnet110", "state_dict": renamed(deep, "1.{}".format)}, tmp_path / "c.pth"
        )
        model, spec = load_model(tmp_path / "c.pth")
        assert len(spec.classes) == 100
        assert same_state(model[1], deep)

    def test_cohens_imagenet_form(self, tmp_path):
        """DataParallel around torchvision's network, inside Sequential(NormalizeLayer, network)."""
        # Each tensor repeats one number, which is all of it that gets into the file.
        numbers = {name: (i % 97 + 1) / 128 for i, name in enumerate(resnet50_shapes(5))}
        state = {
            f"1.module.{name}": torch.tensor(numbers[name]).expand(shape)
            for name, shape in resnet50_shapes(5).items()
        }
        torch.save({"epoch": 90, "arch": "resnet50", "state_dict": state}, tmp_path / "checkpoint.pth.tar")
        model, spec = load_model(tmp_path / "checkpoint.pth.tar")
        assert spec == ModelSpec(
            "resnet50", (3, 224, 224), tuple("01234"), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        )
        loaded = model[1].state_dict()
        for name, number in numbers.items():
            assert (loaded[name] == number).all(), name

    @pytest.mark.parametrize("arch", ["lenet", "LeNet"])
    @pytest.mark.parametrize("pattern", ["1.{}", "{}"])
    def test_lenet_is_not_normalised(self, tmp_path, arch, pattern):
        """SmoothMix has an identity where CIFAR models normalise."""
        lenet = network("lenet", (1, 28, 28))
        torch.save({"arch": arch, "state_dict": renamed(lenet, pattern.format)}, tmp_path / "c.pth.tar")
        model, spec = load_model(tmp_path / "c.pth.tar")
        assert (spec.architecture, spec.input_shape, spec.mean) == ("lenet", (1, 28, 28), None)
        x = torch.rand(2, 1, 28, 28)
        assert torch.equal(model(x), lenet(x))

    def test_macer_form(self, tmp_path, resnet):
        """The network by itself under 'net', without a name and without normalisation."""
        torch.save({"net": resnet.state_dict(), "epoch": 440}, tmp_path / "440.pth")
        with pytest.raises(ModelError, match=r"440\.pth.*architecture=.*lenet"):
            load_model(tmp_path / "440.pth")
        model, spec = load_model(tmp_path / "440.pth", architecture="cifar_resnet20")
        assert spec.mean is None
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(model(x), resnet(x))

    def test_architecture_without_a_customary_input(self, tmp_path):
        small = network("small-cnn", (1, 8, 8))
        torch.save(small.state_dict(), tmp_path / "w.pt")
        with pytest.raises(ModelError, match=r"w\.pt.*small-cnn.*input_shape="):
            load_model(tmp_path / "w.pt", architecture="small-cnn")
        model, spec = load_model(tmp_path / "w.pt", architecture="small-cnn", input_shape=(1, 8, 8))
        assert spec.input_shape == (1, 8, 8)
        assert same_state(model[1], small)

    def test_half_precision_and_no_batch_counters(self, tmp_path, resnet):
        state = {k: v.half() for k, v in renamed(resnet, "1.{}".format).items() if "num_batches" not in k}
        torch.save({"arch": "cifar_resnet20", "state_dict": state}, tmp_path / "c.pth")
        model, _ = load_model(tmp_path / "c.pth")
        assert model[1].fc.weight.dtype == torch.float32
        assert torch.equal(model[1].fc.weight, resnet.fc.weight.half().float())

    @pytest.mark.parametrize(
        ("payload", "named"),
        [
            (
                {"state_dict": {"0.means": torch.tensor([0.5]), "0.sds": torch.ones(1)}},
                r"\bmean\b.*\b3\b.*\(0\.5,\)",
            ),
            ({"arch": 20}, "architecture="),
            ({"arch": "resnet1001"}, "'resnet1001'.*cifar_resnet110.*lenet"),
            ({"arch": "cifar_resnet110"}, r"1\.layer1\.3\.conv1\.weight.*\b447\b"),
            (
                {"state_dict": {"bn1.weight": torch.ones(17)}},
                r"1\.bn1\.weight.*\(17,\) float32.*\(16,\) float32",
            ),
        ],
    )
    def test_what_does_not_fit_is_named(self, tmp_path, resnet, payload, named):
        added = payload.get("state_dict", {})
        state = renamed(resnet, ("1.{}" if "0.means" in added else "{}").format) | added
        torch.save({"arch": "cifar_resnet20"} | payload | {"state_dict": state}, tmp_path / "c.pth")
        with pytest.raises(ModelError, match=rf"c\.pth.*{named}"):
            load_model(tmp_path / "c.pth")

    @pytest.mark.parametrize(
        ("payload", "named"),
        [
            *(
                (payload, "state_dict.*'arch'")
                for payload in (
                    {},
                    [1, 2],
                    {"arch": "lenet", "state_dict": {"a": 3}},
                    {1: torch.ones(2)},
                    torch.ones(3),
                )
            ),
            ({"arch": "lenet", "state_dict": {"a": torch.ones(2)}}, "lenet"),
            ({"conv1.weight": torch.ones(2)}, "architecture="),
        ],
    )
    def test_no_weights_inside(self, tmp_path, payload, named):
        torch.save(payload, tmp_path / "c.pt")
        with pytest.raises(ModelError, match=rf"c\.pt\b.*{named}"):
            load_model(tmp_path / "c.pt")


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
        with pytest.raises(ModelError, match=r"state_dict.*'arch'"):
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
        with pytest.raises(ModelError, match=r"c\.pth.*Settings"):
            load_model(tmp_path / "c.pth", trust_pickle=True)
