"""The page in a real browser: drawn, certified, the radius rises; no error, and no request off the machine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from smoothcert.architectures.weights import load_model
from smoothcert.engine.execution import Execution
from smoothcert.service.limits import Limits
from smoothcert.service.secrets import Secret
from smoothcert.service.service import Service
from smoothcert.smoothing.classifier import SmoothedClassifier
from tests.service.made import Live, live

pytestmark = pytest.mark.system

PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1200, "height": 900}
SHOTS = os.environ.get("SMOOTHCERT_SCREENSHOTS")
"""A folder to leave pictures for the docs in."""


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


@pytest.fixture
def digits(digits_model: Path) -> Iterator[Live]:
    """A server that has not been asked yet."""
    module, spec = load_model(digits_model)
    model = SmoothedClassifier(
        module, sigma=0.25, n=20_000, bound="mixture-two-class", execution=Execution(workers=1)
    )
    service = Service(model, spec.input_shape, secret=Secret.of_seed(0), limits=Limits(deadline=60))
    server = Live(service)
    yield server
    server.stop()


def visited(browser: Any, url: str, **options: Any) -> tuple[Any, list[str], list[str]]:
    """A page, what it said and what it asked for."""
    context = browser.new_context(**options)
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: request.url.startswith("data:") or asked.append(request.url))
    page.goto(url + "/")
    page.wait_for_selector("#go:enabled")
    return page, said, asked


def text(page: Any, selector: str) -> str:
    return page.locator(selector).inner_text()  # type: ignore[no-any-return]


def assert_nothing_said(page: Any) -> None:
    assert page.locator("#verdict strong").count() == 0
    assert not page.locator("#moved").is_visible()
    assert not page.locator("#seen").is_visible()
    assert (text(page, "#radius-text"), text(page, "#votes-text")) == ("0", "0")


def draw_a_one(page: Any) -> None:
    box = page.locator("#drawing").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"]
    page.mouse.move(x, y + box["height"] * 0.1)
    page.mouse.down()
    page.mouse.move(x, y + box["height"] * 0.9, steps=12)
    page.mouse.up()


@pytest.mark.parametrize(
    ("shot", "options"),
    [
        ("desktop", {"viewport": DESKTOP}),
        pytest.param("phone", {"viewport": PHONE, "has_touch": True}, marks=pytest.mark.campaign),
        pytest.param("dark", {"viewport": DESKTOP, "color_scheme": "dark"}, marks=pytest.mark.campaign),
    ],
)
def test_a_drawn_digit_is_certified_while_one_watches(
    browser: Any, digits: Live, shot: str, options: dict[str, Any]
) -> None:
    page, said, asked = visited(browser, digits.url, **options)
    draw_a_one(page)
    page.evaluate(
        "() => { window.seen = []; new MutationObserver(() => seen.push(document.getElementById('radius').value))"
        ".observe(document.getElementById('radius-text'), { childList: true, characterData: true, subtree: true }); }"
    )
    page.click("#go")
    page.wait_for_selector("#moved:not([hidden])", timeout=60_000)
    radii = [value for value in page.evaluate("() => window.seen") if value]
    assert len(set(radii)) > 2
    assert radii[-1] > radii[0] > 0
    assert text(page, "#verdict strong") in "0123456789"
    assert text(page, "#radius-text") in text(page, "#verdict")
    assert text(page, "#verdict") in text(page, "#told"), "who listens hears what the others see"
    assert text(page, "#votes-text") in text(page, "#told")
    assert page.locator("#copies canvas").count() == 4
    shown = float(text(page, "#size-text")) - float(text(page, "#radius-text"))
    assert -2e-4 < shown <= 0
    words = {"at": {text(page, "#size-words")}, "outside": set(), "inside": set()}
    largest = float(page.locator("#size").get_attribute("max"))
    for where, size in (
        ("outside", largest),
        ("outside", radii[-1] * 1.1),
        ("inside", 0.01),
        ("inside", radii[-1] * 0.95),
    ):
        page.locator("#size").fill(str(size))
        words[where].add(text(page, "#size-words"))
    assert sorted(map(len, words.values())) == [1, 1, 1], "each place has its words"
    assert len(set.union(*words.values())) == 3, "and they differ"
    assert page.evaluate("document.scrollingElement.scrollWidth") <= options["viewport"]["width"]
    assert said == []
    assert {one.split("/")[2] for one in asked} == {digits.url.removeprefix("http://")}
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"serve-{shot}.png", full_page=True)
    page.context.close()


@pytest.mark.campaign
def test_by_keyboard_alone(browser: Any, digits: Live) -> None:
    page, said, _ = visited(browser, digits.url, viewport=DESKTOP)
    page.focus("#drawing")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
    assert re.search(r"\b[34]\b.*\b64\b", page.locator("#drawing").get_attribute("aria-label"))
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#moved:not([hidden])", timeout=60_000)
    page.focus("#clear")
    page.keyboard.press("Enter")
    assert_nothing_said(page)
    assert said == []
    page.context.close()


def test_a_row_of_numbers_and_an_honest_abstention(browser: Any) -> None:
    with live(n=64) as server:
        page, said, asked = visited(browser, server.url, viewport=PHONE)
        page.fill("#row", "0.5 nonsense")
        page.click("#go")
        assert "2" in text(page, "#verdict")
        assert_nothing_said(page)
        page.fill("#row", "0.5, 0")
        page.click("#go")
        page.wait_for_selector("#moved:not([hidden])", timeout=60_000)
        assert page.locator("#verdict strong").count() == 1
        assert "64" in text(page, "#verdict")
        assert (text(page, "#radius-text"), text(page, "#votes-text")) == ("0", "64")
        assert page.locator("#copies .numbers").count() == 4
        assert page.locator("#changed-row").inner_text().count(",") == 1
        assert said == []
        assert {one.split("/")[2] for one in asked} == {server.url.removeprefix("http://")}
        page.context.close()


PICTURE = """() => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 8;
  canvas.getContext('2d').fillStyle = 'white';
  canvas.getContext('2d').fillRect(0, 0, 8, 8);
  return new Promise(done => canvas.toBlob(blob => {
    const given = new DataTransfer();
    given.items.add(new File([blob], 'white.png', { type: 'image/png' }));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: given, bubbles: true, cancelable: true }));
    done();
  }));
}"""


def test_what_is_shown_is_about_the_input_that_was_asked_about(browser: Any, digits: Live) -> None:
    page, said, _ = visited(browser, digits.url, viewport=DESKTOP)
    draw_a_one(page)
    page.click("#go")
    page.wait_for_selector("#moved:not([hidden])", timeout=60_000)
    page.evaluate(PICTURE)
    page.wait_for_function("() => state.pixels.every(value => value > 0)")
    assert page.locator("#drawing").get_attribute("aria-label").count("64") == 2
    assert_nothing_said(page)
    # Stopped before anything was said of this one: the radius of the last isn't its own.
    page.evaluate("() => { document.getElementById('go').click(); document.getElementById('stop').click(); }")
    assert not page.locator("#moved").is_visible()
    assert page.locator("#radius-text").inner_text() == "0"
    assert said == []
    page.context.close()


def test_a_quick_stroke_has_no_gaps(browser: Any, digits: Live) -> None:
    page, said, _ = visited(browser, digits.url, viewport=DESKTOP)
    box = page.locator("#drawing").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2, steps=1)
    page.mouse.up()
    inked = page.evaluate(
        "() => state.pixels.reduce((all, v, i) => v > 0 ? all.add(i % 8) : all, new Set()).size"
    )
    assert inked == 8, "a line from one side to the other"
    assert said == []
    page.context.close()


def test_an_answer_that_breaks_off_says_so(browser: Any, digits: Live) -> None:
    page, _, _ = visited(browser, digits.url, viewport=DESKTOP)
    counts = ",".join(["9"] + ["0"] * 9)
    told = (
        'event: votes\ndata: {"votes": 9, "predicted": 0, "label": null, "abstained": false, "radius": 0.1, '
        '"candidate": 0, "candidate_label": null, "runner_up": null, "runner_up_label": null, '
        f'"counts": [{counts}]}}\n\n'
    )
    page.route("**/v1/certify/stream*", lambda route: route.fulfill(status=200, body=told))
    draw_a_one(page)
    page.click("#go")
    page.wait_for_selector("#moved:not([hidden])", timeout=60_000)
    told, verdict = text(page, "#told"), text(page, "#verdict")
    assert "0.1" in verdict, "what was shown last holds"
    assert "0.1" not in told
    assert verdict.endswith(told), "and that the rest is missing is added"
    page.context.close()
