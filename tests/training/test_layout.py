"""Channels last where a network can take it: the same numbers but for rounding, and ordinary weights afterwards."""

import pytest
import torch
from torch import nn

from smoothcert.training import train
from smoothcert.training.layout import restore_layout, settle_layout
from tests.training.toys import Recorder, halves, new_model, numbers, plan


class Viewing(nn.Module):
    """As many networks are written: its features are viewed as rows, which needs the usual layout."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x):
        features = self.features(x)
        return self.head(features.view(len(x), -1))


class Deep(nn.Module):
    """Has weights of five dimensions, for which there is no such layout."""

    def __init__(self):
        super().__init__()
        self.flat, self.deep = nn.Conv2d(1, 2, 3), nn.Conv3d(1, 2, 3)

    def forward(self, x):
        return (
            self.flat(x).flatten(1)[:, :3]
            + self.deep(x.unsqueeze(1).expand(-1, -1, 3, -1, -1)).flatten(1)[:, :3]
        )


def is_channels_last(model):
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Conv2d)]
    return all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def test_convolutions_are_laid_out_channels_last_and_back():
    model = new_model(shape=(3, 8, 8), architecture="cifar_resnet20").eval()
    x = torch.rand(5, 3, 8, 8)
    before = model(x)
    assert settle_layout(model, x[:1]) == torch.channels_last
    assert is_channels_last(model)
    torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), before)
    restore_layout(model)
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    assert torch.equal(model(x), before)


@pytest.mark.parametrize(
    ("model", "sample"),
    [
        (Viewing(), torch.rand(1, 1, 8, 8)),
        (Deep(), torch.rand(1, 1, 8, 8)),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), torch.rand(1, 1, 8, 8)),
        (nn.Linear(3, 2), torch.rand(1, 3)),
    ],
    ids=["view", "three dimensions", "no convolution", "vectors"],
)
def test_others_stay_as_they_are(model, sample):
    assert settle_layout(model, sample) == torch.contiguous_format
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    model(sample)


def test_the_loop_shows_the_network_images_in_its_layout():
    seen = []
    model = new_model(shape=(3, 8, 8), architecture="cifar_resnet20")
    model[1].register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    train(model, halves(20, channels=3), plan(epochs=1))
    assert len(seen) > 3
    assert all(seen[1:])  # the first is the check that the model takes the data at all
    assert all(parameter.is_contiguous() for parameter in model.parameters())


def test_a_network_that_views_its_features_can_be_trained():
    history = train(Viewing(), halves(20), plan(epochs=1))
    assert history[-1].loss > 0
    train(nn.Linear(1, 3), numbers(10), plan(epochs=1, objective=Recorder()))
