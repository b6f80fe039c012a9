"""What the page embeds, against figures worked out another way."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import datasets
from smoothcert.analysis.comparison import compare
from smoothcert.analysis.metrics import average_certified_radius, certified_accuracy
from smoothcert.analysis.report import DataPlace, ReportOptions, make_payload
from smoothcert.analysis.report.inputs import choose_inputs, explored, least_robust
from smoothcert.analysis.report.page import group_runs, slider_radii
from smoothcert.analysis.tables import radii_up_to
from smoothcert.errors import DataError, InvalidValueError, SmoothcertError
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, read_run
from tests.analysis.made_runs import made_run
from tests.analysis.report.made_reports import pictures_file, statement, toy_records, toy_run, voted
from tests.analysis.texts import numbers


def page_of(*runs: Run, **options: Any) -> dict[str, Any]:
    return make_payload(list(runs), ReportOptions(**options))


def stated(path: Path, records: list[Record], **options: Any) -> Run:
    return read_run(toy_run(path, records, statement(**options)))


def test_table_figures_are_the_metrics(tmp_path):
    records = toy_records()
    (group,) = page_of(stated(tmp_path / "a", records))["groups"]
    (run,) = group["runs"]
    radii = [float(radius) for radius in group["tableRadii"]]
    expected = certified_accuracy(records, radii)
    assert [cell["count"] for cell in run["cells"]] == (40 * expected).round().tolist()
    assert run["acr"] == f"{average_certified_radius(records):.3f}"
    assert run["base"]["percent"] == "100.0"
    assert run["smoothed"]["count"] == sum(record.correct for record in records)
    assert run["abstained"]["count"] == sum(record.abstained for record in records)


def test_votes_name_the_nearest_wrong_class_and_the_leaders_of_a_thousand():
    run = made_run(
        records=(
            voted(0, 0, [900, 30, 70, 0]),
            voted(1, 0, [100, 880, 20, 0]),  # wrong: the nearest wrong class is the answer
            voted(2, 3, [0, 0, 0, 1000]),
            Record(3, 1, 1, 0.5, 0.5, 1.0),
            voted(4, 2, [300, 300, 400, 0]),
        )
    )
    assert run.records.votes.rival.tolist() == [2, 1, -2, -2, 0]
    assert run.records.votes.rival_votes.tolist()[:3] == [70, 880, 0]
    assert run.records.votes.chosen_votes[[0, 1, 2, 4]].tolist() == [900, 880, 1000, 400]
    assert np.isnan(run.records.votes.total[3])
    assert run.records.votes.leaders[0].tolist() == [0, 2, 1, 3]
    counts = [0] * 1000
    counts[7], counts[500], counts[999] = 900, 60, 40
    run = made_run(records=(voted(0, 7, counts),))
    assert run.records.votes.leaders[0].tolist()[:3] == [7, 500, 999]
    (found,) = page_of(made_run(records=(voted(0, 7, counts),)))["groups"][0]["runs"]
    assert found["records"]["leaders"] == [[[7, 900], [500, 60], [999, 40]]]


def test_two_runs_are_compared_input_by_input(tmp_path):
    first, second = toy_records(seed=1), toy_records(seed=2)[::2]
    every_other = {"name": "toys", "sha256": "b" * 64, "inputs": 40, "skip": 2, "planned": 20}
    page = page_of(stated(tmp_path / "a", first), stated(tmp_path / "b", second, data=every_other))
    (group,) = page["groups"]
    radii = group["comparison"]["radii"]
    levels = {name: base64.b64decode(text) for name, text in group["comparison"]["levels"].items()}
    for k, typed in enumerate(radii):
        for records, name in ((first, "a"), (second, "b")):
            certified = {
                record.index for record in records if record.correct and record.radius >= float(typed)
            }
            found = {index for index, level in enumerate(levels[name]) if level != 255 and level > k}
            assert found == certified
    assert [index for index, level in enumerate(levels["b"]) if level == 255] == list(range(1, 40, 2))


@pytest.mark.parametrize(
    "plan", [{"stateful": True}, {"stop": ["total:100000"]}, {}], ids=["memory", "total", "under way"]
)
def test_no_test_is_offered_where_none_holds(tmp_path, plan):
    """What compare refuses, the page doesn't offer."""
    records = toy_records() if plan else toy_records(20)
    runs = [stated(tmp_path / "a", toy_records()), stated(tmp_path / "b", records, **plan)]
    (group,) = page_of(*runs)["groups"]
    assert group["comparison"] is None
    with pytest.raises(SmoothcertError):
        compare(runs[0], runs[1], [0.5], common=True)
    third = stated(tmp_path / "c", toy_records(seed=3))
    (group,) = page_of(*runs, third)["groups"]
    assert set(group["comparison"]["levels"]) == {"a", "c"}
    if not plan:
        found = group["runs"][1]
        assert found["curve"]["low"] is None
        assert found["smoothed"]["low"] is None
        assert not found["statement"]["proved"]


