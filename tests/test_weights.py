"""Models on disk: what is written comes back bit for bit, and whatever can't be loaded says why."""

import hashlib
import json
import os
import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from smoothcert.architectures import ARCHITECTURES, ModelSpec, initialise
from smoothcert.errors import ModelError, OutputError
from smoothcert.weights import load_model, save_model

SPEC = ModelSpec("small-cnn", (3, 8, 8), ("cat", "dog"), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def same_state(first, second):
    first, second = first.state_dict(), second.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


class TestOwnFormat:
    @pytest.mark.parametrize("architecture", ARCHITECTURES.names())
    def test_round_trip_is_exact(self, architecture, tmp_path):
        spec = ModelSpec(architecture, (3, 32, 32), ("cat", "dog"), CIFAR_MEAN, CIFAR_STD)
        model = initialise(spec, seed=3)
        model(torch.rand(4, 3, 32, 32))  # moves the running statistics off their initial values
        written = save_model(model, spec, tmp_path / "new" / "folder")
        assert written == tmp_path / "new" / "folder" / "model.safetensors"
        loaded, loaded_spec = load_model(tmp_path / "new" / "folder")
        assert loaded_spec == spec
        assert same_state(loaded, model)
        assert not loaded.training
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(loaded(x), model.eval()(x))

    def test_a_file_of_another_name(self, tmp_path):
        model = initialise(SPEC, seed=1)
        assert save_model(model, SPEC, tmp_path / "best.safetensors") == tmp_path / "best.safetensors"
        assert names_in(tmp_path) == ["best.json", "best.safetensors"]
        assert same_state(load_model(str(tmp_path / "best.safetensors"))[0], model)

    def test_memory_format_is_no_obstacle(self, tmp_path):
        model = initialise(SPEC, seed=1).to(memory_format=torch.channels_last)
        save_model(model, SPEC, tmp_path)
        assert same_state(load_model(tmp_path)[0], model)

    def test_json_holds_spec_version_and_hash(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        description = json.loads((tmp_path / "model.json").read_text())
        assert description == {
            "format_version": 1,
            "spec": SPEC.to_json(),
            "weights_sha256": hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest(),
        }

    def test_saving_over_an_older_model(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        newer = initialise(SPEC, seed=2)
        save_model(newer, SPEC, tmp_path)
        assert same_state(load_model(tmp_path)[0], newer)
        assert names_in(tmp_path) == ["model.json", "model.safetensors"]

    def test_failed_save_leaves_the_old_model_and_no_rubbish(self, tmp_path, monkeypatch):
        older = initialise(SPEC, seed=1)
        save_model(older, SPEC, tmp_path)

        def disk_full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", disk_full)
        with pytest.raises(OutputError, match=r"model\.safetensors can't be written: No space left"):
            save_model(initialise(SPEC, seed=2), SPEC, tmp_path)
        assert names_in(tmp_path) == ["model.json", "model.safetensors"]
        assert same_state(load_model(tmp_path)[0], older)

    def test_crash_between_the_two_files_is_noticed(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        old_json = (tmp_path / "model.json").read_bytes()
        save_model(initialise(SPEC, seed=2), SPEC, tmp_path)
        (tmp_path / "model.json").write_bytes(old_json)
        with pytest.raises(ModelError, match="SHA-256"):
            load_model(tmp_path)

    def test_model_that_is_not_of_the_spec_is_not_saved(self, tmp_path):
        other = ModelSpec("small-cnn", (3, 8, 8), ("a", "b", "c"), SPEC.mean, SPEC.std)
        with pytest.raises(
            ModelError, match=r"1\.fc2\.weight is \(3, 128\) float32 where the model has \(2, 128\)"
        ):
            save_model(initialise(other, seed=0), SPEC, tmp_path)
        with pytest.raises(ModelError, match="float64 where the model has"):
            save_model(initialise(SPEC, seed=0).double(), SPEC, tmp_path)
        assert names_in(tmp_path) == []

    def test_loading_leaves_the_global_random_state_alone(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        before = torch.get_rng_state()
        load_model(tmp_path)
        assert torch.equal(torch.get_rng_state(), before)

    def test_what_the_caller_says_must_agree_with_the_file(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        load_model(tmp_path, architecture="small-cnn", input_shape=(3, 8, 8))
        with pytest.raises(ModelError, match="has architecture 'small-cnn', not 'lenet'"):
            load_model(tmp_path, architecture="lenet")
        with pytest.raises(ModelError, match="input_shape"):
            load_model(tmp_path, input_shape=(1, 8, 8))


class TestDamagedFiles:
    @pytest.fixture
    def saved(self, tmp_path):
        save_model(initialise(SPEC, seed=1), SPEC, tmp_path)
        return tmp_path

    def rewrite(self, folder, *, weights=None, description=None):
        """Change either file and keep their hashes in agreement."""
        weights_path, json_path = folder / "model.safetensors", folder / "model.json"
        if weights is not None:
            weights_path.write_bytes(weights)
        current = json.loads(json_path.read_text())
        current["weights_sha256"] = hashlib.sha256(weights_path.read_bytes()).hexdigest()
        json_path.write_text(json.dumps({**current, **(description or {})}))

    def refusal(self, path, **options):
        with pytest.raises(ModelError) as caught:
            load_model(path, **options)
        return str(caught.value)

    def test_no_such_path(self, tmp_path):
        assert "nowhere doesn't exist" in self.refusal(tmp_path / "nowhere")

    def test_directory_without_a_model(self, tmp_path):
        assert f"{tmp_path} has no model.safetensors" in self.refusal(tmp_path)

    def test_other_kind_of_file(self, saved):
        message = self.refusal(saved / "model.json")
        assert "model.json is not a model file" in message
        assert ".safetensors" in message

    def test_cut_short(self, saved):
        path = saved / "model.safetensors"
        path.write_bytes(path.read_bytes()[:1000])
        message = self.refusal(saved)
        assert "model.safetensors" in message
        assert "cut short" in message

    def test_one_bit_changed(self, saved):
        path = saved / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert "SHA-256" in self.refusal(saved)

    @pytest.mark.parametrize("content", [b"", b"rubbish", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"{}" + b"\0"])
    def test_hash_agrees_but_it_is_no_safetensors_file(self, saved, content):
        self.rewrite(saved, weights=content)
        assert "model.safetensors is not a safetensors file" in self.refusal(saved)

    def test_missing_weights(self, saved):
        state = safetensors.torch.load_file(saved / "model.safetensors")
        del state["1.fc1.bias"], state["1.conv2.weight"]
        self.rewrite(saved, weights=safetensors.torch.save(state))
        message = self.refusal(saved)
        assert "model.safetensors" in message
        assert "missing 1.conv2.weight; missing 1.fc1.bias" in message

    def test_unexpected_and_misshapen_weights(self, saved):
        state = safetensors.torch.load_file(saved / "model.safetensors")
        state["1.fc1.bias"] = torch.zeros(5)
        state["1.extra"] = torch.zeros(1)
        self.rewrite(saved, weights=safetensors.torch.save(state))
        message = self.refusal(saved)
        assert "1.fc1.bias is (5,) float32 where the model has (128,) float32; unexpected 1.extra" in message

    def test_no_json(self, saved):
        (saved / "model.json").unlink()
        assert "has no model.json beside it" in self.refusal(saved / "model.safetensors")

    @pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe\x00"])
    def test_json_that_is_none(self, saved, content):
        (saved / "model.json").write_bytes(content)
        assert "model.json is not JSON" in self.refusal(saved)

    @pytest.mark.parametrize("content", ["[]", "{}", '{"format_version": 1, "spec": 3}'])
    def test_json_about_something_else(self, saved, content):
        (saved / "model.json").write_text(content)
        assert "model.json doesn't describe a model" in self.refusal(saved)

    def test_format_of_a_later_version(self, saved):
        self.rewrite(saved, description={"format_version": 2})
        assert "model.json has format_version 2, this smoothcert reads 1" in self.refusal(saved)

    @pytest.mark.parametrize(
        ("field", "value", "expected"),
        [
            ("architecture", "transformer", "unknown architecture 'transformer'"),
            ("input_shape", [3, 2, 2], "got (3, 2, 2)"),
            ("classes", [], "classes"),
            ("std", [0.2, 0.0, 0.4], "std must be positive"),
            ("mean", None, "both mean and std"),
        ],
    )
    def test_spec_that_makes_no_sense(self, saved, field, value, expected):
        self.rewrite(saved, description={"spec": {**SPEC.to_json(), field: value}})
        message = self.refusal(saved)
        assert expected in message
        assert str(saved) in message


def network(name, shape, classes=10, seed=2):
    torch.manual_seed(seed)
    result = ARCHITECTURES[name](shape, classes)
    result(torch.rand(4, *shape))
    return result.eval()


def renamed(module, change):
    return {change(name): tensor for name, tensor in module.state_dict().items()}


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

    @pytest.mark.parametrize("pattern", ["1.module.{}", "module.1.{}", "module.1.module.{}"])
    def test_data_parallel_wrappers(self, tmp_path, resnet, pattern):
        path = tmp_path / "c.pth"
        torch.save({"arch": "cifar_resnet20", "state_dict": renamed(resnet, pattern.format)}, path)
        model, spec = load_model(path)
        assert same_state(model[1], resnet)
        assert spec.mean == CIFAR_MEAN

    @pytest.mark.parametrize("names", [("means", "sds"), ("mean", "std")])
    @pytest.mark.parametrize("shape", [(3,), (3, 1, 1), (1, 3, 1, 1)])
    def test_statistics_in_the_checkpoint_win(self, tmp_path, resnet, names, shape):
        state = renamed(resnet, "1.module.{}".format)
        state[f"0.{names[0]}"] = torch.tensor([0.5, 0.25, 0.125]).reshape(shape)
        state[f"0.{names[1]}"] = torch.tensor([1.0, 0.5, 0.25]).reshape(shape)
        torch.save({"arch": "cifar_resnet20", "state_dict": state}, tmp_path / "c.pth")
        _, spec = load_model(tmp_path / "c.pth")
        assert (spec.mean, spec.std) == ((0.5, 0.25, 0.125), (1.0, 0.5, 0.25))

    def test_statistics_for_the_wrong_number_of_channels(self, tmp_path, resnet):
        state = renamed(resnet, "1.{}".format)
        state |= {"0.means": torch.tensor([0.5]), "0.sds": torch.tensor([1.0])}
        torch.save({"arch": "cifar_resnet20", "state_dict": state}, tmp_path / "c.pth")
        with pytest.raises(ModelError, match=r"c\.pth.*mean needs one value for each of the 3 channels"):
            load_model(tmp_path / "c.pth")

    def test_resnet110_with_100_classes(self, tmp_path):
        deep = network("cifar_resnet110", (3, 32, 32), classes=100)
        torch.save(
            {"arch": "cifar_resnet110", "state_dict": renamed(deep, "1.{}".format)}, tmp_path / "c.pth"
        )
        model, spec = load_model(tmp_path / "c.pth")
        assert len(spec.classes) == 100
        assert same_state(model[1], deep)

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
        with pytest.raises(
            ModelError, match=r"440\.pth doesn't name its architecture: give architecture=.*lenet"
        ):
            load_model(tmp_path / "440.pth")
        model, spec = load_model(tmp_path / "440.pth", architecture="cifar_resnet20")
        assert spec.mean is None
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(model(x), resnet(x))

    def test_bare_state_dict(self, tmp_path, resnet):
        torch.save(resnet.state_dict(), tmp_path / "weights.pt")
        with pytest.raises(ModelError, match="give architecture="):
            load_model(tmp_path / "weights.pt")
        assert same_state(load_model(tmp_path / "weights.pt", architecture="cifar_resnet20")[0][1], resnet)

    def test_architecture_without_a_customary_input(self, tmp_path):
        small = network("small-cnn", (1, 8, 8))
        torch.save(small.state_dict(), tmp_path / "w.pt")
        with pytest.raises(ModelError, match=r"give input_shape=\(channels, height, width\)"):
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

    def test_architecture_that_is_no_name(self, tmp_path, resnet):
        torch.save({"arch": 20, "state_dict": resnet.state_dict()}, tmp_path / "c.pth")
        with pytest.raises(ModelError, match=r"c\.pth doesn't name its architecture"):
            load_model(tmp_path / "c.pth")

    def test_unknown_architecture(self, tmp_path, resnet):
        torch.save({"arch": "resnet50", "state_dict": resnet.state_dict()}, tmp_path / "c.pth")
        with pytest.raises(
            ModelError, match=r"c\.pth: unknown architecture 'resnet50'.*cifar_resnet110.*lenet"
        ):
            load_model(tmp_path / "c.pth")

    def test_weights_of_another_architecture(self, tmp_path, resnet):
        torch.save({"arch": "cifar_resnet110", "state_dict": resnet.state_dict()}, tmp_path / "c.pth")
        with pytest.raises(ModelError, match=r"c\.pth has the wrong weights \(missing 1\.layer1\.3.*more"):
            load_model(tmp_path / "c.pth")
        torch.save({"arch": "lenet", "state_dict": {"a": torch.ones(2)}}, tmp_path / "d.pth")
        with pytest.raises(ModelError, match=r"d\.pth doesn't hold weights of lenet"):
            load_model(tmp_path / "d.pth")

    def test_wrong_shape(self, tmp_path, resnet):
        state = resnet.state_dict() | {"bn1.weight": torch.ones(17)}
        torch.save({"arch": "cifar_resnet20", "state_dict": state}, tmp_path / "c.pth")
        with pytest.raises(
            ModelError, match=r"1\.bn1\.weight is \(17,\) float32 where the model has \(16,\)"
        ):
            load_model(tmp_path / "c.pth")

    @pytest.mark.parametrize(
        "payload", [{}, [1, 2], {"arch": "lenet", "state_dict": {"a": 3}}, {1: torch.ones(2)}, torch.ones(3)]
    )
    def test_no_weights_inside(self, tmp_path, payload):
        torch.save(payload, tmp_path / "c.pt")
        with pytest.raises(ModelError, match=r"c\.pt holds no weights"):
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
        for part in ("c.pth", "running code", "leave_trace", "trust_pickle=True", "--trust-pickle"):
            assert part in str(caught.value)
        assert not (tmp_path / "trace").exists()
        with pytest.raises(ModelError, match="holds no weights"):
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
        with pytest.raises(ModelError, match=r"it holds torch\.nn\.parallel.*trust_pickle"):
            load_model(tmp_path / "c.pth", architecture="lenet")
        model, _ = load_model(tmp_path / "c.pth", architecture="lenet", trust_pickle=True)
        assert same_state(model[1], lenet)

    def test_unusual_pickle_protocol(self, tmp_path):
        lenet = network("lenet", (1, 28, 28))
        torch.save({"arch": "lenet", "state_dict": lenet.state_dict()}, tmp_path / "c.pth", pickle_protocol=5)
        with pytest.raises(ModelError, match=r"not of the plain kind.*trust_pickle"):
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
        with pytest.raises(ModelError, match=r"c\.pth can't be read as a checkpoint.*fetch it again"):
            load_model(tmp_path / "c.pth", trust_pickle=trust)

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
        with pytest.raises(ModelError, match=r"c\.pth can't be read as a checkpoint, it is cut short"):
            load_model(path)

    def test_pickle_of_a_class_that_is_gone(self, tmp_path, monkeypatch):
        torch.save({"extra": Settings()}, tmp_path / "c.pth")
        monkeypatch.delitem(globals(), "Settings")
        with pytest.raises(ModelError, match=r"c\.pth.*AttributeError"):
            load_model(tmp_path / "c.pth", trust_pickle=True)
