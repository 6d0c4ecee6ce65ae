"""The picture of a forecast: cost against end, with the median and the 90th percentile of every policy marked.

It is made for a slide: the conclusion is the title, the deadline is a line, the figures are beside the chart. Matplotlib is an
extra, so it is imported only for drawing; global figures and the user's styles are not used.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from spotwright.forecast.forecast import DEADLINE, ON_DEMAND, SPOT, UNIFORM_PROGRESS, Forecast, PolicyForecast
from spotwright.forecast.report import NAMES, length, money, share, unit
from spotwright.views.text import plural, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

__all__ = ["draw"]

_WIDTH, _HEIGHT, _DPI = 12.8, 7.2, 150  # inches; 1920 x 1080 pixels
_CHART = (0.082, 0.157, 0.596, 0.64)  # left, bottom, width and height as shares of the picture
_COLOURS = {ON_DEMAND: "#4b5563", SPOT: "#d97706", DEADLINE: "#0b63b0", UNIFORM_PROGRESS: "#0d8a6a"}
_INK, _GREY, _RULE, _RED = "#1f2933", "#6b7280", "#e5e7eb", "#c0262d"
_HOURS = (1 / 60, 1 / 30, 1 / 12, 1 / 6, 0.25, 0.5, 1, 2, 3, 4, 6, 12, 24, 48, 72, 120, 168, 240)
_CELLS = 190  # per axis of the chart: markets in one cell are one point
_LONGEST = 48  # characters of a pipeline's name, so that the conclusion fits into the title
# Positions of a name, in points from its mark: at four corners, nearest first.
_OFFSETS = tuple((x, y) for far in (11, 26, 42, 58, 74) for x, y in ((11, -far), (-11, -far), (-11, far), (11, far)))
_STYLE = {
    "svg.fonttype": "none",  # text remains searchable and editable text
    "svg.hashsalt": "spotwright",  # otherwise element names are random
    "text.parse_math": False,  # two dollar signs in a name are not a formula
}


def draw(forecast: Forecast, form: Literal["png", "svg"]) -> bytes:
    """Draw a forecast as the content of a file. With the same matplotlib, the same forecast gives the same bytes."""
    with _quiet():
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        title = _title(forecast)
        # Files stay comparable without the date and matplotlib's version.
        metadata = {"Title": title, **({"Software": None} if form == "png" else {"Creator": None, "Date": None})}
        stream = io.BytesIO()
        with style.context(["default", _STYLE]):
            figure = Figure((_WIDTH, _HEIGHT), dpi=_DPI)
            FigureCanvasAgg(figure)  # measures text
            _chart(figure, forecast)
            _page(figure, title, forecast)
            figure.savefig(stream, format=form, metadata=metadata)
    return stream.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep matplotlib's messages about itself off standard error.

    It logs that it builds its font cache, and that the cache is in a temporary folder if the home folder is not writable. It
    warns of each character missing in its font, which is a box in a PNG.
    """
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
            yield
    finally:
        logger.setLevel(level)


def _title(forecast: Forecast) -> str:
    name = shorten(forecast.pipeline, _LONGEST)
    best = forecast.policy(forecast.best)
    on_demand = next((policy for policy in forecast.policies if policy.name == ON_DEMAND), None)
    bound = f" within {length(forecast.deadline)}" if forecast.deadline is not None else ""
    if best.late is not None and best.late > 1 - forecast.certainty + 1e-9:
        return f"{name}: no policy is done{bound} with a certainty of {forecast.certainty * 100:g} %"
    if on_demand is None:
        return f"{name}: done{bound} on spot"
    if best is on_demand or on_demand.cost.mean <= 0:
        return f"{name}: on-demand is the best choice{bound}"
    saved = 1 - best.cost.mean / on_demand.cost.mean
    return f"{name}: done{bound} for {saved:.0%} less than on-demand"


def _chart(figure: Figure, forecast: Forecast) -> None:
    """Draw the axes, the deadline and the policies, the best one on top. A policy that rarely ends has no median to mark."""
    axes = figure.add_axes(_CHART)
    _axes(axes, forecast)
    if forecast.deadline is not None:
        _deadline(axes, forecast.deadline)
    policies = sorted(forecast.policies, key=lambda each: each.name == forecast.best)
    for policy in policies:
        _cloud(axes, policy)
    ending = [policy for policy in policies if math.isfinite(policy.finish.p50)]
    for policy in ending:
        _marks(axes, policy, is_best=policy.name == forecast.best)
    _names(axes, ending[::-1])


