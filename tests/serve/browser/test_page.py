"""The page as a whole in a real browser: tabs, themes, widths, keyboard, names for screen readers, contrast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from serve.browser.conftest import PHONE, WIDE, OpenPage
from serve.conftest import Served
from ttaps.serve.results import ResultsFolder

NAMELESS = """() => [...document.querySelectorAll('button, select, input, a[href], img, [role=img], [role=radio]')]
  .filter((each) => each.checkVisibility() || each.classList.contains('cover'))
  .filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels?.length || each.title || each.alt !== undefined))
  .map((each) => each.outerHTML)"""
# Text and what is behind it, as numbers from 0 to 255: a canvas reads any way a color is written.
COLORS = """(places) => {
  const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const read = (color) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  return places.map((place) => {
    const element = document.querySelector(place);
    let behind = element;
    while (behind.parentElement && read(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
    return [read(getComputedStyle(element).color), read(getComputedStyle(behind).backgroundColor)];
  });
}"""
TEXTS = [
    *(".lead p", ".caption", ".under", ".group-title", ".about", ".words", ".label-was", ".label-now", ".bars .value"),
    *(
        "#adapt",
        ".plain",
        ".step",
        ".check",
        ".how dd",
        ".code figcaption",
        ".foot p",
        ".model",
        "[role=tab]",
        ".ticks",
    ),
]


def luminance(color: list[int]) -> float:
    parts = [value / 255 for value in color[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[int], other: list[int]) -> float:
    """Return the contrast of two colors as WCAG defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


# What moved without being asked to, weighed as Chromium does for "cumulative layout shift" (0.1 is called good).
SHIFTS = """() => {
  window.shifted = 0;
  const add = (one) => { if (!one.hadRecentInput) window.shifted += one.value; };
  new PerformanceObserver((list) => list.getEntries().forEach(add)).observe({ type: 'layout-shift', buffered: true });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(open_page: OpenPage, scheme: str) -> None:
    page = open_page(color_scheme=scheme)
    for place, (text, behind) in zip(TEXTS, page.evaluate(COLORS, TEXTS), strict=True):
        assert contrast(text, behind) >= 4.5, place


def test_dark_and_light(open_page: OpenPage) -> None:
    page = open_page(color_scheme="dark")
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Theme: as the system").click()
    light = page.evaluate(background)
    assert light == "rgb(255, 255, 255)" != dark
    page.reload()
    assert page.evaluate(background) == light  # it is kept
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(background) == dark


@pytest.mark.parametrize(
    "viewport", [PHONE, {"width": 840, "height": 900}, WIDE, {"width": 2200, "height": 1200}], ids=str
)
def test_nothing_sticks_out_at_any_width(open_page: OpenPage, viewport: dict[str, int]) -> None:
    page = open_page(viewport=viewport)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Compare").click()
    sync_api.expect(page.locator(".lane .bars .best")).to_have_count(2)
    for name in ("Adapt", "Gallery", "Results"):
        page.get_by_role("tab", name=name).click()
        sync_api.expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        width = page.evaluate("() => document.documentElement.scrollWidth")
        assert width == viewport["width"], name


@pytest.mark.parametrize("viewport", [PHONE, {"width": 840, "height": 900}, WIDE], ids=str)
def test_nothing_moves_while_the_page_fills(open_page: OpenPage, viewport: dict[str, int]) -> None:
    page = open_page(viewport=viewport, before=lambda page: page.add_init_script(f"({SHIFTS})()"))
    assert page.evaluate("() => window.shifted") < 0.0015  # the marks of the probabilities, and the name of the model


@pytest.mark.parametrize("width", [390, 840, 1280, 1440])
def test_what_a_method_does_is_said_in_full(open_page: OpenPage, width: int) -> None:
    about = open_page(viewport={"width": width, "height": 900}).locator(".lane .about")
    sync_api.expect(about).to_contain_text("] Align augmented views of one image with the prototypes, predict, reset.")
    assert about.evaluate("(one) => [one.scrollWidth - one.clientWidth, one.scrollHeight - one.clientHeight]") == [0, 0]


def test_on_a_phone_the_controls_are_in_reach(open_page: OpenPage) -> None:
    page = open_page(viewport=PHONE, has_touch=True, is_mobile=True)
    page.locator(".answer-stage").scroll_into_view_if_needed()
    for place in ("#adapt", "#play", "#scrubber", "[role=tab] >> nth=0"):
        box = page.locator(place).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= PHONE["height"]
        assert box["height"] >= 24, place  # WCAG 2.2, target size
    page.locator("#adapt").tap()


def test_the_bar_at_the_bottom_hides_no_class(open_page: OpenPage) -> None:
    """On a large screen all is in view from the start; on others the whole answer fits between the header and the bar."""
    page = open_page()
    for lanes in (1, 2):
        if lanes == 2:
            page.get_by_role("button", name="Compare").click()
            sync_api.expect(page.locator(".lane .bars .best")).to_have_count(2)
        for width, height in ((1440, 900), (1920, 1080), (1280, 800), (1100, 800), (840, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate("() => scrollTo(0, 0)")
            for stage in page.locator(".answer-stage").all():
                if width < 1440:
                    stage.evaluate("(stage) => stage.scrollIntoView({ block: 'nearest' })")
                last, bar = stage.locator(".bars").bounding_box(), page.locator(".dock").bounding_box()
                assert stage.bounding_box()["y"] >= page.locator(".top").bounding_box()["height"], (lanes, width)
                assert last["y"] + last["height"] <= bar["y"], (lanes, width)


def test_the_name_is_spelled_out_where_one_reads_first(open_page: OpenPage) -> None:
    lead = open_page(ready=False).locator("#panel-adapt .lead")
    sync_api.expect(lead).to_contain_text("TTAPS (test-time adaption by aligning prototypes using self-supervision)")


def test_everything_has_a_name(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Settings").click()
    for name in ("Adapt", "Gallery", "Results"):
        page.get_by_role("tab", name=name).click()
        sync_api.expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        assert page.evaluate(NAMELESS) == []
    assert page.evaluate("() => document.querySelectorAll('h1').length") == 3  # one on each tab
    assert page.evaluate("() => document.documentElement.lang") == "en"
    page.get_by_role("tab", name="Adapt").click()
    assert "the 8 prototypes nearest to the image are" in page.locator(".map").get_attribute("aria-label")


def test_keyboard_only(open_page: OpenPage, site: Served) -> None:
    page = open_page()
    focused = (
        "() => document.activeElement.id || document.activeElement.className || document.activeElement.textContent"
    )
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "skip"
    order = []
    for _ in range(14):
        page.keyboard.press("Tab")
        order.append(page.evaluate(focused))
    assert order[:2] == ["brand", "tab-adapt"]
    assert [each for each in order if each in ("file", "camera", "corruption", "severity", "method")] == [
        "file", "camera", "corruption", "severity", "method",
    ]  # fmt: skip
    page.locator("[role=radio][aria-checked=true]").focus()
    page.keyboard.press("ArrowRight")
    following = site.client.get("/api/samples").json()[site.start["sample"] + 1]["label"]
    sync_api.expect(page.locator("#image-label")).to_have_text(f"true label: {following}")
    page.locator("#adapt").focus()
    page.keyboard.press("Enter")
    page.locator("#tab-adapt").focus()
    page.keyboard.press("ArrowRight")
    sync_api.expect(page.get_by_role("tabpanel", name="Gallery")).to_be_visible()
    assert page.evaluate(focused) == "tab-gallery"
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_gallery(open_page: OpenPage) -> None:
    page = open_page("#gallery", ready=False)
    tiles = page.locator("#gallery-rows .tile:not(.skeleton)")
    sync_api.expect(tiles.nth(8)).to_be_visible()  # the first image under nine corruptions
    assert page.locator("#gallery-rows .row").count() == 9
    assert page.locator("#gallery-rows .tile").count() == 90  # room for all of them from the start
    page.get_by_role("radio", name="fixed").check()
    seen = "tiles => tiles.map(tile => [tile.checkVisibility(), tile.dataset.outcome])"  # at once: more of them arrive
    assert all(visible == (outcome == "fixed") for visible, outcome in tiles.evaluate_all(seen))
    page.get_by_role("radio", name="all").check()
    first = tiles.nth(0)
    after = first.locator(".guess").nth(1).text_content()
    first.get_by_role("button").click()
    sync_api.expect(page.get_by_role("tabpanel", name="Adapt")).to_be_visible()
    sync_api.expect(page.locator("#announce")).to_contain_text(f"now: {after.removeprefix('✓ ').removeprefix('✗ ')}")
    sync_api.expect(page.locator("#corruption")).to_have_value("contrast")


def test_results(open_page: OpenPage, stored: ResultsFolder) -> None:
    page = open_page("#results", ready=False)
    table = page.locator(".sortable tbody tr")
    experiment = 2  # not the model alone
    expected = [row for row in stored.summary["table"] if row["experiment"] == experiment]
    sync_api.expect(table).to_have_count(len(expected))
    page.get_by_role("button", name="After, %").click()
    column = [float(text) for text in page.locator(".sortable tbody td:nth-child(3)").all_text_contents()]
    assert column == sorted(column, reverse=True)
    assert sorted(column) == pytest.approx(sorted(row["after"] for row in expected), abs=0.06)
    assert page.locator("[aria-sort=descending]").count() == 1
    table.first.click()
    sync_api.expect(page.locator(".right .count")).to_have_text("4 of 4 images")
    page.get_by_role("radio", name="unchanged").check()
    sync_api.expect(page.locator(".right .tile:not([data-outcome=unchanged])")).to_have_count(0)
    tile = page.locator(".right .tile button").first
    label = tile.locator("b").text_content()
    tile.click()
    sync_api.expect(page.get_by_role("tabpanel", name="Adapt")).to_be_visible()
    sync_api.expect(page.locator("#image-label")).to_have_text(f"true label: {label}")
    sync_api.expect(page.locator("#announce")).not_to_be_empty()
    assert page.locator("#severity").is_disabled()  # it is damaged already


def test_without_results_the_tab_says_how_to_get_them(open_page: OpenPage, browser: Any, model_folder: Path) -> None:
    with Served(model_folder) as bare:
        page = browser.new_page()
        page.goto(f"{bare.client.base_url}/#results")
        sync_api.expect(page.locator("#results-body")).to_contain_text("ttaps serve --results results/first")
        page.close()


def test_a_report_is_shown_instead_of_a_folder(browser: Any, model_folder: Path) -> None:
    report = b"<!doctype html><style>h1 { color: rgb(1, 2, 3) }</style><h1>Table 1</h1><script>document.title = 'no'</script>"
    with Served(model_folder, report=report) as served:
        page = browser.new_page()
        page.goto(f"{served.client.base_url}/#results")
        heading = page.frame_locator("iframe").get_by_role("heading", name="Table 1")
        sync_api.expect(heading).to_have_css("color", "rgb(1, 2, 3)")
        page.close()


def test_the_interface_is_described_on_a_page_of_its_own(open_page: OpenPage) -> None:
    page = open_page("docs", ready=False)
    sync_api.expect(page.locator("body")).to_contain_text("/api/adapt/stream")
