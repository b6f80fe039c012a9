"""Stand-ins for torchvision and timm with their call signatures; neither is a dependency of the tests."""

import sys
from types import ModuleType

from torch import nn


class Net(nn.Module):
    """A network that needs batches of images with sides of at least 4."""

    def __init__(self, channels, classes):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 4)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).mean((2, 3)))


class Detector(nn.Module):
    """Gives something else than logits."""

    def forward(self, x):
        return [{"boxes": x}]


class Features(nn.Module):
    """Gives too many numbers."""

    def forward(self, x):
        return x.flatten(1)


class LooksAtValues(Net):
    """Computes with a tensor's value while it is built, as some of timm's do: the meta device has none."""

    def __init__(self, channels, classes):
        super().__init__(channels, classes)
        self.scale = self.head.weight.abs().max().item()


def install_torchvision(monkeypatch, calls):
    package, models = ModuleType("torchvision"), ModuleType("torchvision.models")

    def list_models(module=None, include=None, exclude=None):
        classifiers = ["broken", "resnet18", "resnet34", "squeezenet1_0"]
        return classifiers if module is models else [*classifiers, "fasterrcnn_resnet50_fpn"]

    def get_model(name, **config):
        calls.append((name, config))
        if name == "broken":
            raise TypeError("bad_option\nand a second line")
        return Net(3, config["num_classes"])

    models.list_models, models.get_model = list_models, get_model
    package.models = models
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)


def install_timm(monkeypatch, calls):
    package = ModuleType("timm")
    kinds = {"wide_resnet50_2": Net, "resnet50": Net, "resnet50d": Net, "swin_tiny": LooksAtValues}
    shapeless = {"detector": Detector, "features": Features}

    def list_models(
        filter="", module="", pretrained=False, exclude_filters="", name_matches_cfg=False, include_tags=None
    ):
        return sorted([*kinds, *shapeless])

    def create_model(
        model_name, pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, **kwargs
    ):
        calls.append((model_name, {"pretrained": pretrained, **kwargs}))
        if model_name in shapeless:
            return shapeless[model_name]()
        return kinds[model_name](kwargs["in_chans"], kwargs["num_classes"])

    package.list_models, package.create_model = list_models, create_model
    monkeypatch.setitem(sys.modules, "timm", package)