def _axes(axes: Axes, forecast: Forecast) -> None:
    """Set hours across and money up, wide enough for all marks, the deadline and most of the markets."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    ends = [end / 3600 for policy in forecast.policies for end in policy.finish[1:]]  # all but the mean
    ends += [forecast.deadline / 3600] if forecast.deadline is not None else []
    found = [end for end in ends if math.isfinite(end)] or [1.0]
    room = (max(found) - min(found)) * 0.08 or max(found) * 0.2
    low, high = max(0.0, min(found) - room), max(found) + room
    step = next((step for step in _HOURS if (high - low) / step <= 9), math.ceil((high - low) / 9))
    axes.set_xlim(math.floor(low / step) * step, high)
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _hours(value)))
    axes.set_xlabel("time from the start to the end of the run", size=11.5, color=_INK, labelpad=8)

    costs = [cost for policy in forecast.policies for cost in (policy.cost.p90, policy.cost.p99) if math.isfinite(cost)]
    amounts = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0.0, 1.05 * max(costs, default=0.0) or 1.0)
    axes.set_ylim(0.0, amounts[-1])
    axes.set_yticks(amounts, [_amount(value, amounts[1]) for value in amounts])
    axes.set_ylabel(f"cost of the run, {unit(forecast)}", size=11.5, color=_INK, labelpad=10)

    axes.grid(axis="y", color=_RULE)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_GREY, labelsize=11)
    axes.tick_params("x", pad=6)
    axes.tick_params("y", length=0, pad=10)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(_GREY)


def _amount(value: float, step: float) -> str:
    """A tick label of money, with as many decimals as the tick step needs."""
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def _hours(value: float) -> str:
    """A tick label of time."""
    minutes = round(value * 60)
    if minutes < 60 and minutes:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes // 60}h{minutes % 60:02d}"


def _deadline(axes: Axes, seconds: float) -> None:
    """Draw the deadline's line and its label, which must not reach the figures beside the chart."""
    (left, right), place = axes.get_xlim(), seconds / 3600
    axes.axvline(place, color=_RED, linewidth=1.8, linestyle=(0, (4, 3)), zorder=3)
    text = axes.text(place, 1.02, f"deadline {length(seconds)}", transform=axes.get_xaxis_transform())
    text.set(color=_RED, size=11.5, weight="bold", ha="center" if place < left + 0.9 * (right - left) else "right")


def _cloud(axes: Axes, policy: PolicyForecast) -> None:
    """Draw a point for some of the markets in which the run ends; markets in one cell are one point with their area."""
    (left, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    cells: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for cost, end in policy.points:
        if math.isfinite(end):
            cell = round(end / 3600 / (right - left) * _CELLS), round(cost / top * _CELLS)
            cells.setdefault(cell, []).append((end / 3600, cost))
    ends, costs = [points[0][0] for points in cells.values()], [points[0][1] for points in cells.values()]
    areas = [min(830, 21 * len(points)) for points in cells.values()]
    axes.scatter(ends, costs, s=areas, color=_COLOURS[policy.name], alpha=0.25, linewidths=0, zorder=2)


def _marks(axes: Axes, policy: PolicyForecast, *, is_best: bool) -> None:
    """Draw a filled mark at the median, a hollow one at the 90th percentile, and a line between them."""
    colour = _COLOURS[policy.name]
    mark: dict[str, Any] = {"marker": "o", "clip_on": False, "zorder": 4}
    size = 20 if is_best else 14
    end, cost = policy.finish.p50 / 3600, policy.cost.p50
    if math.isfinite(policy.finish.p90):
        late, dear = policy.finish.p90 / 3600, policy.cost.p90
        axes.plot([end, late], [cost, dear], color=colour, linewidth=1.2, zorder=3)
        axes.plot(late, dear, markersize=11, color="white", markeredgecolor=colour, markeredgewidth=2.2, **mark)
    axes.plot(end, cost, markersize=size, color=colour, markeredgecolor="white", markeredgewidth=1.8, **mark)
    if is_best:
        axes.plot(end, cost, markersize=11, color="white", **mark | {"marker": "*"})


def _names(axes: Axes, policies: Sequence[PolicyForecast]) -> None:
    """Place the policies' names near their medians, where they overlap other names, marks, lines and the edge least.

    Below right is the first choice, because the line to the 90th percentile leads up to the right.
    """
    lines = [line.get_path().transformed(line.get_transform()) for line in axes.lines]
    taken = [line.get_window_extent() for line in axes.lines if line.get_marker() == "o"]

    def met(box: Bbox) -> float:
        if not (axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)):
            return math.inf
        return box.count_overlaps(taken) + sum(line.intersects_bbox(box, filled=False) for line in lines)

    for policy in policies:
        boxes = {}
        for offset in _OFFSETS:
            text = _name(axes, policy, offset)
            boxes[offset] = text.get_window_extent()
            text.remove()
        x, y = offset = min(_OFFSETS, key=lambda offset: met(boxes[offset]))
        taken.append(boxes[offset])
        corner = {"relpos": (float(x < 0), float(y < 0)), "shrinkA": 0}  # the corner nearest to the median
        line = {"arrowstyle": "-", "color": _COLOURS[policy.name], "linewidth": 0.8}
        _name(axes, policy, offset, arrowprops=line | corner)


