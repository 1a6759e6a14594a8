"""Tests of the report in Chromium: tabs, rotation, sorting and themes, at the sizes of a desktop and a phone."""

import shutil
import time
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from hkrr import HyperKernelRidge
from hkrr.reporting import write_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip(
        "Chromium and its driver are not installed (Debian: chromium, chromium-driver)", allow_module_level=True
    )
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium, which controls the browser, is not installed")

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402  # imported after the check for the browser
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

DESKTOP, PHONE = (1280, 900), (360, 740)
NAMES = ["area", "age", "</script><script>document.title='gone'</script>", "a long name " * 12, "floor"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 5)), columns=NAMES)
    y = pd.Series(np.sin(X["area"] + X["age"]) + 0.3 * X["floor"] ** 2, name="price")
    model = HyperKernelRidge(3, random_state=0, max_iter=40).fit(X, y)
    return write_report(model, X, y, tmp_path_factory.mktemp("report") / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    with warnings.catch_warnings():
        # selenium closes its sockets late, which causes a ResourceWarning.
        warnings.simplefilter("ignore", ResourceWarning)
        found.quit()


def open_page(browser, page, size=DESKTOP, scheme="light"):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE},
    )
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(page)
    return browser


def console_messages(browser):
    return [entry["message"] for entry in browser.get_log("browser")]


def pixels(browser):
    return browser.execute_script("return document.querySelector('canvas').toDataURL()")


def background(browser):
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def wait_until(condition):
    """Wait until the condition holds, for at most 20 seconds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def click(browser, element):
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    element.click()


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        (PHONE, "dark"),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [(PHONE, "light"), (DESKTOP, "light"), (DESKTOP, "dark")]
        ),
    ],
)
def test_tabs_fit_the_window_and_log_nothing(browser, page, size, scheme):
    open_page(browser, page, size, scheme)
    for box in browser.find_elements(By.CSS_SELECTOR, "[data-tabs]"):
        panels = box.find_elements(By.CSS_SELECTOR, ".panel")
        for k, tab in enumerate(box.find_elements(By.CSS_SELECTOR, "[role=tab]")):
            click(browser, tab)
            assert [panel.is_displayed() for panel in panels] == [i == k for i in range(len(panels))]
            assert tab.get_attribute("aria-selected") == "true"
            fits = "return document.documentElement.scrollWidth <= window.innerWidth"
            assert browser.execute_script(fits)
    for summary in browser.find_elements(By.TAG_NAME, "summary"):
        if summary.is_displayed():
            click(browser, summary)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert browser.title == "What price depends on"  # the script in a column name did not run
    assert console_messages(browser) == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_charts_and_comparison_are_not_cut_off(browser, page, size):
    open_page(browser, page, size)
    cut = """return [...document.querySelectorAll('svg.chart text')].filter((text) => {
      const [box, chart] = [text, text.closest('svg.chart')].map((each) => each.getBoundingClientRect());
      return box.width > 0 && (box.left < chart.left - 1 || box.right > chart.right + 1);
    }).map((text) => text.textContent)"""
    assert browser.execute_script(cut) == []
    wide = "const box = document.querySelector('#compare .scroll'); return [box.scrollWidth, box.clientWidth]"
    needed, there = browser.execute_script(wide)
    assert needed <= there


def test_theme_follows_the_system_and_then_the_button(browser, page):
    open_page(browser, page, scheme="light")
    light, surface = background(browser), pixels(browser)
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    wait_until(lambda: background(browser) != light)
    wait_until(lambda: pixels(browser) != surface)
    button = browser.find_element(By.ID, "theme")
    assert button.text == "Light"
    click(browser, button)
    assert background(browser) == light
    assert button.text == "Dark"
    browser.refresh()
    assert background(browser) != light  # the chosen theme is not stored


def test_surface_rotates(browser, page):
    open_page(browser, page)
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)
    seen = [pixels(browser)]
    ActionChains(browser).drag_and_drop_by_offset(canvas, 80, 30).perform()
    seen.append(pixels(browser))
    canvas.send_keys(Keys.ARROW_RIGHT)
    seen.append(pixels(browser))
    canvas.send_keys(Keys.ARROW_UP)
    seen.append(pixels(browser))
    for name in ("Rotate left", "Tilt down"):
        click(browser, browser.find_element(By.CSS_SELECTOR, f"button[aria-label='{name}']"))
        seen.append(pixels(browser))
    assert all(a != b for a, b in pairwise(seen))
    canvas.send_keys(Keys.HOME)
    assert pixels(browser) == seen[0]
    click(browser, browser.find_element(By.CSS_SELECTOR, ".surface input"))
    assert pixels(browser) != seen[0]  # the rows are hidden


def test_surface_rotates_by_touch(browser, page):
    open_page(browser, page, PHONE)
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)
    box = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", canvas)
    at = {"x": box["x"] + 100, "y": box["y"] + 100}
    before = pixels(browser)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    for kind, points in (
        ("touchStart", [at]),
        ("touchMove", [{**at, "x": at["x"] + 30}]),
        ("touchMove", [{**at, "x": at["x"] + 90}]),
        ("touchEnd", []),
    ):
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    wait_until(lambda: pixels(browser) != before)


def test_selecting_another_pair_of_directions(browser, page):
    open_page(browser, page)
    before = pixels(browser)
    options = browser.find_elements(By.CSS_SELECTOR, "select option")
    assert len(options) == 3
    click(browser, options[2])
    assert pixels(browser) != before
    hidden = "return [...document.querySelectorAll('figure.flat')].map((figure) => figure.hidden)"
    assert browser.execute_script(hidden) == [True, True, False]


def test_arrow_keys_move_between_tabs(browser, page):
    open_page(browser, page)
    first, second, *_ = browser.find_elements(By.CSS_SELECTOR, "[role=tab]")
    first.send_keys(Keys.ARROW_RIGHT)
    assert second.get_attribute("aria-selected") == "true"
    assert browser.switch_to.active_element == second
    second.send_keys(Keys.ARROW_LEFT)
    assert browser.switch_to.active_element == first


def test_table_sorts_by_number(browser, page):
    open_page(browser, page)
    table = browser.find_element(By.CSS_SELECTOR, "#wrong table")
    heads = table.find_elements(By.CSS_SELECTOR, "th")
    values = (
        "return [...arguments[0].tBodies[0].rows].map((row) => "
        "Number(row.cells[arguments[1]].dataset.value ?? row.cells[arguments[1]].textContent))"
    )
    for column in (0, 3):  # row number and error
        for order in ("descending", "ascending"):
            click(browser, heads[column].find_element(By.TAG_NAME, "button"))
            assert heads[column].get_attribute("aria-sort") == order
            found = browser.execute_script(values, table, column)
            assert len(set(found)) > 10
            assert found == sorted(found, reverse=order == "descending")


def test_page_without_javascript(browser, page):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, page)
        assert len(browser.find_elements(By.CSS_SELECTOR, ".panel > h3")) > 5
        assert all(figure.is_displayed() for figure in browser.find_elements(By.TAG_NAME, "figure"))
        assert "needs JavaScript" in browser.find_element(By.TAG_NAME, "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
