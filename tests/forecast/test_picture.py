"""The picture of a forecast: the deadline, the policies and their figures, as text in an SVG and as pixels in a PNG."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Annotation, Text
from tests.forecast.builders import HOUR, forecast, task

from spotwright.forecast import picture
from spotwright.forecast.forecast import Forecast
from spotwright.forecast.markets import Source
from spotwright.forecast.picture import draw
from spotwright.model.pools import Trace

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def planned() -> Forecast:
    """A plan with a deadline."""
    return forecast(task(work=3 * HOUR, saves=True, boot=180.0), deadline=8 * HOUR)


@pytest.fixture(scope="module")
def svg(planned: Forecast) -> bytes:
    return draw(planned, "svg")


@pytest.fixture(scope="module")
def png(planned: Forecast) -> bytes:
    return draw(planned, "png")


def texts(document: bytes, tag: str = "text") -> list[str]:
    return [element.text or "" for element in ET.fromstring(document).iter(f"{SPACE}{tag}")]  # noqa: S314 - our own


def never() -> Forecast:
    """A run that never ends: spot is never up, and there is no on-demand."""
    return forecast(task(on_demand=False), deadline=4 * HOUR, source=Source({"down": Trace(600.0, (0,))}))


def crowded() -> Forecast:
    """Medians that lie close together, two of them in one place."""
    return forecast(task(work=3 * HOUR, boot=180.0), deadline=7 * HOUR)


def long() -> Forecast:
    """Names, durations and prices as long as they get."""
    tasks = task("a", 90 * HOUR, saves=True), task("b", 200 * HOUR, (0,), saves=True)
    found = forecast(*tasks, deadline=400 * HOUR, certainty=0.9999)
    return found._replace(pipeline="W" * 80, supply="windows of " + "zone " * 40, prices=("a-pool 1,234.56 USD/h",) * 9)


def chart(planned: Forecast) -> Axes:
    """The chart alone."""
    figure = Figure((12.8, 7.2), dpi=150)
    FigureCanvasAgg(figure)
    picture._chart(figure, planned)
    figure.draw_without_rendering()  # puts texts in their places
    return figure.axes[0]


def test_the_svg_has_the_deadline_the_policies_and_their_figures_as_text(planned: Forecast, svg: bytes) -> None:
    found = texts(svg)
    assert "deadline 8h00m" in found
    assert {"on-demand only", "spot, then on-demand", "deadline", "Uniform Progress", "\N{BLACK STAR} best"} <= set(
        found
    )
    assert f"{planned.policy('on-demand').cost.p50:,.2f}" in found
    assert {"cost of the run, USD", "time from the start to the end of the run", "3 h"} <= set(found)


def test_the_title_says_what_follows_also_to_those_who_cannot_see_it(svg: bytes) -> None:
    [title] = texts(svg, "title")
    assert title in texts(svg)
    assert title.startswith("tested: done within 8h00m for ")


def test_a_name_with_signs_of_xml_or_of_formulas_is_written_as_it_is(planned: Forecast) -> None:
    assert any(text.startswith("<a> & $b$: ") for text in texts(draw(planned._replace(pipeline="<a> & $b$"), "svg")))


def test_a_name_in_letters_that_the_font_lacks_is_drawn_without_a_warning(planned: Forecast) -> None:
    assert any(text.startswith("模型: ") for text in texts(draw(planned._replace(pipeline="模型"), "svg")))


def test_the_same_plan_is_the_same_file_whatever_style_the_user_has_chosen(
    planned: Forecast, svg: bytes, png: bytes
) -> None:
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "savefig.dpi": 40}):
        assert draw(planned, "svg") == svg
        assert draw(planned, "png") == png
        assert mpl.rcParams["font.size"] == 30


def test_the_png_has_the_size_of_a_slide_and_the_deadline_in_red(png: bytes) -> None:
    pixels = imread(io.BytesIO(png), format="png")
    assert pixels.shape[:2] == (1080, 1920)
    red, green, blue = pixels[:, :, 0], pixels[:, :, 1], pixels[:, :, 2]
    assert ((red > 0.67) & (green < 0.28) & (blue < 0.32)).sum() > 500


@pytest.mark.parametrize("plan", [crowded, long])
def test_names_of_policies_stand_in_the_chart_and_not_over_each_other(plan: Callable[[], Forecast]) -> None:
    axes = chart(plan())
    names = [text for text in axes.texts if isinstance(text, Annotation)]
    assert len(names) == 4
    boxes = [Text.get_window_extent(name) for name in names]  # without the lines that lead to the medians
    assert all(axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max) for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("plan", [crowded, long, never])
def test_no_text_leaves_the_picture(plan: Callable[[], Forecast]) -> None:
    planned = plan()
    figure = chart(planned).get_figure()
    assert isinstance(figure, Figure)
    picture._page(figure, picture._title(planned), planned)
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in figure.findobj(Text) if text.get_text()}
    assert [text for text, box in boxes.items() if box.x0 < 0 or box.y0 < 0 or box.x1 > 1920 or box.y1 > 1080] == []


def test_a_run_that_never_ends_has_no_marks_and_a_title_that_says_so() -> None:
    plan = never()
    assert [line for line in chart(plan).lines if line.get_marker() == "o"] == []
    assert any("no policy is done" in text for text in texts(draw(plan, "svg")))
