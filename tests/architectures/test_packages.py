"""torchvision:NAME and timm:NAME, where the packages are there, broken or missing."""

import importlib
import json
import re
import sys

import pytest
import torch

from smoothcert.architectures.base import builder, check_architecture
from smoothcert.architectures.spec import ModelSpec, build, initialise
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.errors import InvalidValueError, ModelError
from tests.architectures.fake_packages import install_timm, install_torchvision


@pytest.fixture
def calls(monkeypatch):
    """Both packages at hand; what they were asked to build."""
    made = []
    install_torchvision(monkeypatch, made)
    install_timm(monkeypatch, made)
    return made


class TestBuilding:
    def test_torchvision_gets_classes_and_no_weights(self, calls):
        network = builder("torchvision:resnet18")((3, 32, 32), 7)
        assert calls == [("resnet18", {"weights": None, "num_classes": 7})]
        assert network(torch.rand(2, 3, 32, 32)).shape == (2, 7)

    def test_timm_gets_classes_and_channels_and_no_weights(self, calls):
        for channels in (1, 3, 4):
            network = builder("timm:wide_resnet50_2")((channels, 28, 28), 5)
            given = {"pretrained": False, "num_classes": 5, "in_chans": channels}
            assert calls.pop() == ("wide_resnet50_2", given)
            assert network(torch.rand(2, channels, 28, 28)).shape == (2, 5)

    def test_impossible_shapes_and_classes_are_named(self, calls):
        for name in ("torchvision:resnet18", "timm:resnet50"):
            for shape in ((28, 28), (0, 28, 28), (3, 28.0, 28)):
                with pytest.raises(InvalidValueError, match=f"{name}.*{re.escape(str(shape))}"):
                    builder(name)(shape, 10)
        with pytest.raises(InvalidValueError, match=r"torchvision:resnet18.*\b3\b.*\b1\b.*timm:NAME"):
            builder("torchvision:resnet18")((1, 28, 28), 7)
        with pytest.raises(InvalidValueError, match=r"classes.*\b0\b"):
            builder("timm:resnet50")((3, 32, 32), 0)
        assert not calls

    def test_what_the_package_makes_of_it_is_noticed_at_once(self, calls):
        for name, shape, found in (
            ("timm:resnet50", (3, 2, 2), r"\(3, 2, 2\).*RuntimeError"),
            ("timm:detector", (3, 32, 32), r"\blist.*\(1, 10\)"),
            ("timm:features", (3, 32, 32), r".*\(1, 3072\).*\(1, 10\)"),
            # Of the package's message the first line.
            ("torchvision:broken", (3, 32, 32), r"\(3, 32, 32\).*\b10\b.*TypeError: bad_option\)"),
        ):
            with pytest.raises(ModelError, match=f"{name}.*{found}"):
                builder(name)(shape, 10)

    def test_looking_at_one_input_leaves_no_trace(self, calls):
        network = builder("timm:resnet50")((3, 32, 32), 10)
        assert all(module.training for module in network.modules())
        assert network.norm.num_batches_tracked == 0
        assert all(parameter.grad is None for parameter in network.parameters())

    @pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:swin_tiny"])
    def test_seed_decides_the_weights(self, calls, name):
        spec = ModelSpec(name, (3, 32, 32), ("a", "b"))
        before = torch.get_rng_state()
        first, same, other = (initialise(spec, seed).state_dict() for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before)
        assert all(torch.equal(first[key], same[key]) for key in first)
        assert not torch.equal(first["1.conv.weight"], other["1.conv.weight"])


