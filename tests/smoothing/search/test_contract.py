"""Every registered search keeps the same promises."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import CertifyPlan, Execution, Gaussian, SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.errors import InvalidValueError
from smoothcert.knobs import from_mapping
from smoothcert.perturb.base import NOISES
from smoothcert.runs.side_files import SearchResult
from smoothcert.smoothing.search.base import SEARCHES, SigmaSearch, search_name
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch, GradientSearch, PackageSearch
from smoothcert.smoothing.search.by_votes import GridSearch, LadderSearch, PaperGridSearch
from tests.smoothing.search.problems import Sure, origin, problem

_QUICK: dict[str, SigmaSearch] = {
    "ddsmoothing": PackageSearch(steps=4, samples=2, rows=8, factor=4.0, check_votes=32),
    "ellipsoid": EllipsoidSearch(steps=8, rows=8, check_votes=32),
    "gradient": GradientSearch(steps=8, lr=0.01, rows=8, check_votes=32),
    "grid": GridSearch(budget=64, samples=4, check_votes=32),
    "ladder": LadderSearch(votes=16, round_votes=48),
    "paper-grid": PaperGridSearch(budget=64, samples=4, whole=False, check_votes=32),
}


def quick(name: str) -> SigmaSearch:
    """A search with few steps and votes, or as it is by default."""
    return _QUICK.get(name) or SEARCHES[name]()


@pytest.mark.parametrize("name", SEARCHES.names())
class TestEverySearch:
    def test_is_a_frozen_dataclass_that_a_plan_states_and_reads_back(self, name):
        search = SEARCHES[name]()
        with pytest.raises(dataclasses.FrozenInstanceError):
            search.factor = 2.0
        stated = search.as_json()
        fields = {f"sigma_search.{f.name}" for f in dataclasses.fields(search)}
        assert set(stated) == fields | {"sigma_search"}
        stated = json.loads(json.dumps(CertifyPlan(Gaussian(0.5), search=quick(name)).as_json()))
        assert stated["sigma_search"] == name == search_name(quick(name))
        knobs = {k.partition(".")[2]: v for k, v in stated.items() if k.startswith("sigma_search.")}
        assert from_mapping(SEARCHES[name], knobs, name) == quick(name)
        for factor in (1.0, 0.0, -2.0, 65.0, float("nan"), float("inf")):
            with pytest.raises(InvalidValueError, match=f"factor.*{factor}"):
                SEARCHES[name](factor=factor)

    @pytest.mark.slow
    def test_the_batch_the_order_and_the_workers_change_nothing(self, name, digits_model):
        module, _ = load_model(digits_model)
        data = load("digits", "test")
        inputs = [(i, data.input(i)) for i in range(18, 66, 6)]  # a few of them move in every search

        def searched(chosen: list[Any], workers: int = 1) -> dict[int, SearchResult]:
            asked = problem(
                module, data.input_shape, sigma=0.25, seed=2, execution=Execution(workers=workers)
            )
            return {result.index: result for result in quick(name).search(asked, chosen)}

        together = searched(inputs)
        assert len({result.sigma for result in together.values()}) > 1
        assert (name == "ellipsoid") == any(result.noise is not None for result in together.values())
        assert searched(inputs[::-1], workers=2) == together
        for part in (inputs[:1], inputs[4:5], inputs[6:7], inputs[3:7]):
            assert searched(part) == {index: together[index] for index, _ in part}

    def test_sigma_stays_in_range_and_improves_or_stays(self, name):
        asked = problem(Sure())
        for found in quick(name).search(asked, origin(*range(5))):
            assert 0.125 <= found.sigma <= 2
            assert (found.reason == "improved") == (found.sigma != 0.5)
            assert found.radius >= found.start_radius
            assert found.evaluations <= quick(name).evaluations

    def test_every_noise(self, name):
        for noise in NOISES.names():
            (found,) = quick(name).search(problem(Sure(), noise=noise), origin(0))
            assert found.reason == "improved"
            assert found.sigma > 0.5

    def test_an_input_that_abstains_keeps_its_sigma(self, name):
        class Coin(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.stack([x[:, 0], -x[:, 0]], 1)

        # 20 votes would have to be unanimous, and votes of a coin aren't.
        found = quick(name).search(problem(Coin(), n=20), origin(*range(8)))
        assert {(one.reason, one.sigma) for one in found} == {("abstains", 0.5)}

    def test_the_number_of_evaluations_is_heard(self, name):
        heard: list[int] = []
        search = quick(name)
        classifier = SmoothedClassifier(Sure(), sigma=0.5, n0=10, n=100, search=search)
        list(classifier.certify_each([(i, np.zeros(2)) for i in range(3)], heard.append))
        assert sum(heard) == 3 * (search.evaluations + 110)