def test_what_is_grouped(tmp_path):
    other = {"name": "others", "sha256": "c" * 64, "inputs": 40, "skip": 1}
    page = page_of(stated(tmp_path / "a", toy_records()), stated(tmp_path / "b", toy_records(), data=other))
    assert [group["name"] for group in page["groups"]] == ["toys", "others"]
    assert all(group["comparison"] is None for group in page["groups"])
    log = made_run("a"), made_run("b"), made_run("c", records=(Record(0, 9, 9, 0.1, 0.25, 1.0),))
    groups = group_runs(list(log))
    assert [[run.name for run in group.runs] for group in groups] == [["a", "b"], ["c"]]
    assert all(group.by_labels for group in groups)
    assert groups[0].name != groups[1].name
    many = [replace(made_run(f"log{k}"), alias=f"log{k}") for k in range(30)]
    last = replace(stated(tmp_path / "last", toy_records(), data=other), alias="last")
    names = explored(group_runs([*many, last]), 10)
    assert len(names) == 10
    assert "last" in names


def test_different_norms_need_a_page_each_and_bad_options_are_named():
    with pytest.raises(InvalidValueError, match=r"l2.*l1"):
        page_of(made_run("a"), made_run("b", norm="l1"))
    with pytest.raises(InvalidValueError):
        make_payload([], ReportOptions())
    with pytest.raises(InvalidValueError, match=r"radius.*-1"):
        ReportOptions(radius=-1)
    with pytest.raises(InvalidValueError, match=r"inputs.*-1"):
        ReportOptions(inputs=-1)


def test_a_run_under_way_and_an_empty_one_have_banners(tmp_path):
    page = page_of(stated(tmp_path / "a", toy_records(10)), stated(tmp_path / "b", []))
    under_way, empty = page["banners"]
    assert under_way.startswith("a:")
    assert numbers(under_way) == ["10", "40"]
    assert empty.startswith("b:")
    assert numbers(empty) == []
    assert page_of(stated(tmp_path / "c", []))["groups"][0]["runs"][0]["inputs"] == 0
    assert page_of(stated(tmp_path / "d", toy_records()))["banners"] == []


