"""The page in a real browser: it asks nothing of the network, and is read on a phone, in the dark
and on paper."""

import re
import tomllib
import xml.etree.ElementTree as xml
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from ordinate.cli import compare, main
from ordinate.experiments.plan import changed
from ordinate.report import page, record
from ordinate.training.looks import Looks
from report.made import depth, empty, grid, quick, unfinished
from report.test_looks import attention

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
from playwright.sync_api import sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = [(1400, "light"), (1400, "dark"), (360, "light"), (360, "dark")]
EVIL = "evil.py:<img src=x onerror=alert(1)></script><script>alert(1)</script>"


def seen(id):
    """Of every trial the same: 24 maps at 32 tokens and at 128, and a table."""
    table = torch.randn(32, 128, generator=torch.Generator().manual_seed(int(id[:6], 16)))
    maps = {n: attention(24, n, int(id[:6], 16)) for n in (32, 128)}
    return Looks(maps, {"table": (table, table.roll(1, 0)), "parameter weight": (table, -table)})


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}: apt-get install chromium")
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of the preset quick, as large as it gets."""
    return page.write(quick(), tmp_path_factory.mktemp("page") / "quick.html", looks_of=seen)


@pytest.fixture
def opened(browser, written):
    """Opens a page from its file; at the end nothing was asked for and nothing went wrong."""
    pages, asked, wrong = [], [], []

    def open_(file=written, width=1400, scheme="light"):
        one = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        one.on("request", lambda request: asked.append(request.url))
        one.on("console", lambda said: wrong.append(said.text))
        one.on("pageerror", lambda error: wrong.append(str(error)))
        one.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        one.goto(file.as_uri())
        pages.append(one)
        if one.locator("#viewer").count():
            one.wait_for_selector("#v-heads button")
        return one

    yield open_
    for one in pages:
        one.close()
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == len(pages)
    assert wrong == []


def test_it_is_small_enough(written):
    assert written.stat().st_size <= 3_000_000
    assert written.read_text().count("var(--figure-ink, ") == 0


def test_nothing_in_it_names_another_place(written):
    text = re.sub(r"<script.*?</script>", "", written.read_text(), flags=re.S)
    links = re.findall(r'\b(?:src|href|action|data|poster)\s*=\s*"([^"]*)"', text)
    assert links and all(link.startswith(("#", "data:image/png")) for link in links)
    assert "@import" not in text and re.findall(r"url\((?!#)", text) == []


class Balance(HTMLParser):
    """Every element is closed where it was opened, and every id is there once."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.names, self.links = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag in ("a", "use") else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open[-3:], self.getpos())


def whole(text):
    parser = Balance()
    parser.feed(text)
    twice = {id for id in parser.ids if parser.ids.count(id) > 1}
    assert parser.open == [] and twice == set()
    assert {link[1:] for link in parser.links} <= {*parser.ids}
    assert parser.names.count("h1") == parser.names.count("main") == 1
    assert "{{" not in text


def test_it_is_whole_html(written):
    whole(written.read_text())
    whole(page.html(empty(), looks_of=lambda _: None))


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_nothing_is_wider_than_the_screen(opened, width, scheme):
    one = opened(width=width, scheme=scheme)
    assert one.evaluate("document.documentElement.scrollWidth") <= width
    one.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert one.evaluate("document.documentElement.scrollWidth") <= width


