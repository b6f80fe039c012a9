"""The page in a real browser: no errors, no requests, and every control does what it says."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from smoothcert import datasets
from smoothcert.analysis.report import DataPlace, ReportOptions, write_report
from smoothcert.runs.records import Record
from smoothcert.runs.run import read_run
from tests.analysis.report.made_reports import HOSTILE, pictures_file, statement, toy_records, toy_run
from tests.analysis.texts import numbers

pytestmark = pytest.mark.system

PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1200, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("SMOOTHCERT_CHROMIUM") or shutil.which("chromium")
    if not program:
        pytest.skip("no chromium: put one on the path or name it in SMOOTHCERT_CHROMIUM")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
        yield launched
        launched.close()


@dataclass
class Watched:
    """A page and everything it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def indices(self) -> list[int]:
        return [int(card.get_attribute("data-index")) for card in self.page.locator(".card").all()]

    def values(self, name: str) -> list[float]:
        return [float(card.get_attribute(f"data-{name}")) for card in self.page.locator(".card").all()]

    def width(self) -> int:
        return int(self.page.evaluate("document.scrollingElement.scrollWidth"))


@pytest.fixture
def visit(browser) -> Iterator[Any]:
    opened = []

    def go(file: Path, address: str = "", viewport: dict[str, int] = DESKTOP, **options: Any) -> Watched:
        context = browser.new_context(viewport=viewport, **options)
        watched = Watched(context.new_page())
        watched.page.on("console", lambda message: watched.said.append(message.text))
        watched.page.on("pageerror", lambda error: watched.said.append(str(error)))
        # Chromium reports pictures that are in the file itself as requests too.
        watched.page.on(
            "request", lambda request: request.url.startswith("data:") or watched.asked.append(request.url)
        )
        watched.page.goto(file.as_uri() + address)
        opened.append((context, watched, file))
        return watched

    yield go
    for context, watched, file in opened:
        assert watched.said == []
        assert {asked.partition("#")[0] for asked in watched.asked} == {file.as_uri()}
        context.close()


def toy_page(folder: Path, shape: tuple[int, ...] = (8, 8), names: tuple[str, ...] = ()) -> Path:
    file = pictures_file(folder / "toys.npz", shape=shape, names=names)
    data = {
        "name": f"npz:{file}",
        "sha256": datasets.load(f"npz:{file}").fingerprint(),
        "inputs": 40,
        "skip": 1,
    }
    runs = [toy_run(folder / f"run-{k}", toy_records(seed=k), statement(data=data)) for k in range(2)]
    options = ReportOptions(place=DataPlace(f"npz:{file}"))
    return write_report(runs, folder / "report", options).path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def toys(folder) -> Path:
    return toy_page(folder)


def test_it_loads_with_statement_table_curves_and_pictures(visit, toys):
    page = visit(toys).page
    assert re.fullmatch(r"\d+\.\d %", page.locator("h1 strong").inner_text())
    assert page.locator("tbody tr").count() == 2
    assert page.locator("path.curve").count() == 2
    assert page.locator(".card img").count() == 48
    broken = "[...document.images].filter((image) => !image.complete || image.naturalWidth !== 8).length"
    assert page.evaluate(broken) == 0
    assert f"{toys.stat().st_size / 1e6:.2f} MB" in page.locator("footer").inner_text()


