"""The explorer in a real browser: what people do, and what the page then says and paints, against NumPy's numbers."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from numpy_vit.models import vit
from numpy_vit.views import attention_maps
from numpy_vit.views.colour_maps import diverging, sequential
from numpy_vit.views.report.page import page

ActionChains = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Select = pytest.importorskip("selenium.webdriver.support.select").Select

pytestmark = pytest.mark.browser

T, ROWS, COLUMNS = 2, 4, 3  # prefix tokens; the grid


def percent(value: float) -> str:
    """As the page writes weights."""
    return f"{100 * value:#.3g}".rstrip(".") + " %"


def where(token: int) -> str:
    return (
        ["class token", "register 0"][token]
        if token < T
        else f"patch ({(token - T) // COLUMNS}, {(token - T) % COLUMNS})"
    )


def hottest(row: np.ndarray) -> int:
    return T + int(np.abs(row[T:]).argmax())


def test_the_first_view_is_the_class_token_in_the_last_block(explored_page, small):
    made = small(reg_tokens=1)
    true = attention_maps.weights(vit, made.params, made.images[:1], made.config)[0, 1].mean(axis=0)[0]  # NumPy's own
    shown = explored_page.explored[0].weights.values[1].mean(axis=0)[0]
    text = explored_page.says(f"class token → {where(hottest(shown))}: {percent(shown[hottest(shown)])}")
    np.testing.assert_allclose(shown[hottest(shown)], true[hottest(shown)], rtol=0.01)
    assert f"class token {percent(true[0])}, register 0 {percent(true[1])}" in text, "prefix tokens are exact"
    explored_page.paint_only()
    explored_page.shows(shown, sequential)


def test_a_click_makes_the_patch_the_one_that_looks(explored_page):
    explored_page.paint_only()
    before = explored_page.colours()
    explored_page.click(2, 1)
    token = T + 2 * COLUMNS + 1
    row = explored_page.explored[0].weights.values[1].mean(axis=0)[token]
    explored_page.says(f"patch (2, 1) → patch (2, 1): {percent(row[token])}", f"Most goes to {where(hottest(row))}")
    explored_page.shows(row, sequential)
    assert Select(explored_page.element("token")).first_selected_option.text == "patch (2, 1)"
    assert np.abs(explored_page.colours() - before).max() > 20


def test_a_tap_in_the_window_of_a_phone_does_so_too(explored_page):
    explored_page.show(360, 740)
    explored_page.paint_only()
    explored_page.driver.execute_script("""
        window.heard = [];
        document.getElementById("map").addEventListener("pointerdown", (event) => heard.push(event.pointerType));""")
    explored_page.click(1, 2, "touch")
    row = explored_page.explored[0].weights.values[1].mean(axis=0)[T + 1 * COLUMNS + 2]
    explored_page.says(f"patch (1, 2) → {where(hottest(row))}: ", f"Most goes to {where(hottest(row))}")
    explored_page.shows(row, sequential)
    assert Select(explored_page.element("token")).first_selected_option.text == "patch (1, 2)"
    assert explored_page.driver.execute_script("return heard") == ["touch"]


def test_block_head_and_token_change_the_map(explored_page):
    explored_page.paint_only()
    values = explored_page.explored[0].weights.values
    Select(explored_page.element("head")).select_by_visible_text("head 1")
    explored_page.says("block 1, head 1, class token")
    explored_page.shows(values[1, 1, 0], sequential)
    explored_page.element("block").send_keys(Keys.ARROW_LEFT)
    explored_page.says("block 0, head 1, class token")
    assert explored_page.element("block-number").text == "0"
    explored_page.shows(values[0, 1, 0], sequential)
    Select(explored_page.element("token")).select_by_visible_text("register 0")
    explored_page.says("block 0, head 1, register 0")
    explored_page.shows(values[0, 1, 1], sequential)
    Select(explored_page.element("token")).select_by_value("-1")
    explored_page.says("block 0, head 1, all patches")
    explored_page.shows(values[0, 1, T:].mean(axis=0), sequential)


def test_the_gradient_of_the_same_tensor(explored_page):
    explored_page.paint_only()
    one = explored_page.explored[0]
    assert one.gradients is not None
    label = explored_page.element("gradients-name").text
    assert label == f"gradient of the logit of {one.top[0][0]}", "a class's name is text, whatever it says"
    explored_page.element("gradients").click()
    row = one.gradients.values[1].mean(axis=0)[0]
    sign = "+" if row[hottest(row)] > 0 else "−"
    explored_page.says(f"class token → {where(hottest(row))}: {sign}", "The strongest is")
    explored_page.shows(row, diverging)
    assert explored_page.element("least").text.startswith("−")
    explored_page.click(0, 0)  # the last block's other rows are not read by the head
    explored_page.says("patch (0, 0)", "No gradient flows through this row")
    explored_page.element("weights").click()
    explored_page.says("Most goes to")


def test_another_image(explored_page):
    explored_page.paint_only()
    assert [option.text for option in Select(explored_page.element("picture")).options] == [
        "image 0", "image 1", "image 2",
    ]  # fmt: skip
    Select(explored_page.element("picture")).select_by_visible_text("image 2")
    explored_page.shows(explored_page.explored[2].weights.values[1].mean(axis=0)[0], sequential)
    top = explored_page.explored[2].top[0][0]
    assert f"The model says: {top}" in explored_page.element("answer").text
    assert "It is: owl." in explored_page.element("answer").text


# Unpacking waits until the test lets it go on; a few frames later, all that follows has been done.
HOLD = """
const unpack = Maps.unpack;
window.held = {};
Maps.unpack = async (data, entry) => {
  const maps = await unpack(data, entry);
  await new Promise((go) => { held[entry.name] = go; });
  return maps;
};"""
RELEASE = """
const [name, done] = arguments;
held[name]();
let frames = 10;
const wait = () => (frames-- ? requestAnimationFrame(wait) : done());
wait();"""


@pytest.mark.parametrize(("choices", "slow"), [((1, 0), [1]), ((1, 2), [2, 1]), ((2, 1, 2), [1, 2])])
def test_the_last_of_fast_choices_holds(explored_page, choices, slow):
    """Whichever is unpacked first: `slow` names the images in the order in which they are ready."""
    explored_page.paint_only()
    driver, last = explored_page.driver, choices[-1]
    driver.execute_script(HOLD)
    for image in choices:
        Select(explored_page.element("picture")).select_by_visible_text(f"image {image}")
    explored_page.wait(lambda _: driver.execute_script("return Object.keys(held).length") == len(slow))
    for image in slow:
        driver.execute_async_script(RELEASE, f"image {image}")
    one = explored_page.explored[last]
    explored_page.shows(one.weights.values[1].mean(axis=0)[0], sequential)
    assert Select(explored_page.element("picture")).first_selected_option.text == f"image {last}"
    assert explored_page.element("answer").text.startswith(says_of(one))
    assert len({says_of(each) for each in explored_page.explored}) == 3
    explored_page.click(0, 0)  # and it stays so
    explored_page.shows(one.weights.values[1].mean(axis=0)[T], sequential)
    assert Select(explored_page.element("picture")).first_selected_option.text == f"image {last}"


def test_an_image_that_cannot_be_unpacked_is_not_chosen(explored_page):
    before = explored_page.element("answer").text
    explored_page.driver.execute_script("window.kept = DecompressionStream; delete window.DecompressionStream")
    Select(explored_page.element("picture")).select_by_visible_text("image 1")
    explored_page.says("cannot be unpacked")
    assert Select(explored_page.element("picture")).first_selected_option.text == "image 0"
    assert explored_page.element("answer").text == before
    explored_page.driver.execute_script("window.DecompressionStream = kept")
    Select(explored_page.element("picture")).select_by_visible_text("image 1")
    explored_page.says("block 1, mean of heads")
    assert explored_page.element("answer").text.startswith(says_of(explored_page.explored[1]))


def says_of(one) -> str:
    return "The model says: " + ", ".join(f"{name} ({100 * share:.1f} %)" for name, share in one.top)


def test_a_tile_of_the_overview_is_a_short_cut(explored_page):
    tiles = explored_page.element("all")
    x, y = (
        24 + 1.5 * 60 - tiles.size["width"] / 2,
        20 + 5 - tiles.size["height"] / 2,
    )  # the second column, the first row
    ActionChains(explored_page.driver).move_to_element_with_offset(tiles, x, y).click().perform()
    explored_page.says("block 0, head 1, class token")


def keys(driver, *pressed: str) -> None:
    ActionChains(driver).send_keys(*pressed).perform()


def test_the_keyboard_alone_is_enough(explored_page):
    for _ in range(40):
        keys(explored_page.driver, Keys.TAB)
        if explored_page.driver.switch_to.active_element.get_attribute("id") == "map":
            break
    else:
        pytest.fail("Tab never comes to the image")
    outline = explored_page.driver.execute_script("return getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px", "the focus is seen"
    values = explored_page.explored[0].weights.values[1].mean(axis=0)
    keys(explored_page.driver, Keys.ARROW_RIGHT)  # from the middle, (2, 1)
    explored_page.says("patch (2, 2) → ")
    keys(explored_page.driver, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_UP)  # the edge holds
    query = T + 2
    explored_page.says(f"patch (0, 2) → {where(hottest(values[query]))}")
    ActionChains(explored_page.driver).key_down(Keys.SHIFT).send_keys(Keys.ARROW_LEFT).key_up(Keys.SHIFT).perform()
    explored_page.says(f"patch (0, 2) → patch (0, 1): {percent(values[query, T + 1])}")
    keys(explored_page.driver, Keys.ESCAPE)
    explored_page.says("class token → ")
    keys(explored_page.driver, Keys.TAB, Keys.TAB, Keys.TAB, Keys.ARROW_LEFT)  # image, token, block
    explored_page.says("block 0, mean of heads, class token")
    keys(explored_page.driver, Keys.TAB, Keys.ARROW_DOWN)
    explored_page.says("block 0, head 0, class token")
    keys(explored_page.driver, Keys.TAB, Keys.ARROW_DOWN)
    explored_page.says("The strongest is")


def brightness(driver) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("L")).astype(float)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [(1200, 900), (360, 740)])
def test_every_screen_shows_it(explored_page, tmp_path, size, dark):
    explored_page.show(*size, dark=dark)
    driver = explored_page.driver
    width, inner = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner == size[0]
    driver.execute_script("document.getElementById('explorer').scrollIntoView()")
    explored_page.says("class token → ")
    shown = brightness(driver)
    driver.save_screenshot(str(tmp_path / "shot.png"))
    assert shown.std() > 15, "not blank"
    assert (np.median(shown) < 60) == dark
    box = explored_page.element("map").size
    assert 0.9 < box["width"] / box["height"] / (12 / 8) < 1.1
    for identity in ("picture", "token", "head"):
        assert explored_page.element(identity).size["height"] >= (44 if size[0] < 500 else 36), (
            "wide enough for a finger"
        )


def test_small_values_are_lifted(explored_page):
    explored_page.paint_only()
    row = explored_page.explored[0].weights.values[1].mean(axis=0)[0]
    explored_page.element("lifted").click()
    explored_page.shows(row, lambda shares: sequential(np.sqrt(shares)))


def test_a_page_without_an_explorer_runs_without_an_error(driver, tmp_path, contents):
    (tmp_path / "bare.html").write_bytes(page(contents(explored=(), offered=0)))
    driver.get((tmp_path / "bare.html").as_uri())
    assert driver.find_element("id", "shapes").text
    assert not driver.get_log("browser")


def test_an_error_would_be_seen(driver, tmp_path, contents):
    """The negative control of every look at the log: a script that is not ours does not run, and the log says so."""
    text = page(contents()).decode().replace("</main>", "<script>document.title = 'broken in'</script></main>")
    (tmp_path / "changed.html").write_text(text)
    driver.get((tmp_path / "changed.html").as_uri())
    assert driver.title == "pets"
    assert [entry["level"] for entry in driver.get_log("browser")] == ["SEVERE"]