CONTRAST = """() => {
  const channel = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const parse = (s) => s.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility()) continue;
    if (e.closest("script, style, title, desc, .skip")) continue;
    const style = getComputedStyle(e), svg = e.closest("svg");
    const [a, b] = [light(parse(svg ? style.fill : style.color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, e.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(opened, scheme):
    one = opened(scheme=scheme)
    found = one.evaluate(CONTRAST)
    assert len(found) > 300
    assert [what for what in found if what[0] < 4.5] == []


def test_light_and_dark_can_be_chosen(opened):
    one = opened(scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = one.evaluate(colour)
    one.click("#theme")
    assert one.evaluate(colour) == "rgb(255, 255, 255)" != dark
    assert one.inner_text("#theme") == "Dark"
    one.click("#theme")
    assert one.evaluate(colour) == dark


def picture(one):
    return one.evaluate("document.querySelector('#v-map').toDataURL()")


def trial_of(method):
    comparison = quick()
    return comparison.row(method).outcomes[0].trial.id


def test_the_viewer_shows_another_head_and_reads_its_weights(opened):
    one = opened()
    first = picture(one)
    one.select_option("#v-method", label="rope")
    one.select_option("#v-length", label="32 tokens")
    one.select_option("#v-layer", label="2")
    one.select_option("#v-head", label="2")
    one.wait_for_selector('button[aria-label="layer 2, head 2"][aria-pressed="true"]')
    assert picture(one) != first
    maps = seen(trial_of("rope")).maps[32]
    weights = maps.maps.float() / 255 * maps.tops[..., None]
    at = maps.which.index((1, 1))
    one.locator("#v-map").scroll_into_view_if_needed()
    box = one.locator("#v-map").bounding_box()
    side = box["width"] / 32
    assert side == round(side)
    one.mouse.move(box["x"] + 20.5 * side, box["y"] + 7.5 * side)
    said = one.inner_text("#v-read")
    assert said.startswith("Query 7 (token 0), key 20 (token 6): weight ")
    numbers = [float(x) for x in re.findall(r"\d+\.\d+(?:e-?\d+)?", said)]
    assert numbers[0] == pytest.approx(float(weights[at, 7, 20]), abs=2e-4)
    assert numbers[1] == pytest.approx(float(maps.tops[at, 7]), abs=1e-4)
    one.focus("#v-stage")
    one.keyboard.press("ArrowRight")
    one.keyboard.press("ArrowDown")
    assert one.inner_text("#v-read").startswith("Query 8 (token 1), key 21 (token 0)")


def test_heads_are_chosen_by_the_keyboard_alone(opened):
    one = opened(width=360)
    first = picture(one)
    one.focus('#v-heads button[tabindex="0"]')
    one.keyboard.press("ArrowRight")
    one.wait_for_selector('button[aria-label="layer 1, head 2"][aria-pressed="true"]:focus')
    assert one.input_value("#v-head") == "1" and picture(one) != first
    one.keyboard.press("ArrowDown")
    one.wait_for_selector('button[aria-label="layer 2, head 2"][aria-pressed="true"]:focus')
    assert one.locator('#v-heads button[tabindex="0"]').count() == 1


def test_512_tokens_are_shown_weight_by_weight(opened, tmp_path):
    comparison = quick(seeds=1, failing=False, methods=("rope",), lengths=(128,))
    looks = Looks({512: attention(4, 512)})
    one = opened(page.write(comparison, tmp_path / "long.html", looks_of=lambda _: looks))
    size = one.evaluate("(({width, height, clientWidth}) => [width, height, clientWidth])"
                        "(document.querySelector('#v-map'))")  # fmt: skip
    assert size == [512, 512, 512]
    assert one.inner_text("#v-note") == "4 of 24 heads were kept at this length."
    assert one.is_visible("#v-right") and one.locator("#v-right").bounding_box()["width"] == 32
    one.click("#v-in")
    assert one.evaluate("document.querySelector('#v-map').clientWidth") == 1024
    assert one.evaluate("document.documentElement.scrollWidth") <= 1400


def saved(one, button):
    # A browser lets a page save ten files in a second, and no more.
    one.wait_for_timeout(110)
    with one.expect_download() as download:
        button.click()
    return Path(download.value.path()).read_text(), download.value.suggested_filename


@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (360, "light")])
def test_every_picture_is_saved_as_vector(opened, width, scheme):
    one = opened(width=width, scheme=scheme)
    buttons = [*one.locator(".figures button").all(), *one.locator(".panel button").all()[:3]]
    assert len(buttons) >= 9
    for button in [*buttons, one.locator("#v-save")]:
        text, name = saved(one, button)
        root = xml.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and name.endswith(".svg")
        assert (
            "var(" not in text and "light-dark(" not in text and "currentColor" not in root.attrib
        )
        assert root.get("width") and root.get("height") and root.get("viewBox")
        assert re.findall(r'\bhref="(?!#|data:image/png;base64,)', text) == []
    assert name == "attention-learned-layer-1-head-1-32-tokens.svg"


def test_a_name_is_text_whatever_is_in_it(opened, tmp_path, monkeypatch):
    comparison = quick(failing=False)
    fields = {"about": EVIL, "name": EVIL}
    evil = comparison.plan.model_copy(update=fields)
    outcomes = {}
    for id, outcome in comparison.outcomes.items():
        if outcome.trial.position == "none":
            outcome = outcome.model_copy(
                update={"status": "failed", "reason": EVIL, "result": None}
            )
        outcomes[id] = outcome
    found = type(comparison)(evil, outcomes)
    for row in found.rows:
        if row.method == "rope":
            object.__setattr__(row, "method", EVIL)
    # Figures draw from the plan, whose names are those of methods that exist.
    monkeypatch.setattr(page.figures, "every", lambda _: [])
    one = opened(page.write(found, tmp_path / "evil.html", looks_of=seen))
    assert one.title() == f"{EVIL} · Ordinate"
    assert one.locator("h1").inner_text() == EVIL
    assert one.locator("img").count() == 0 and one.locator("script").count() == 2
    one.select_option("#v-method", label=EVIL)
    one.wait_for_selector('#v-map[aria-label*="onerror"]')
    text, _ = saved(one, one.locator("#v-save"))
    assert EVIL in xml.fromstring(text)[0].text


def test_a_script_put_into_it_does_not_run(browser, written, tmp_path):
    """Should a text ever escape us, the browser still runs no script but ours."""
    broken = written.read_text().replace("<main>", "<main><script>window.ran = 1</script>", 1)
    (tmp_path / "broken.html").write_text(broken)
    one = browser.new_page()
    one.goto((tmp_path / "broken.html").as_uri())
    assert one.evaluate("window.ran") is None
    one.close()


def test_it_prints(opened):
    one = opened(scheme="dark")
    pdf = one.pdf(format="A4")
    assert pdf.startswith(b"%PDF") and 4 <= pdf.count(b"/Type /Page\n") <= 30
    one.emulate_media(media="print")
    assert one.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not one.is_visible("#theme") and one.is_visible("#v-map")


def test_it_is_read_without_scripts(browser, written):
    context = browser.new_context(java_script_enabled=False)
    one = context.new_page()
    one.goto(written.as_uri())
    assert one.is_visible("noscript .state")
    assert not one.is_visible("#viewer") and not one.is_visible("#theme")
    assert one.locator(".figures svg:visible").count() >= 6
    context.close()


def test_an_unfinished_comparison_has_a_page_too(opened, tmp_path):
    file = page.write(unfinished(), tmp_path / "page.html", looks_of=lambda _: None, refresh=99)
    assert '<meta http-equiv="refresh" content="99">' in file.read_text()
    one = opened(file)
    assert one.is_visible("text=28 of 42 trials are done.")
    assert one.locator("text=not run yet").count() >= 7
    assert one.locator("#attention-maps").count() == 0


def test_a_finished_page_stays(written):
    assert 'http-equiv="refresh' not in written.read_text()
    assert page._refresh(quick(), 4) == ""


def test_nothing_run_yet_is_a_page(opened, tmp_path):
    one = opened(page.write(empty(), tmp_path / "empty.html", looks_of=lambda _: None))
    assert one.is_visible("text=0 of 42 trials are done.")


def test_many_cells_fit_too(opened, tmp_path):
    small = Looks({32: attention(8, 32)})
    file = page.write(grid(), tmp_path / "grid.html", looks_of=lambda _: small)
    assert file.stat().st_size <= 3_000_000
    whole(file.read_text())
    for width in (360, 1400):
        one = opened(file, width=width)
        assert one.evaluate("document.documentElement.scrollWidth") <= width
        one.select_option("#v-cell", label="16 layers, 4 epochs")
        assert one.is_visible("#v-cell")


@pytest.mark.parametrize("made", [quick, grid, depth])
def test_the_configuration_is_the_plan(made):
    plan = made().plan
    assert changed(None, tomllib.loads(record.toml(plan))) == plan


@pytest.mark.parametrize("goal", [0.9, None])
def test_the_command_repeats_the_plan(tmp_path, monkeypatch, goal):
    plan = changed(quick().plan, {"recipe.goal": goal, "about": 'a "quote" \\ and ü'})
    (tmp_path / "mine.toml").write_text(record.toml(plan))
    monkeypatch.chdir(tmp_path)
    given = []
    monkeypatch.setattr(compare, "made", lambda plan, *_: given.append(plan) or 0)
    _, *arguments = record.command(plan, "mine.toml").split()
    assert main(arguments) == 0 and given == [plan]


def test_the_same_comparison_is_the_same_page(written):
    assert page.html(quick(), looks_of=seen) == written.read_text()