def test_filters_show_what_they_say(visit, toys, folder):
    records = read_run(folder / "run-0").records
    seen = visit(toys)

    def shown(name: str) -> set[int]:
        seen.page.locator(f"[data-filter={name}]").click()
        assert seen.page.locator(f"[data-filter={name}]").get_attribute("aria-pressed") == "true"
        return set(seen.indices())

    assert shown("wrong") == {r.index for r in records if not r.correct and not r.abstained}
    assert shown("abstained") == {r.index for r in records if r.abstained}
    right = sorted((r.radius, r.index) for r in records if r.correct)
    assert shown("weak") == {index for _, index in right[: -(-len(right) // 10)]}
    assert len(shown("all")) == 24
    seen.page.locator("#explorer-more").click()
    assert set(seen.indices()) == {r.index for r in records}
    assert not seen.page.locator("#explorer-more").is_visible()


def test_sorts_and_search(visit, toys):
    seen = visit(toys)
    for name, attribute in (("radius", "radius"), ("label", "label"), ("share", "share")):
        seen.page.select_option("#explorer-sort", name)
        values = seen.values(attribute)
        assert values == sorted(values)
    seen.page.locator("#explorer-turn").click()
    values = seen.values("share")
    assert values == sorted(values, reverse=True)
    seen.page.fill("#explorer-search", "13")
    assert seen.indices() == [13]
    seen.page.fill("#explorer-search", "999")
    assert seen.indices() == []
    assert "999" in numbers(seen.page.locator("#explorer-count").inner_text())


def test_the_address_keeps_the_state(visit, toys):
    first = visit(toys)
    first.page.locator("[data-filter=wrong]").click()
    first.page.select_option("#explorer-sort", "label")
    first.page.locator("[data-legend='1']").click()
    first.page.select_option("#explorer-run", "1")
    address = first.page.evaluate("location.hash")
    second = visit(toys, address)
    assert second.indices() == first.indices()
    assert second.page.locator("path.curve[data-run='1']").count() == 0
    assert second.page.locator("#statement-run").input_value() == "1"


def test_the_legend_hides_runs_and_the_band_shows(visit, toys):
    page = visit(toys).page
    page.locator("[data-legend='0']").click()
    assert page.locator("path.curve").count() == 1
    assert page.locator("[data-legend='0']").get_attribute("aria-pressed") == "false"
    page.locator("figure .controls button").first.click()
    assert page.locator("path.curve").count() == 2
    assert page.locator("path.band").count() == 0
    page.locator(".band-toggle").check()
    assert page.locator("path.band").count() == 2


def test_no_interval_is_shown_where_inputs_depend_on_one_another(visit, tmp_path):
    spread = toy_run(tmp_path / "spread", toy_records(), statement(stop=["total:9000,100"]))
    page = visit(write_report([spread], tmp_path / "alone", ReportOptions()).path, "#band=1").page
    assert page.locator("path.curve").count() == 1
    assert page.locator("path.band").count() == page.locator(".band-toggle").count() == 0
    assert page.locator("tbody small").count() == 0
    assert "95" not in numbers(page.locator(".scroll + .note").inner_text())
    assert "null" not in page.locator("main").inner_text()
    free = toy_run(tmp_path / "free", toy_records())
    page = visit(write_report([spread, free], tmp_path / "both", ReportOptions()).path, "#band=1").page
    assert page.locator("path.band").count() == 1
    assert [row.locator("small").count() > 0 for row in page.locator("tbody tr").all()] == [False, True]
    assert "95" in numbers(page.locator(".scroll + .note").inner_text())


def test_the_chart_is_read_with_pointer_and_keys(visit, toys, folder):
    page = visit(toys).page
    chart = page.locator(".chart")
    chart.focus()
    page.keyboard.press("Home")
    assert numbers(page.locator(".at").inner_text()) == ["0.000"]
    right = sum(record.correct for record in read_run(folder / "run-0").records)
    assert page.locator("[data-legend='0'] b").inner_text() == f"{100 * right / 40:.1f} %"
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    radius = float(chart.get_attribute("aria-valuenow"))
    assert numbers(page.locator(".at").inner_text()) == [f"{radius:.3f}"]
    certified = sum(r.correct and r.radius >= radius for r in read_run(folder / "run-0").records)
    assert page.locator("[data-legend='0'] b").inner_text() == f"{100 * certified / 40:.1f} %"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 50)
    assert float(chart.get_attribute("aria-valuenow")) > radius


def test_runs_are_compared_at_every_radius(visit, toys, folder):
    page = visit(toys).page
    first, second = (read_run(folder / f"run-{k}").records for k in range(2))
    slider = page.locator("#compare-radius")
    last = int(slider.get_attribute("max"))
    for place in (0, last // 4, last // 2):
        slider.fill(str(place))
        radius = float(page.locator("output[for=compare-radius]").inner_text())
        by = [{r.index for r in records if r.correct and r.radius >= radius} for records in (first, second)]
        only = [len(by[0] - by[1]), len(by[1] - by[0])]
        counts = [
            int(page.locator(f".piece.{kind}").get_attribute("data-count")) for kind in ("both", "a", "b")
        ]
        assert counts == [len(by[0] & by[1]), *only]
        p = float(page.locator("#compare-result").get_attribute("data-p"))
        expected = binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
        assert p == pytest.approx(expected, rel=1e-9)


def test_hostile_names_are_only_text(visit, tmp_path):
    long = "a very long name " * 40
    seen = visit(toy_page(tmp_path, names=(HOSTILE, long, "&lt;b&gt;", "${1}")))
    assert "run-0" in seen.page.title()
    assert "owned" not in seen.page.title()
    assert HOSTILE in seen.page.locator(".cards").inner_text()
    assert "&lt;b&gt;" in seen.page.locator(".cards").inner_text()
    assert seen.page.locator("script").count() == 2
    seen.page.set_viewport_size(PHONE)
    assert seen.width() <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(visit, toys, scheme):
    seen = visit(toys, viewport=PHONE, color_scheme=scheme, has_touch=True)
    assert seen.width() <= PHONE["width"]
    seen.page.locator(".band-toggle").check()
    seen.page.locator("details summary").first.click()
    assert seen.width() <= PHONE["width"]


def brightness(page: Any) -> int:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour[4:-1].split(","))


def test_dark_follows_the_system_and_the_button(visit, toys):
    light, dark = visit(toys, color_scheme="light").page, visit(toys, color_scheme="dark").page
    assert brightness(dark) < 150 < 600 < brightness(light)
    light.locator("#theme").click()
    assert brightness(light) < 150
    assert "theme=dark" in light.evaluate("location.hash")
    dark.locator("#theme").click()
    assert brightness(dark) > 600


CONTRAST = """() => {
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (node) => { for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour; } return [255, 255, 255]; };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.offsetParent) continue;
    const a = light(parse(getComputedStyle(node).color)), b = light(behind(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([node.tagName, node.className, ratio, node.textContent.slice(0, 30)].join(" "));
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(visit, toys, scheme):
    page = visit(toys, color_scheme=scheme).page
    page.locator("[data-filter=wrong]").click()
    page.evaluate("Promise.all(document.getAnimations().map((one) => one.finished)).then(() => 0)")
    assert page.evaluate(CONTRAST) == []


def test_tabular_inputs_are_strips(visit, tmp_path):
    page = visit(toy_page(tmp_path, shape=(5,))).page
    assert page.locator(".card").first.locator(".strip").count() == 2
    assert page.locator(".card").first.locator(".strip").first.locator("i").count() == 5
    assert page.locator(".card img").count() == 0


def test_logs_empty_runs_and_missing_pictures(visit, tmp_path):
    log = {"name": None, "log": "a.tsv", "log_sha256": "d" * 64, "planned": 40}
    bare = [Record(r.index, r.label, r.predicted, r.radius, 0.5, 0.0) for r in toy_records()]
    runs = [
        toy_run(tmp_path / "log", bare, statement(data=log, kind="import", alpha=None, n=None, bound=None)),
        toy_run(tmp_path / "empty", []),
        toy_run(tmp_path / "half", toy_records(20)),
    ]
    seen = visit(write_report(runs, tmp_path / "report", ReportOptions()).path, viewport=PHONE)
    page = seen.page
    assert "--alpha" in page.locator("#statement .notes").inner_text()
    banners = dict(text.split(":", 1) for text in page.locator(".banner").all_inner_texts())
    assert (numbers(banners["empty"]), numbers(banners["half"])[:2]) == ([], ["20", "40"])
    assert page.locator(".card").count() == page.locator(".card > .note").count() > 0  # instead of votes
    assert page.locator(".card .votes, .card img").count() == 0
    assert "--dataset" in page.locator("#explorer > .note").first.inner_text()
    assert seen.width() <= PHONE["width"]


def test_runs_that_no_test_holds_for_are_not_offered(visit, tmp_path):
    plain, other = (toy_run(tmp_path / name, toy_records(seed=seed)) for seed, name in enumerate("ab"))
    memory = toy_run(tmp_path / "remembered", toy_records(), statement(stateful=True))
    page = visit(write_report([plain, memory, other], tmp_path / "three", ReportOptions()).path).page
    assert page.locator("#compare-a option").all_inner_texts() == ["a", "b"]
    assert "remembered" in page.locator("#compare > .note").inner_text()
    page = visit(write_report([plain, memory], tmp_path / "two", ReportOptions()).path).page
    assert page.locator("#compare > .note").count() == 1
    assert page.locator("#compare-result, #compare select").count() == 0


def test_nothing_at_all_is_a_page_too(visit, tmp_path):
    run = toy_run(tmp_path / "empty", [])
    page = visit(write_report([run], tmp_path / "report", ReportOptions()).path).page
    assert page.locator("h1").inner_text()
    assert numbers(page.locator("h1").inner_text()) == []
    assert page.locator(".banner").inner_text().startswith("empty:")
    assert page.locator("path.curve, .card").count() == 0


def test_it_prints(visit, toys, tmp_path):
    page = visit(toys, color_scheme="dark").page
    page.pdf(path=str(tmp_path / "page.pdf"))
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
    page.emulate_media(media="print")
    assert brightness(page) == 765


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_table_shows_acr_first_and_says_where_it_goes_on(visit, toys, viewport):
    page = visit(toys, viewport=viewport).page
    # What follows the size of a box is called between two frames.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box = page.locator(".scroll").first
    heads = box.locator("thead tr").first.locator("th")
    assert [heads.nth(k).inner_text() for k in range(2)] == ["run", "ACR"]
    across = box.evaluate("box => [box.scrollWidth, box.clientWidth]")
    acr = heads.nth(1).bounding_box()
    assert acr["x"] + acr["width"] <= viewport["width"]
    assert page.locator(".sideways").first.is_visible() == (across[0] > across[1] + 1)
    accuracy = box.locator("tbody tr").first.locator("td:not(.more)").nth(1).bounding_box()
    assert accuracy["x"] + accuracy["width"] <= viewport["width"]
    assert box.locator("th.more").first.is_visible() == (viewport is DESKTOP)


def test_one_run_is_compared_with_none_and_bars_have_a_scale(visit, tmp_path):
    run = toy_run(tmp_path / "alone", toy_records())
    page = visit(write_report([run], tmp_path / "page", ReportOptions(title="Toys & co")).path).page
    assert page.locator(".title").inner_text() == "Toys & co"
    assert not page.locator("#compare").is_visible()
    assert page.locator("nav a").count() == 5
    tallest = page.locator(".histogram").first.locator("text").first.text_content()
    records = read_run(run).records
    answered = records.radius[~records.abstained]
    reach = max(float(records.radius.max()), 1e-9)
    assert int(tallest) == max(np.histogram(answered, np.linspace(0, reach, 41))[0])
    wrong, right = (
        page.locator(f".card.{kind} .head b").first.evaluate("one => getComputedStyle(one).fontWeight")
        for kind in ("wrong", "right")
    )
    assert (wrong, right) == ("400", "700")
