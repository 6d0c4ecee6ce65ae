"""The picture of a forecast: the same shapes as SVG and as PNG, with the deadline, the policies and their figures."""

from __future__ import annotations

import io
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tests.forecast.builders import HOUR, forecast, task

from spotwright.errors import InputError
from spotwright.forecast.model import Forecast
from spotwright.forecast.picture.chart import chart
from spotwright.forecast.picture.png import png
from spotwright.forecast.picture.svg import svg
from spotwright.forecast.supply import Source
from spotwright.model.traces import Trace

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def planned() -> Forecast:
    """A plan with a deadline."""
    return forecast(task(work=3 * HOUR, saves=True, boot=180.0), deadline=8 * HOUR)


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(document).iter(f"{SPACE}text")]  # noqa: S314 - our own


def test_the_svg_is_a_document_with_the_deadline_the_policies_and_their_figures(planned: Forecast) -> None:
    found = texts(svg(chart(planned)))
    assert "deadline 8h00m" in found
    assert {"on-demand only", "spot, then on-demand", "deadline", "Uniform Progress"} <= set(found)
    assert f"{planned.policy('on-demand').cost.p50:,.2f}" in found
    assert "cost of the run, USD" in found


def test_a_name_with_signs_of_xml_is_written_as_it_is(planned: Forecast) -> None:
    assert any("<a> & b" in text for text in texts(svg(chart(planned._replace(pipeline="<a> & b")))))


def test_the_same_plan_is_the_same_document(planned: Forecast) -> None:
    assert svg(chart(planned)) == svg(chart(planned))


def test_texts_of_the_chart_do_not_leave_the_picture(planned: Forecast) -> None:
    picture = chart(planned)
    for element in ET.fromstring(svg(picture)).iter(f"{SPACE}text"):  # noqa: S314 - our own
        assert 0 < float(element.attrib["x"]) < picture.width
        assert 0 < float(element.attrib["y"]) < picture.height


def test_the_png_has_the_size_of_a_slide_and_the_deadline_in_red(planned: Forecast) -> None:
    from PIL import Image

    image = Image.open(io.BytesIO(png(chart(planned)))).convert("RGB")
    assert image.size == (1920, 1080)
    pixels = np.asarray(image)
    assert ((pixels[:, :, 0] > 170) & (pixels[:, :, 1] < 70) & (pixels[:, :, 2] < 80)).sum() > 500


def test_without_pillow_the_message_says_what_to_install(planned: Forecast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r"pip install 'spotwright\[picture\]', or name a .svg file"):
        png(chart(planned))


def test_a_run_that_never_ends_can_be_drawn() -> None:
    never = forecast(task(on_demand=False), deadline=4 * HOUR, source=Source({"down": Trace(600.0, (0,))}))
    assert any("no policy is done" in text for text in texts(svg(chart(never))))
