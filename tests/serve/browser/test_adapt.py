"""The first tab in a real browser: what it shows is what the service answers."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from playwright import sync_api

import ttaps
from serve.browser.conftest import OpenPage, bars, percents, shown
from serve.conftest import Served

TUNED = "ttaps:tuned[steps=6,confidence_threshold=1]"  # what the page begins with
NAMES = {TUNED: "TTAPS, tuned", "augment:tuned": "Test-time augmentation, tuned"}
WORDS = {"fixed": "Fixed", "broken": "Broken", "changed": "Still wrong", "unchanged": "Unchanged"}
# A file as the browser would hand it over when it is dropped or pasted.
TRANSFER = """(encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], "ship.png", { type: "image/png" }));
  return data;
}"""


# Every place where z is drawn.
WATCH_Z = """() => {
  const z = document.querySelector(".map .z");
  window.places = new Set();
  new MutationObserver(() => window.places.add(z.getAttribute("transform"))).observe(z, { attributes: true });
}"""


@pytest.fixture(scope="module")
def words_page(browser: Any, site: Served) -> Any:
    """A page of the service that does nothing of its own."""
    page = browser.new_page()
    page.goto(f"{site.client.base_url}/docs")
    return page


def announced(page: Any, action: Any) -> str:
    """Do something, wait until its outcome is announced, and return that."""
    page.evaluate("() => { document.querySelector('#announce').textContent = ''; }")
    action()
    sync_api.expect(page.locator("#announce")).not_to_be_empty()
    return str(page.locator("#announce").text_content())


def test_it_shows_what_the_service_answers(open_page: OpenPage, site: Served) -> None:
    page, answer = open_page(), site.adapt(**site.start, method=TUNED)
    assert bars(page) == percents(answer["trace"][-1])
    assert page.locator(".verdict").get_attribute("data-outcome") == answer["outcome"]
    for place, label in ((".label-was", answer["label_before"]), (".label-now", answer["label"])):
        sign = "✓" if label == answer["true_label"] else "✗"
        assert page.locator(place).text_content().startswith(f"{sign} {label} ")
    words = page.locator(".words").text_content()
    assert words.startswith(WORDS[answer["outcome"]])
    labels = f"Before: {answer['label_before']}, now: {answer['label']}."
    assert page.locator("#announce").text_content() == f"{NAMES[TUNED]}: {words} {labels}"
    assert page.locator(".method option:checked").text_content() == NAMES[TUNED]
    assert page.locator(".lane .about code").text_content() == TUNED  # what can be pasted
    assert page.locator(".views img").count() == len(answer["views"])
    assert page.locator(".map .dots circle").count() == 300
    assert page.locator(".map .lit").count() == 8
    assert page.locator(".code code").all_text_contents() == [answer["command"], answer["python"]]
    assert base64.b64encode(shown(page, "#damaged")).decode() == answer["image"]


def test_the_scrubber_goes_back_and_forth(open_page: OpenPage, site: Served) -> None:
    page, answer = open_page(), site.adapt(**site.start, method=TUNED)
    scrubber, places, last = page.locator("#scrubber"), [], len(answer["trace"]) - 1
    for key, step in (("Home", 0), ("ArrowRight", 1), ("End", last), ("ArrowLeft", last - 1), ("ArrowRight", last)):
        scrubber.press(key)
        sync_api.expect(page.locator("#step")).to_have_text(f"step {step} of {last}" if step else "before")
        assert bars(page) == percents(answer["trace"][step])
        places.append(page.locator(".map .z").get_attribute("transform"))
    assert scrubber.get_attribute("aria-valuetext") == f"after step {last} of {last}"
    assert len(set(places[:3])) == min(3, last + 1)
    assert places[2] == places[4]
    marks = page.locator(".map .marks text").all_text_contents()
    assert marks == sorted({*marks} & {str(step) for step in range(1, last)}, key=int)


def test_steps_on_the_way_are_numbered_where_they_lie_apart(open_page: OpenPage) -> None:
    """Of steps at 0, 20, 21, 50 and 80 on a line, z at the last: the third would cover the second; the fourth, then, a name."""
    numbers = open_page().evaluate(
        """async () => {
          const { stepMarks } = await import("/static/js/map.js");
          const points = [0, 20, 21, 50, 80].map((x) => ({ x, y: 0 }));
          const numbers = (labels) => stepMarks(points, points[4], labels).map((mark) => mark.textContent);
          return [numbers([]), numbers([{ name: "cat", x: 52, y: 2 }])];
        }"""
    )
    assert numbers == [["1", "3"], ["1"]]


def test_the_loss_is_shown_at_every_step_and_only_there(open_page: OpenPage) -> None:
    """Losses of steps 1 to 3, which fill the axis from end to end; before the first step no dot, then one at the step shown."""
    shown = open_page().evaluate(
        """async () => {
          const { LossChart } = await import("/static/js/loss.js");
          const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
          const chart = new LossChart(svg), run = { losses: [null, 3, 2, 1], steps: 3 };
          const dot = (time) => (chart.show(run, time), ["cx", "visibility"].map((name) => svg.querySelector(".now").getAttribute(name)));
          const dots = [0, 1, 2, 3].map(dot);
          const points = svg.querySelector(".line").getAttribute("points").split(" ").map((point) => point.split(",")[0]);
          const texts = [...svg.querySelectorAll(".steps text")];
          const places = texts.slice(1).map((text) => text.getAttribute("x"));
          return { dots, points, places, names: texts.map((text) => text.textContent) };
        }"""
    )
    assert shown["names"] == ["step", "1", "2", "3"]
    assert shown["places"] == shown["points"]  # each number is below its point
    assert float(shown["points"][1]) == (float(shown["points"][0]) + float(shown["points"][2])) / 2
    assert shown["dots"] == [[shown["points"][0], "hidden"], *([place, "visible"] for place in shown["points"])]


def test_z_walks(open_page: OpenPage, site: Served) -> None:
    page, last = open_page(reduced_motion="no-preference"), len(site.adapt(**site.start, method=TUNED)["trace"]) - 1
    sync_api.expect(page.locator("#step")).to_have_text(f"step {last} of {last}")
    sync_api.expect(page.locator("#play")).to_have_attribute("aria-label", "Play the steps")
    page.evaluate(WATCH_Z)
    page.click("#play")
    page.wait_for_function("() => window.places.size > 4")
    sync_api.expect(page.locator("#step")).to_have_text(f"step {last} of {last}")


def test_the_slider_damages_the_image(open_page: OpenPage, site: Served) -> None:
    page = open_page()
    for key, severity in (("Home", 0), ("ArrowRight", 1), ("End", 5)):
        wanted = site.client.post("/api/corrupt", json={**site.start, "severity": severity}).json()["image"]
        announced(page, lambda key=key: page.locator("#severity").press(key))
        assert base64.b64encode(shown(page, "#damaged")).decode() == wanted
    wanted = site.client.post("/api/corrupt", json={**site.start, "corruption": "fog"}).json()["image"]
    announced(page, lambda: page.select_option("#corruption", "fog"))
    assert base64.b64encode(shown(page, "#damaged")).decode() == wanted


@pytest.mark.parametrize("way", ["drop", "paste", "choose", "photograph"])
def test_an_own_image(open_page: OpenPage, site: Served, ship: bytes, way: str) -> None:
    page, encoded = open_page(), base64.b64encode(ship).decode()
    file = {"name": "ship.png", "mimeType": "image/png", "buffer": ship}

    def drop() -> None:
        data = page.evaluate_handle(TRANSFER, encoded)
        page.dispatch_event("main", "dragenter", {"dataTransfer": data})
        assert page.locator("#drop").is_visible()
        page.dispatch_event("main", "drop", {"dataTransfer": data})
        assert page.locator("#drop").is_hidden()

    def paste() -> None:
        page.evaluate_handle(TRANSFER, encoded).evaluate(
            "(data) => document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }))"
        )

    ways = {"drop": drop, "paste": paste}
    ways["choose"] = lambda: page.set_input_files("#file", [file])
    ways["photograph"] = lambda: page.set_input_files("#camera", [file])
    announced(page, ways[way])
    answer = site.adapt(image=encoded, **{**site.start, "sample": None}, method=TUNED)
    assert bars(page) == percents(answer["trace"][-1])
    assert page.locator("#image-label").text_content() == "ship.png"
    assert page.locator(".words").text_content().startswith(("Unchanged", "Changed"))  # its label is not known
    assert page.locator("#camera").get_attribute("capture") == "environment"


def test_what_is_no_image_is_refused(open_page: OpenPage) -> None:
    page = open_page()
    text = page.evaluate_handle(
        "() => { const data = new DataTransfer(); data.items.add(new File(['a'], 'a.txt', { type: 'text/plain' })); return data; }"
    )
    page.dispatch_event("main", "drop", {"dataTransfer": text})
    assert page.get_by_role("alert").text_content() == "That was not an image file."


def test_settings_make_the_method(open_page: OpenPage, site: Served) -> None:
    page = open_page()
    page.get_by_role("button", name="Settings").click()
    threshold = ttaps.load("cifar10").presets["ttaps"]["tuned"]["confidence_threshold"]
    assert page.get_by_label("confidence threshold").input_value() == "1"  # the page adapts to every image
    said = announced(page, lambda: (page.get_by_label("steps", exact=True).fill("4"), page.keyboard.press("Tab")))
    spec = "ttaps:tuned[steps=4,confidence_threshold=1]"
    answer = site.adapt(**site.start, method=spec)
    assert bars(page) == percents(answer["trace"][-1])
    assert spec in page.locator(".code code").first.text_content()
    assert page.locator(".lane .about code").text_content() == spec
    assert page.locator("#scrubber").get_attribute("max") == "4"
    assert page.get_by_role("button", name="Settings (2 changed)").is_visible()
    assert said.startswith(f"{NAMES[TUNED]}: ")
    announced(page, lambda: page.get_by_role("button", name="Reset").click())
    assert page.locator(".code code").first.text_content() == site.adapt(**site.start, method="ttaps:tuned")["command"]
    # the model's own preset, not the method's default
    assert page.get_by_label("confidence threshold").input_value() == f"{threshold:g}" != "1"


def test_a_wrong_setting_is_refused_in_the_words_of_the_command_line(browser: Any, site: Served) -> None:
    page = browser.new_page(base_url=str(site.client.base_url))  # not watched: the browser logs refusals as errors
    page.goto("/")
    sync_api.expect(page.locator("#announce")).not_to_be_empty()
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("view pool").fill("3")
    page.keyboard.press("Tab")
    alert = page.get_by_role("alert")
    sync_api.expect(alert).to_contain_text("view_pool must be 0 or at least twice num_pairs (16), not 3.")
    page.get_by_role("button", name="Reset").click()
    sync_api.expect(alert).to_be_hidden()
    page.close()


def test_a_sure_image_is_left_as_it_is_and_the_page_says_so(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Settings").click()
    threshold = page.get_by_label("confidence threshold")  # of ten classes one has at least 10 %
    announced(page, lambda: (threshold.fill("0.1"), page.keyboard.press("Tab")))
    words = r"Unchanged: already sure \(at least 10\s%\), (and right|but wrong); no step taken."
    assert re.fullmatch(words, page.locator(".words").text_content())
    assert page.locator("#scrubber").is_disabled()


def test_adapt_waits_for_the_button_if_asked_to(open_page: OpenPage, site: Served) -> None:
    page = open_page()
    page.uncheck("#auto")
    page.get_by_role("radio").nth(8).click()
    sync_api.expect(page.locator("#adapt.wanted")).to_be_visible()
    assert bars(page) == percents(site.adapt(**site.start, method=TUNED)["trace"][-1])  # still of the image before
    announced(page, lambda: page.get_by_role("button", name="Adapt", exact=True).click())
    assert bars(page) == percents(site.adapt(**{**site.start, "sample": 8}, method=TUNED)["trace"][-1])


def test_two_methods_side_by_side(open_page: OpenPage, site: Served) -> None:
    page = open_page()
    said = announced(page, lambda: page.get_by_role("button", name="Compare").click())
    specs = (TUNED, "augment:tuned")
    answers = [site.adapt(**site.start, method=spec) for spec in specs]
    assert [bars(page, lane) for lane in (0, 1)] == [percents(each["trace"][-1]) for each in answers]
    assert all(f"{NAMES[spec]}: " in said for spec in specs)
    assert page.locator("#winner").text_content() == said.split(f" {NAMES[TUNED]}: ")[0]
    boxes = [page.locator(".lane").nth(lane).bounding_box() for lane in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    for place in (".caption", ".about", ".loss figcaption"):
        texts = page.locator(f"#pipeline {place}").all()
        assert texts, place
        assert all(text.is_visible() for text in texts), place
    page.locator("#scrubber").press("Home")
    sync_api.expect(page.locator("#step")).to_have_text("before")
    assert bars(page, 0) == bars(page, 1) == percents(answers[0]["trace"][0])  # both start from the same network
    announced(page, lambda: page.locator(".method").nth(1).select_option("source"))
    assert bars(page, 1) == percents(answers[0]["trace"][0])
    assert answers[0]["outcome"] == "fixed"
    assert page.locator("#winner").text_content() == "TTAPS fixes it, the unadapted model does not."
    assert page.locator(".code code").count() == 4
    announced(page, lambda: page.get_by_role("button", name="Stop comparing").click())
    assert page.locator(".lane").count() == 1
    assert page.locator("#winner").is_hidden()


@pytest.mark.parametrize(
    ("truth", "before", "one", "other", "words"),
    [
        ("ship", "ship", ("ship", 0.9), ("ship", 0.7), "Both say ship, which is right; A is surer, 90 % against 70 %."),
        ("cat", "cat", ("ship", 0.7), ("ship", 0.7), "Both say ship, which is wrong; equally sure."),
        (None, "ship", ("ship", 0.6), ("ship", 0.7), "Both say ship; B is surer, 70 % against 60 %."),
        (
            None,
            "ship",
            ("ship", 0.6),
            ("cat", 0.7),
            "A says ship (60 %), B says cat (70 %); which is right is not known.",
        ),
        ("dog", "ship", ("ship", 0.6), ("cat", 0.7), "Neither is right: A says ship (60 %), B says cat (70 %)."),
        ("cat", "ship", ("ship", 0.6), ("cat", 0.7), "B fixes it, A does not."),
        ("ship", "ship", ("ship", 0.6), ("cat", 0.7), "B breaks it, A does not."),
        ("ship", "ship", ("ship", 0.6), (None, None), "B breaks it, A does not."),
    ],
)
def test_who_does_better_is_said_in_a_line(
    words_page: Any, truth: Any, before: str, one: Any, other: Any, words: str
) -> None:
    pair = [
        {"name": name, "true_label": truth, "label_before": before, "label": label, "probability": probability}
        for name, (label, probability) in (("A", one), ("B", other))
    ]
    said = words_page.evaluate("async (pair) => (await import('/static/js/words.js')).winner(...pair)", pair)
    assert said.replace("\N{NO-BREAK SPACE}", " ") == words


def test_lines_are_copied(open_page: OpenPage) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    for number, name in enumerate(("Copy: Command line", "Copy: Python")):
        page.get_by_role("button", name=name).click()
        sync_api.expect(page.get_by_role("button", name=name)).to_have_text("Copied")
        text = page.evaluate("() => navigator.clipboard.readText()")
        assert text == page.locator(".code code").nth(number).text_content()


def test_first_paint_does_not_wait_for_the_model_and_nothing_jumps(open_page: OpenPage) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page = open_page(ready=False, before=lambda page: page.route("**/api/**", hold))
    boxes = {}
    for place in (
        ".lead",
        ".screen >> nth=0",
        ".screen >> nth=1",
        ".views",
        ".map",
        ".verdict",
        ".bars",
        ".dock",
        ".below",
    ):
        assert page.locator(place).first.is_visible(), place
        boxes[place] = page.locator(place).first.bounding_box()
    assert page.locator("#model").text_content() == "Loading the model …"
    waiting = ("#adapt", "#play", "#scrubber", "#corruption", ".method", ".settings-button", ".compare-button")
    for place in (*waiting, "#gallery-method", "#gallery-corruption"):
        assert page.locator(place).is_disabled(), place
    page.route("**/api/**", lambda route: route.continue_())  # the last handler goes first
    for route in held:
        route.continue_()
    sync_api.expect(page.locator("#announce")).not_to_be_empty()
    for place, box in boxes.items():
        assert page.locator(place).first.bounding_box() == pytest.approx(box, abs=1), place
    for place in (*waiting, "#gallery-method", "#gallery-corruption"):
        assert page.locator(place).is_enabled(), place


def test_a_request_that_is_no_longer_wanted_is_stopped(open_page: OpenPage) -> None:
    page = open_page()

    def of_ttaps(request: Any) -> bool:
        return request.url.endswith("/api/adapt/stream") and json.loads(request.post_data)["method"] == "ttaps"

    with page.expect_request(of_ttaps):
        page.locator(".method").select_option("ttaps")
    with page.expect_event("requestfailed", of_ttaps):
        announced(page, lambda: page.locator(".method").select_option("source"))
    assert page.locator("#announce").text_content().startswith("Unadapted model: No adaptation")
