"""The picture of a forecast: cost against end, a mark for the median and one for the 90th percentile of every policy.

It is made for a slide: the conclusion is the title, the deadline is a line, the figures stand beside the chart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spotwright.forecast.making import DEADLINE, ON_DEMAND, SPOT, UNIFORM_PROGRESS
from spotwright.forecast.model import Forecast, PolicyForecast
from spotwright.forecast.picture.shapes import Circle, Line, Picture, Rectangle, Shape, Text
from spotwright.forecast.report import NAMES, length, money, share, unit
from spotwright.views.phrasing import plural
from spotwright.views.table import shorten

__all__ = ["chart"]

_WIDTH, _HEIGHT = 1280, 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 104.0, 860.0, 146.0, 614.0
_COLOURS = {ON_DEMAND: "#4b5563", SPOT: "#d97706", DEADLINE: "#0b63b0", UNIFORM_PROGRESS: "#0d8a6a"}
_INK, _GREY, _RULE, _RED = "#1f2933", "#6b7280", "#e5e7eb", "#c0262d"
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_HOURS = (1 / 60, 1 / 30, 1 / 12, 1 / 6, 0.25, 0.5, 1, 2, 3, 4, 6, 12, 24, 48, 72, 120, 168, 240)


class _Scale(NamedTuple):
    """An axis: values from ``low`` to ``high`` on points from ``begin`` to ``end``."""

    low: float
    high: float
    begin: float
    end: float
    step: float

    def at(self, value: float) -> float:
        """The point of a value; one beyond the axis is at its end."""
        inside = min(max(value, self.low), self.high)
        return self.begin + (inside - self.low) / (self.high - self.low) * (self.end - self.begin)

    def marks(self) -> Iterator[float]:
        """The values of the ticks."""
        first = math.ceil(self.low / self.step - 1e-9)
        for index in range(first, math.floor(self.high / self.step + 1e-9) + 1):
            yield index * self.step


def chart(forecast: Forecast) -> Picture:
    """Draw a forecast."""
    across, up = _axes(forecast)
    title = _title(forecast)
    shapes: list[Shape] = [
        Text(48, 58, shorten(title, 92), 30 if len(title) <= 66 else 24, _INK, bold=True),
        Text(48, 90, shorten(_subtitle(forecast), 140), 17, _GREY),
        *_grid(across, up, forecast),
        *_deadline(across, forecast),
    ]
    for policy in forecast.policies:
        shapes += _cloud(policy, across, up)
    for policy in sorted(forecast.policies, key=lambda each: each.name == forecast.best):
        shapes += _marks(policy, across, up, is_best=policy.name == forecast.best)
    shapes += _labels(forecast, across, up)
    shapes += _cards(forecast)
    shapes += _legend(forecast)
    return Picture(_WIDTH, _HEIGHT, title, tuple(shapes))


def _title(forecast: Forecast) -> str:
    best, on_demand = forecast.policy(forecast.best), forecast.policy(ON_DEMAND)
    bound = f" within {length(forecast.deadline)}" if forecast.deadline is not None else ""
    if best.late is not None and best.late > 1 - forecast.certainty + 1e-9:
        return f"{forecast.pipeline}: no policy is done{bound} with a certainty of {forecast.certainty * 100:g} %"
    if best.name == ON_DEMAND or on_demand.cost.mean <= 0:
        return f"{forecast.pipeline}: on-demand is the best choice{bound}"
    saved = 1 - best.cost.mean / on_demand.cost.mean
    return f"{forecast.pipeline}: done{bound} for {saved:.0%} less than on-demand"


def _subtitle(forecast: Forecast) -> str:
    return f"Cost and end of a run in {plural(forecast.markets, 'market')}, {forecast.supply}, seed {forecast.seed}"


def _axes(forecast: Forecast) -> tuple[_Scale, _Scale]:
    """Hours across and money up, wide enough for all marks, the deadline and most of the points."""
    ends = [
        end / 3600 for policy in forecast.policies for end in (policy.finish.p10, policy.finish.p90, policy.finish.p50)
    ]
    ends += [policy.finish.p99 / 3600 for policy in forecast.policies]
    ends += [forecast.deadline / 3600] if forecast.deadline is not None else []
    found = [end for end in ends if math.isfinite(end)] or [1.0]
    room = (max(found) - min(found)) * 0.08 or max(found) * 0.2
    low, high = max(0.0, min(found) - room), max(found) + room
    step = next((step for step in _HOURS if (high - low) / step <= 9), math.ceil((high - low) / 9))
    costs = [
        value for policy in forecast.policies for value in (policy.cost.p90, policy.cost.p99) if math.isfinite(value)
    ]
    dearest = max(costs, default=1.0) or 1.0
    power = 10.0 ** math.floor(math.log10(dearest / 6))
    each = next(power * step for step in _STEPS if dearest * 1.05 / (power * step) <= 6)
    return (
        _Scale(math.floor(low / step) * step, high, _LEFT, _RIGHT, step),
        _Scale(0.0, math.ceil(dearest * 1.05 / each) * each, _BOTTOM, _TOP, each),
    )


def _grid(across: _Scale, up: _Scale, forecast: Forecast) -> Iterator[Shape]:
    for value in up.marks():
        y = up.at(value)
        yield Line(_LEFT, y, _RIGHT, y, _RULE)
        yield Text(_LEFT - 12, y + 5, _amount(value, up.step), 15, _GREY, "end")
    for value in across.marks():
        x = across.at(value)
        yield Line(x, _BOTTOM, x, _BOTTOM + 6, _GREY)
        yield Text(x, _BOTTOM + 25, _hours(value), 15, _GREY, "middle")
    yield Line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, _GREY, 1.5)
    yield Text(32, (_TOP + _BOTTOM) / 2, f"cost of the run, {unit(forecast)}", 16, _INK, "middle", upright=True)
    yield Text((_LEFT + _RIGHT) / 2, _BOTTOM + 52, "time from the start to the end of the run", 16, _INK, "middle")


def _amount(value: float, step: float) -> str:
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def _hours(value: float) -> str:
    minutes = round(value * 60)
    if minutes < 60 and minutes:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes // 60}h{minutes % 60:02d}"


def _deadline(across: _Scale, forecast: Forecast) -> Iterator[Shape]:
    if forecast.deadline is None:
        return
    x = across.at(forecast.deadline / 3600)
    yield Line(x, _TOP - 8, x, _BOTTOM, _RED, 2.5, 9)
    yield Text(x, _TOP - 16, f"deadline {length(forecast.deadline)}", 16, _RED, "middle", bold=True)


def _cloud(policy: PolicyForecast, across: _Scale, up: _Scale) -> Iterator[Shape]:
    """A point for each of some markets, as far as they fit; points that meet are one with their area."""
    places = Counter(
        (round(across.at(end / 3600) / 4), round(up.at(cost) / 4))
        for cost, end in policy.points
        if end / 3600 <= across.high and cost <= up.high
    )
    for (x, y), count in places.items():
        yield Circle(4.0 * x, 4.0 * y, min(20.0, 3.2 * math.sqrt(count)), _COLOURS[policy.name], opacity=0.25)


def _marks(policy: PolicyForecast, across: _Scale, up: _Scale, *, is_best: bool) -> Iterator[Shape]:
    colour = _COLOURS[policy.name]
    x, y = across.at(policy.finish.p50 / 3600), up.at(policy.cost.p50)
    if math.isfinite(policy.finish.p90):
        far, high = across.at(policy.finish.p90 / 3600), up.at(policy.cost.p90)
        yield Line(x, y, far, high, colour, 1.5)
        yield Circle(far, high, 7.5, "#ffffff", colour, 3.0)
    yield Circle(x, y, 14 if is_best else 9, colour, "#ffffff", 2.5)
    if is_best:
        yield Text(x, y + 6.5, "*", 20, "#ffffff", "middle", bold=True)


def _labels(forecast: Forecast, across: _Scale, up: _Scale) -> Iterator[Shape]:
    """The names of the policies beside their medians, each where it meets no other and no mark.

    Below on the right is the first choice, because the line to the 90th percentile leads upwards to the right.
    """
    taken = [
        (across.at(end / 3600) - 12, up.at(cost) - 12, 24.0, 24.0)
        for policy in forecast.policies
        for end, cost in ((policy.finish.p50, policy.cost.p50), (policy.finish.p90, policy.cost.p90))
    ]
    for policy in sorted(forecast.policies, key=lambda each: (each.name != forecast.best, each.cost.p50)):
        x, y, width = across.at(policy.finish.p50 / 3600), up.at(policy.cost.p50), 8.4 * len(NAMES[policy.name])
        sides = [
            (x + 12, y + 27),
            (x - 12 - width, y + 27),
            (x - 16 - width, y - 12),
            (x + 16, y - 12),
            (x + 12, y + 48),
        ]
        inside = [(left, base) for left, base in sides if left > _LEFT and left + width < _RIGHT and base < _BOTTOM]
        free = [place for place in inside if not any(_meet((*place, width), box) for box in taken)]
        left, base = (free or inside or sides)[0]
        taken.append((left, base - 16, width, 20.0))
        yield Text(left, base, NAMES[policy.name], 16, _COLOURS[policy.name], bold=True)


def _meet(text: tuple[float, float, float], box: tuple[float, float, float, float]) -> bool:
    """Whether a text (left, baseline, width) and a box (left, top, width, height) overlap."""
    left, base, width = text
    x, y, wide, high = box
    return left < x + wide and x < left + width and base - 16 < y + high and y < base + 4


def _cards(forecast: Forecast) -> Iterator[Shape]:
    """The figures of each policy beside the chart, the best one first."""
    ordered: Sequence[PolicyForecast] = sorted(forecast.policies, key=lambda each: each.name != forecast.best)
    left, top, height = 892.0, 126.0, 126.0
    for index, policy in enumerate(ordered):
        y = top + index * (height + 8)
        is_best = policy.name == forecast.best
        yield Rectangle(left, y, 356, height, "#eef5fc" if is_best else "#f7f8fa", 10)
        yield Circle(left + 24, y + 26, 8, _COLOURS[policy.name])
        yield Text(left + 42, y + 32, NAMES[policy.name], 18, _INK, bold=True)
        if is_best:
            yield Text(left + 338, y + 31, "best", 15, _COLOURS[policy.name], "end", bold=True)
        yield from _figures(policy, left, y)


def _figures(policy: PolicyForecast, left: float, y: float) -> Iterator[Shape]:
    cost, finish = policy.cost, policy.finish
    yield Text(left + 172, y + 55, "p50", 13, _GREY, "end")
    yield Text(left + 255, y + 55, "p90", 13, _GREY, "end")
    yield Text(left + 338, y + 55, "p99", 13, _GREY, "end")
    rows = [("cost", [_short(value) for value in (cost.p50, cost.p90, cost.p99)])]
    rows.append(("ends after", [length(value) for value in (finish.p50, finish.p90, finish.p99)]))
    for line, (word, values) in enumerate(rows):
        yield Text(left + 18, y + 76 + 20 * line, word, 15, _GREY)
        for place, value in enumerate(values):
            yield Text(left + 172 + 83 * place, y + 76 + 20 * line, value, 15, _INK, "end")
    late = (
        "" if policy.late is None else f"late in {share(policy.late)} of the markets" if policy.late else "never late"
    )
    fails = f"fails in {share(policy.fails)}" if policy.fails else ""
    text = ", ".join(filter(None, (late, fails))) or f"{policy.interruptions:.1f} interruptions on average"
    yield Text(left + 18, y + 116, text, 15, _RED if (policy.late or policy.fails) else _GREY)


def _short(value: float) -> str:
    """An amount that fits into a column: from ten thousand on without decimals, from ten million on in millions."""
    if not math.isfinite(value) or value < 10_000:
        return money(value)
    return f"{value:,.0f}" if value < 10_000_000 else f"{value / 1e6:,.1f} M"


def _legend(forecast: Forecast) -> Iterator[Shape]:
    y = _HEIGHT - 16
    yield Circle(112, y - 5, 6, _GREY)
    yield Text(126, y, "median", 14, _GREY)
    yield Circle(198, y - 5, 5.5, "#ffffff", _GREY, 2.0)
    yield Text(212, y, "90th percentile", 14, _GREY)
    yield Circle(330, y - 5, 3.2, _GREY, opacity=0.4)
    yield Text(342, y, "markets, by area", 14, _GREY)
    prices = "; ".join(price.partition(" (")[0] for price in forecast.prices[:3])
    yield Text(_WIDTH - 32, y, shorten(prices, 90), 14, _GREY, "end")