def _name(axes: Axes, policy: PolicyForecast, offset: tuple[int, int], **more: Any) -> Annotation:
    """Write the name of a policy, ``offset`` points from its median."""
    (x, y), median = offset, (policy.finish.p50 / 3600, policy.cost.p50)
    text = axes.annotate(NAMES[policy.name], median, offset, textcoords="offset points", **more)
    text.set(color=_COLOURS[policy.name], size=11.5, weight="bold")
    text.set(ha="left" if x > 0 else "right", va="bottom" if y > 0 else "top")
    return text


def _page(figure: Figure, title: str, forecast: Forecast) -> None:
    """Draw the rest of the page, on axes over the whole picture: hundredths of an inch from the top left."""
    page = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH * 100), ylim=(_HEIGHT * 100, 0))
    page.set_axis_off()
    about = f"Cost and end of a run in {plural(forecast.markets, 'market')}, {forecast.supply}, seed {forecast.seed}"
    headline = page.text(48, 58, title, size=21, color=_INK, weight="bold")
    headline.set_fontsize(21 * min(1.0, 0.93 * page.bbox.width / headline.get_window_extent().width))
    page.text(48, 90, shorten(about, 140), size=12, color=_GREY)
    for index, policy in enumerate(sorted(forecast.policies, key=lambda each: each.name != forecast.best)):
        _card(page, policy, 126 + 134 * index, is_best=policy.name == forecast.best)
    _legend(page)
    prices = "; ".join(price.partition(" (")[0] for price in forecast.prices[:3])
    page.text(1248, 704, shorten(prices, 90), size=10, color=_GREY, ha="right")


def _card(page: Axes, policy: PolicyForecast, top: float, *, is_best: bool) -> None:
    """Draw the figures of a policy beside the chart."""
    from matplotlib.patches import FancyBboxPatch

    left, right, colour = 892, 1248, _COLOURS[policy.name]
    box = FancyBboxPatch((left, top), right - left, 126, "round,pad=0,rounding_size=10")
    box.set(facecolor="#eef5fc" if is_best else "#f7f8fa", linewidth=0)
    page.add_patch(box)
    page.plot(left + 24, top + 26, "o", color=colour, markersize=11)
    page.text(left + 42, top + 32, NAMES[policy.name], size=13, color=_INK, weight="bold")
    if is_best:
        page.text(right - 18, top + 31, "\N{BLACK STAR} best", size=11, color=colour, weight="bold", ha="right")
    page.text(left + 18, top + 76, "cost", size=10.5, color=_GREY)
    page.text(left + 18, top + 96, "ends after", size=10.5, color=_GREY)
    cost, finish = policy.cost, policy.finish
    columns = (("p50", cost.p50, finish.p50), ("p90", cost.p90, finish.p90), ("p99", cost.p99, finish.p99))
    for index, (quantile, amount, seconds) in enumerate(columns):
        x = right - 178 + 80 * index
        page.text(x, top + 55, quantile, size=9.5, color=_GREY, ha="right")
        page.text(x, top + 76, _short(amount), size=10.5, color=_INK, ha="right")
        page.text(x, top + 96, length(seconds), size=10.5, color=_INK, ha="right")
    page.text(left + 18, top + 116, _risk(policy), size=10.5, color=_RED if policy.late or policy.fails else _GREY)


def _short(value: float) -> str:
    """An amount that fits into a column: no decimals from ten thousand, millions from ten million."""
    if not math.isfinite(value) or value < 10_000:
        return money(value)
    return f"{value:,.0f}" if value < 10_000_000 else f"{value / 1e6:,.1f} M"


def _risk(policy: PolicyForecast) -> str:
    """The share of markets in which the policy is late or fails; without a deadline or a failure, its interruptions."""
    late = (
        "" if policy.late is None else f"late in {share(policy.late)} of the markets" if policy.late else "never late"
    )
    fails = f"fails in {share(policy.fails)}" if policy.fails else ""
    return ", ".join(filter(None, (late, fails))) or f"{policy.interruptions:.1f} interruptions on average"


def _legend(page: Axes) -> None:
    page.plot(112, 699, "o", color=_GREY, markersize=9)
    page.plot(210, 699, "o", color="white", markersize=8, markeredgecolor=_GREY, markeredgewidth=1.6)
    page.plot(360, 699, "o", color=_GREY, markersize=6, markeredgewidth=0, alpha=0.4)
    for left, text in ((126, "median"), (224, "90th percentile"), (372, "markets, by area")):
        page.text(left, 704, text, size=10, color=_GREY)