def test_chosen_inputs_are_of_all_kinds():
    run = made_run(records=tuple(toy_records(400)))
    chosen = choose_inputs([run], 40)
    assert len(set(chosen.tolist())) == 40
    kinds = {
        "wrong": ~run.records.correct & ~run.records.abstained,
        "abstained": run.records.abstained,
        "right": run.records.correct,
    }
    for kind in kinds.values():
        assert np.count_nonzero(kind[chosen]) >= 8
    weak = least_robust(run)
    assert len(weak) == -(-np.count_nonzero(run.records.correct) // 10)
    assert (
        run.records.radius[weak].max()
        <= np.delete(
            run.records.radius[run.records.correct],
            np.argsort(run.records.radius[run.records.correct])[: len(weak)],
        ).min()
    )
    assert choose_inputs([run], 0).tolist() == []
    assert choose_inputs([run], 1000).tolist() == list(range(400))


def test_pictures_come_from_the_very_data_set(tmp_path):
    file = pictures_file(tmp_path / "toys.npz")
    spec = f"npz:{file}"
    data = {"name": spec, "sha256": datasets.load(spec).fingerprint(), "inputs": 40, "skip": 1}
    run = stated(tmp_path / "a", toy_records(), data=data)
    (group,) = page_of(run)["groups"]
    assert group["data"]["kind"] is None
    assert f"--dataset {spec}" in group["data"]["note"]
    (group,) = page_of(run, inputs=12, place=DataPlace(spec))["groups"]
    found = group["data"]
    assert found["kind"] == "pictures"
    assert data["sha256"][:12] in found["note"]
    assert found["classes"] == ["north", "east", "south", "west"]
    assert (
        len(found["inputs"]) == len(found["noisy"]["0.5"]) == len(group["runs"][0]["records"]["index"]) == 12
    )
    assert found["inputs"] != found["noisy"]["0.5"]
    file.rename(tmp_path / "moved.npz")
    with pytest.raises(DataError, match=r"toys\.npz"):
        page_of(run, place=DataPlace(spec))
    (group,) = page_of(run, place=DataPlace(f"npz:{tmp_path / 'moved.npz'}"))["groups"]
    assert group["data"]["kind"] == "pictures"
    other = pictures_file(tmp_path / "other.npz", shape=(6, 6))
    with pytest.raises(DataError, match=rf"other\.npz.*{data['sha256'][:12]}.*--dataset"):
        page_of(run, place=DataPlace(f"npz:{other}"))


def test_tabular_inputs_are_features(tmp_path):
    file = pictures_file(tmp_path / "table.npz", shape=(5,))
    data = {
        "name": f"npz:{file}",
        "sha256": datasets.load(f"npz:{file}").fingerprint(),
        "inputs": 40,
        "skip": 1,
    }
    run = stated(tmp_path / "a", toy_records(), data=data)
    (group,) = page_of(run, place=DataPlace(f"npz:{file}"))["groups"]
    assert group["data"]["kind"] == "features"
    assert np.allclose(group["data"]["inputs"]["3"], datasets.load(f"npz:{file}").input(3), rtol=1e-3)


def test_a_log_is_shown_with_data_whose_labels_agree(tmp_path):
    file = pictures_file(tmp_path / "toys.npz")
    run = stated(
        tmp_path / "a", toy_records(), data={"name": None, "log": "x.tsv"}, kind="import", alpha=None
    )
    (group,) = page_of(run)["groups"]
    assert group["data"]["kind"] is None
    assert "--dataset" in group["data"]["note"]
    (group,) = page_of(run, place=DataPlace(f"npz:{file}"))["groups"]
    assert group["data"]["kind"] == "pictures"
    assert str(file) in group["data"]["note"]
    assert "sha256" not in group["data"]["note"], "only labels were checked"
    short = pictures_file(tmp_path / "short.npz", count=30)
    with pytest.raises(DataError, match=r"short\.npz.*\b30\b.*\b39\b"):
        page_of(run, place=DataPlace(f"npz:{short}"))


def test_the_command_certifies_the_same_again(tmp_path):
    run = stated(tmp_path / "a run", toy_records(10))
    origin = {"model": "my model", "dataset": "digits", "split": "test", "data_dir": None}
    run = replace(run, manifest=run.manifest.stating(origin=origin))
    found = page_of(run)["groups"][0]["runs"][0]["provenance"]
    assert found["command"].startswith(
        "smoothcert certify 'my model' --dataset digits --split test --sigma 0.5"
    )
    assert found["command"].endswith(f"--every 1 --max 10 --out '{tmp_path}/a run-again'")
    hashes = dict(found["hashes"])
    assert hashes["model"] == "a" * 64
    assert hashes["data"] == "b" * 64
    (of_statement,) = (digest for name, digest in hashes.items() if "run.json" in name)
    assert len(hashes["results"]) == len(of_statement) == 64


@pytest.mark.parametrize(
    ("reach", "first", "last"),
    [(0.0, "0.25", "0.5"), (0.94, "0.25", "1"), (3.8, "0.5", "4"), (0.2, "0.025", "0.225")],
)
def test_radii_of_the_table(reach, first, last):
    radii = radii_up_to(reach)[1:]
    assert (radii[0], radii[-1]) == (first, last)
    assert float(slider_radii(reach)[-1]) >= reach
    assert len(slider_radii(reach)) <= 102


def test_no_interval_where_inputs_depend_on_one_another(tmp_path):
    banners = set()
    with_intervals = stated(tmp_path / "free", toy_records())
    for name, plan in (("memory", {"stateful": True}), ("total", {"stop": ["total:9000,100"]})):
        page = page_of(stated(tmp_path / name, toy_records(), **plan), with_intervals)
        dependent, free = page["groups"][0]["runs"]
        for run, there in ((dependent, False), (free, True)):
            for rate in (*run["cells"], run["smoothed"], run["abstained"], run["base"], run["curve"]):
                assert [rate[end] is not None for end in ("low", "high")] == [there, there]
        assert dependent["cells"][0]["percent"] == free["cells"][0]["percent"]
        (banner,) = page["banners"]
        assert banner.startswith(f"{dependent['name']}:")
        banners.add(banner.partition(":")[2])
    assert len(banners) == 2, "the banner says which of the two it is"


def test_runs_that_differ_in_their_seed_are_averaged(tmp_path):
    records = [toy_records(seed=seed) for seed in (1, 2)]
    runs = [
        replace(stated(tmp_path / f"mine-seed{k}", records[k], model="ab"[k], seed=k), alias=f"run {k}")
        for k in (0, 1)
    ]
    other = stated(tmp_path / "other", toy_records())
    (group,) = page_of(*runs, other)["groups"]
    (mean,) = group["means"]
    assert mean["runs"] == ["run 0", "run 1"]
    assert (mean["sigma"], "2" in numbers(mean["name"])) == (0.5, True)
    acrs = [average_certified_radius(each) for each in records]
    assert mean["acr"] == f"{np.mean(acrs):.3f}±{np.std(acrs, ddof=1):.3f}"
    for radius, cell in zip(group["tableRadii"], mean["cells"]):
        rates = [100 * certified_accuracy(each, [float(radius)])[0] for each in records]
        assert cell == f"{np.mean(rates):.1f}±{np.std(rates, ddof=1):.1f}"
    (alone,) = page_of(runs[0], other)["groups"]
    assert alone["means"] == []


def test_a_page_is_called_by_its_models_and_data_unless_it_has_a_title(tmp_path):
    run = stated(tmp_path / "a", toy_records())
    page = page_of(run)
    assert all(part in page["title"] for part in ("toy", page["groups"][0]["name"]))
    named = page_of(run, title="Ours", names=("best",))
    assert named["title"] == "Ours"
    assert all(words in named["command"] for words in ("--title Ours", "--name best"))


def test_what_is_verified_names_its_commands(tmp_path):
    (run,) = page_of(stated(tmp_path / "a", toy_records()))["groups"][0]["runs"]
    first, second = run["audit"]["commands"]
    assert first == f"smoothcert verify {tmp_path / 'a'}"
    assert second.startswith(first)
    assert "--replay" in second
    assert all(run["audit"][part] for part in ("verified", "believed"))
