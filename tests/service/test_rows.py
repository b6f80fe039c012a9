"""Rows of tables: asked about by the names of their columns, answered with what may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pandas")
pytest.importorskip("sklearn", reason="smoothcert[sklearn] is not installed")

from smoothcert import CertifyPlan, SmoothedClassifier, fit_masked
from smoothcert.service.secrets import Secret
from smoothcert.service.service import Service
from smoothcert.smoothing.plan import ANYTIME_BOUND
from tests.masked.tables import small_table
from tests.service.made import Live


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    from sklearn import tree

    table, classes = small_table()
    model = fit_masked(tree.DecisionTreeClassifier(min_samples_leaf=5), table, classes, beta=0.6)
    plan = CertifyPlan(model.smoothcert_noise_, bound=ANYTIME_BOUND, n=500)
    classifier = SmoothedClassifier(model, plan, input_shape=(5,))
    classifier.settle_for(None, 1e9)
    running = Live(Service(classifier, (5,), secret=Secret.of_seed(0)))
    yield running
    running.stop()


ROW = {"age": 40, "colour": "green", "size": "large", "income": 1000.5, "member": "no"}


def test_a_row_by_name_is_answered_with_what_may_change(server: Any) -> None:
    status, _, told = server.post("/v1/certify", {"inputs": [ROW]})
    assert status == 200
    (result,) = told["results"]
    assert result["norm"] == "l2/sigma"
    assert result["changes"][0]["rho"] == result["radius"]
    assert set(result["changes"][0]["budgets"]) == {"age", "income"}
    # In another order, and as numbers: the same row, the same votes.
    for same in (dict(reversed(ROW.items())), [40, 1, 0, 1000.5, 0]):
        assert server.post("/v1/certify", {"inputs": [same]})[2]["results"][0]["counts"] == result["counts"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (ROW | {"height": 3}, "height"),
        ({name: value for name, value in ROW.items() if name != "size"}, "size"),
        (ROW | {"age": "old"}, "age"),
        (ROW | {"age": None}, "age"),
        (ROW | {"size": ["large"]}, "size"),
        (ROW | {"age": {"is": 3}}, "age"),
    ],
)
def test_rows_that_are_not_the_table_s_are_rejected(server: Any, row: dict[str, Any], told: str) -> None:
    status, _, problem = server.post("/v1/certify", {"inputs": [row]})
    assert status == 422
    assert told in problem["error"]


def test_a_category_that_was_never_seen_is_a_value_of_its_own(server: Any) -> None:
    status, _, told = server.post("/v1/certify", {"inputs": [ROW | {"colour": "mauve"}]})
    assert status == 200
    assert told["results"][0]["votes"] > 0