class TestNames:
    @pytest.mark.parametrize(
        ("name", "guesses"),
        [
            ("torchvision:resnet19", ["torchvision:resnet18", "torchvision:resnet34"]),
            ("timm:resnet50.a1_in1k", ["timm:resnet50", "timm:resnet50d", "timm:wide_resnet50_2"]),
            ("timm:hf-hub:someone/model", []),
            ("torchvision:fasterrcnn_resnet50_fpn", []),
        ],
    )
    def test_name_the_package_does_not_know(self, calls, name, guesses):
        with pytest.raises(InvalidValueError, match=f"'{name}'") as caught:
            builder(name)
        package = name.partition(":")[0]
        names = re.findall(rf"{package}:\w+", str(caught.value).replace(f"'{name}'", ""))
        assert names == guesses
        assert f"{package}." in str(caught.value)
        assert "list_models(" in str(caught.value)
        assert not calls

    def test_check_imports_nothing(self, monkeypatch):
        monkeypatch.setattr(importlib, "import_module", lambda module: pytest.fail(f"{module} was imported"))
        for name in ("lenet", "resnet50", "timm:anything", "torchvision:at all"):
            check_architecture(name)

    def test_check_refuses_what_cannot_be_a_name(self):
        for name in ("timm:", "torchvision:", ":resnet50", "keras:resnet50", "", "resnet51", "Timm:x"):
            for function in (check_architecture, builder):
                with pytest.raises(InvalidValueError, match=f"'{name}'") as caught:
                    function(name)
                for known in ("lenet", "cifar_resnet18", "timm:NAME", "torchvision:NAME"):
                    assert known in str(caught.value)

    def test_registered_names_are_not_shadowed(self, calls):
        assert builder("resnet50").__module__ == "smoothcert.architectures.networks"


class TestMissingPackages:
    @pytest.mark.parametrize("package", ["torchvision", "timm"])
    def test_not_installed(self, monkeypatch, package):
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, f"{package}.models", raising=False)
        name = f"{package}:resnet50"
        with pytest.raises(ModelError, match=f"{name}.*pip install {package}"):
            build(ModelSpec(name, (3, 32, 32), ("a", "b")))

    @pytest.mark.parametrize("package", ["torchvision", "timm"])
    @pytest.mark.parametrize(
        ("failure", "reason"),
        [
            ("RuntimeError('torchvision::nms')", "RuntimeError: torchvision::nms"),
            ("ModuleNotFoundError('yaml', name='yaml')", "ModuleNotFoundError: yaml"),
            ("OSError()", r"\(OSError\)"),
        ],
    )
    def test_installed_but_broken(self, monkeypatch, tmp_path, package, failure, reason):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"raise {failure}\n")
        for loaded in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ModelError, match=f"{package}:resnet50.*{reason}.*{re.escape(torch.__version__)}"):
            builder(f"{package}:resnet50")


class TestOnDisk:
    @pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:wide_resnet50_2", "timm:swin_tiny"])
    def test_round_trip(self, calls, tmp_path, name):
        spec = ModelSpec(name, (3, 32, 32), ("cat", "dog", "eel"), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
        model = initialise(spec, seed=3)
        model(torch.rand(4, 3, 32, 32))
        before = torch.get_rng_state()
        save_model(model, spec, tmp_path)
        assert torch.equal(torch.get_rng_state(), before)
        assert json.loads((tmp_path / "model.json").read_text())["spec"]["architecture"] == name
        loaded, loaded_spec = load_model(tmp_path)
        assert loaded_spec == spec
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(loaded(x), model.eval()(x))

    def test_saved_model_whose_package_is_gone(self, calls, monkeypatch, tmp_path):
        spec = ModelSpec("timm:resnet50", (3, 32, 32), ("cat", "dog"))
        save_model(initialise(spec, seed=3), spec, tmp_path)
        monkeypatch.setitem(sys.modules, "timm", None)
        with pytest.raises(ModelError, match=r"model\.safetensors.*timm:resnet50"):
            load_model(tmp_path)

    def test_checkpoint_of_a_packages_network(self, calls, tmp_path):
        network = builder("timm:resnet50")((1, 28, 28), 4).eval()
        torch.save(network.state_dict(), tmp_path / "c.pth")
        with pytest.raises(ModelError, match=r"c\.pth.*input_shape="):
            load_model(tmp_path / "c.pth", architecture="timm:resnet50")
        model, spec = load_model(tmp_path / "c.pth", architecture="timm:resnet50", input_shape=(1, 28, 28))
        assert spec == ModelSpec("timm:resnet50", (1, 28, 28), tuple("0123"))
        x = torch.rand(2, 1, 28, 28)
        assert torch.equal(model(x), network(x))
