"""An account as text and as JSON, in the terms of all views: the pools, the use of node time, and the savings of spot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from spotwright.model.pools import PriceSource
from spotwright.model.quantities import format_money
from spotwright.views.account import NOTHING, Account, Amount, AttemptCost, PoolCost, Range, SpentOn, total
from spotwright.views.run_deadline import deadline_json, missed_text
from spotwright.views.text import Rows, plural, span, table, wrapped

__all__ = [
    "SPENT",
    "amount_json",
    "cost",
    "cost_heading",
    "cost_range",
    "each_second",
    "figures",
    "heading",
    "line_rows",
    "lines_of",
    "money_lines",
    "money_range",
    "part_of",
    "pool_rows",
    "price_unit",
    "range_json",
    "report_json",
    "report_text",
    "saved_text",
    "time_range",
    "with_unit",
]


SPENT: Mapping[SpentOn, str] = {
    SpentOn.INTERRUPTIONS: "wasted by interruptions",
    SpentOn.MOVES: "wasted by moves",
    SpentOn.ERRORS: "spent on errors",
    SpentOn.STOPPED: "spent on what was stopped",
    SpentOn.UNDER_WAY: "under way",
}
"""The name of each line of an account."""


def cost(amount: Amount, whole: Amount) -> str:
    """An amount as a number: money, or node-hours without prices. ``whole`` is the total beside it."""
    if amount.money is not None:
        return format_money(amount.money, beside=whole.money or Fraction(0))
    return format_money(amount.seconds / 3600, beside=whole.seconds / 3600)


def cost_range(amounts: Range, whole: Amount) -> str:
    """``0.0011``, or ``0.0011 to 0.0042`` if it is not exact."""
    return _range(cost(amounts.low, whole), cost(amounts.high, whole))


def time_range(amounts: Range) -> str:
    """``4.1s``, or ``0s to 4.1s`` if it is not exact."""
    return _range(span(amounts.low.seconds), span(amounts.high.seconds))


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def figures(account: Account) -> str:
    """The heading of every block of figures: the source of prices, and the time scale of waits."""
    without = f"{', '.join(account.unpriced)} {'has' if len(account.unpriced) == 1 else 'have'} no price"
    parts = [f"figures are node-hours: {without}" if account.unpriced else _price_sources(account)]
    if account.time_scale != 1:
        parts.append(f"waits passed {account.time_scale:g} times faster; seconds are real")
    return "; ".join(parts)


def _price_sources(account: Account) -> str:
    if account.prices == "mixed":
        unbilled = (PriceSource.SIMULATED, PriceSource.EXAMPLE)
        names = {source: [pool.name for pool in account.pools if pool.price_source is source] for source in unbilled}
        parts = [f"{', '.join(pools)} {_PRICES[source]}" for source, pools in names.items() if pools]
        if any(pool.price_source is PriceSource.CONFIGURED for pool in account.pools):
            parts.append(f"the others {_PRICES[PriceSource.CONFIGURED]}")
        return f"prices of {', '.join(parts)}"
    return f"prices {_PRICES[PriceSource(account.prices)]}"


_PRICES = {
    PriceSource.SIMULATED: "are simulated",
    PriceSource.EXAMPLE: "are examples",
    PriceSource.CONFIGURED: "come from the configuration",
}


def with_unit(number: str, account: Account) -> str:
    """A number with its unit: ``0.0059 USD``, or node-hours. :func:`figures` must be beside it."""
    return f"{number} {'node-hours' if account.unpriced else account.currency}"


def heading(account: Account) -> str:
    """The header of a column of such numbers."""
    return "Node-hours" if account.unpriced else price_unit(account.prices, account.currency)


def price_unit(prices: str, currency: str) -> str:
    """``Simulated USD``, ``Example USD``, ``USD`` for configured prices, or ``USD, partly simulated``."""
    units = {"simulated": f"Simulated {currency}", "example": f"Example {currency}"}
    return {**units, "mixed": f"{currency}, partly simulated"}.get(prices, currency)


def cost_heading(prices: Iterable[str]) -> str:
    """The head of a column with the costs of several runs; ``Cost`` if one of them may be billed."""
    sources = sorted(set(prices))
    if {"simulated", "example"}.issuperset(sources):
        return f"{' or '.join(sources)} cost".capitalize()
    return "Cost"


def report_text(account: Account, name: str = "") -> str:
    """The account as tables of at most 100 columns."""
    title = f"Account of {name}" if name else "Account"
    parts = [
        list(wrapped(f"{title} ({figures(account)})")),
        *([table(pool_rows(account)), table(line_rows(account))] if account.pools else [["no node was used"]]),
        money_lines(account),
        _deadline_lines(account),
        _build_lines(account),
        _cached_lines(account),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def pool_rows(account: Account) -> Rows:
    """A line per pool: the use of its nodes' time, and their cost."""
    rows = [
        [
            pool.name, pool.capacity.value, format_money(pool.price) if pool.price is not None else "", str(pool.nodes),
            *(span(amount.seconds) for amount in (_amounts(pool) if account.has_own_nodes else [pool.whole])),
            cost(pool.whole, account.whole),
        ]
        for pool in account.pools
    ]  # fmt: skip
    headers = ["Node time", *(["Boot", "Idle", "Unfilled", "Attempts"] if account.has_own_nodes else [])]
    return Rows(
        ["Pool", "Capacity", "Price/h", "Nodes", *headers, heading(account)],
        rows,
        f"ll.r{'r' * len(headers)}.",
        ("Unfilled", "Boot", "Idle", "Nodes", "Attempts", "Price/h"),
    )


def _amounts(pool: PoolCost) -> list[Amount]:
    return [pool.whole, pool.boot, pool.idle, pool.unfilled, pool.attempts]


def line_rows(account: Account) -> Rows:
    """The use of node time: useful work, waste by reason, and time that no attempt used."""
    whole = account.whole
    rows = [
        [word, time_range(amounts), cost_range(amounts, whole), part_of(amounts, whole)]
        for _, word, amounts in lines_of(account)
    ]
    rows.append(["all node time", span(whole.seconds), cost(whole, whole), "100%"])
    return Rows(["Where it went", "Node time", heading(account), "Part"], rows, "lr.r")


def lines_of(account: Account) -> Iterator[tuple[str, str, Range]]:
    """The lines of an account, in the order of the report: a key, the words for it, and the amount."""
    yield "useful", "useful work", account.useful
    for spent, amounts in account.spent.items():
        yield spent.value, SPENT[spent], amounts
    for word, amount in _beside(account):
        yield word, word, Range(amount, amount)


def _beside(account: Account) -> list[tuple[str, Amount]]:
    """The lines of time that no attempt used, without empty ones."""
    named = [("boot", account.boot), ("idle", account.idle), ("unfilled", account.unfilled)]
    return [(word, amount) for word, amount in named if amount]


def part_of(amounts: Range, whole: Amount) -> str:
    """The share of the whole, by money if known, else by time."""
    by_money = bool(whole.money)
    ends = []
    for amount in (amounts.low, amounts.high):
        part, all_of_it = (amount.money, whole.money) if by_money else (amount.seconds, whole.seconds)
        ends.append(f"{float((part or Fraction(0)) / all_of_it):.0%}" if all_of_it else "0%")
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def money_lines(account: Account) -> list[str]:
    """Spent, wasted, saved: the end of every report, in three or four lines; empty if nodes were not used."""
    if not account.pools:
        return []
    rows = [("spent", _spent_text(account))]
    rows += [("errors" if spent is SpentOn.ERRORS else "wasted", text) for spent, text in _not_useful(account)]
    unsure = [each.uncounted for each in account.attempts_by_start if each.ended_by is not None]
    if unsure:
        more = with_unit(cost(sum(unsure, NOTHING), account.whole), account)
        ends = f"the end of {plural(len(unsure), 'attempt')} was not reported: counted up to the last proof of life"
        rows.append(("unsure", f"at most {more} more, since {ends}"))
    if account.moves:
        launches = with_unit(cost(account.relaunches, account.whole), account)
        moves = f"the deadline moved {plural(account.moves, 'attempt')}, and the launches after that cost {launches} of boot"
        rows.append(("moved", moves))
    rows.append(("saved", saved_text(account)))
    return [
        f"Cost ({figures(account)})",
        *(line for word, text in rows for line in wrapped(text, indent=f"  {word:<8}", hang=" " * 10)),
    ]


def _spent_text(account: Account) -> str:
    whole = account.whole
    beside = "".join(f", {cost(amount, whole)} {word}" for word, amount in _beside(account))
    if not account.has_own_nodes:
        beside = "; the other time of the nodes is the cluster's"
    return f"{with_unit(cost(whole, whole), account)}: {cost(account.attempts, whole)} on attempts{beside}"


def _not_useful(account: Account) -> Iterator[tuple[SpentOn, str]]:
    for spent, amounts in account.spent.items():
        if spent is SpentOn.UNDER_WAY:
            continue
        costs = [each for each in account.attempts_by_start if each.spent is spent]
        words = f"{with_unit(cost_range(amounts, account.whole), account)} {_by(spent, len(costs))}"
        if amounts.high and not amounts.is_exact:
            words += "; a range, since only reported progress shows what was redone"
        yield spent, words


def _by(spent: SpentOn, count: int) -> str:
    if spent is SpentOn.ERRORS:
        return f"on {plural(count, 'attempt')} that ended in an error"
    if spent is SpentOn.STOPPED:
        return f"on {plural(count, 'attempt')} that {'was' if count == 1 else 'were'} stopped"
    return f"by {plural(count, 'interruption' if spent is SpentOn.INTERRUPTIONS else 'move')}"


def saved_text(account: Account) -> str:
    """The words after ``saved``: the savings against the same useful work on on-demand, or why they are unknown."""
    if account.saved is None or account.on_demand is None:
        return f"not known: {account.why_no_comparison}"
    low, high = account.saved
    names = ", ".join(name for name, _ in account.on_demand_pools)
    there = f"{with_unit(cost_range(account.on_demand, account.whole), account)} for the useful work on on-demand nodes ({names})"
    paid = account.on_demand.high.money or Fraction(0)
    if high < 0:
        more = with_unit(money_range(-high, -low, account.whole), account)
        return f"none: spot did not pay here; its attempts cost {more} more than {there}"
    part = f" ({float(high / paid):.0%})" if low == high and paid else ""
    so_far = " so far" if account.under_way else ""
    return f"{with_unit(money_range(low, high, account.whole), account)}{part}{so_far} against {there}"


def money_range(low: Fraction, high: Fraction, whole: Amount) -> str:
    """Two amounts of money as one text: one number if both look the same."""
    texts = [format_money(money, beside=whole.money or Fraction(0)) for money in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _build_lines(account: Account) -> list[str]:
    """A line for each built Python environment; its time is not node time and in no amount."""
    return [
        line
        for packages, seconds in account.builds
        for line in wrapped(
            f"the Python environment with {', '.join(packages)} took {span(seconds)}, on no node",
            indent="Built   ",
            hang=" " * 8,
        )
    ]


def _deadline_lines(account: Account) -> list[str]:
    text = missed_text(deadline_json(account.deadline))
    return list(wrapped(f"Deadline {text}", hang="  ")) if text else []


def _cached_lines(account: Account) -> list[str]:
    return [
        line
        for task, run, origin in account.cached
        for line in wrapped(
            f"{task} cost nothing: its result is that of {origin} in run {run}", indent="Cached  ", hang=" " * 8
        )
    ]


def report_json(account: Account, name: str = "", *, with_attempts: bool = True) -> dict[str, Any]:
    """The account for machines. Without ``with_attempts`` the list ``attempts_by_start`` is empty: a large run has many.

    An amount is node time with its cost, ``{"seconds", "money"}``, ``money`` null without prices. A range is
    ``{"low", "high"}`` of two amounts, or of two numbers unless stated otherwise. Moments are Unix seconds.

    - ``run``, ``currency``, ``prices`` (``simulated``, ``example``, ``configured``, ``mixed``), ``time_scale``, ``until``
      (when it was made), ``under_way`` (something has not ended), ``unpriced`` (pools without a price);
    - amounts: ``whole``, which is the sum of ``attempts``, ``boot``, ``idle`` and ``unfilled``;
    - ranges of amounts: ``useful``, and by what they went into ``spent`` (``interruptions``, ``moves``, ``errors``,
      ``stopped``, ``under way``); with the low end of the one and the high end of the other they add up to
      ``attempts``;
    - ``on_demand`` (a range of amounts: the useful work there), ``on_demand_pools`` (prices by pool), ``saved`` (a
      range of money); null with the reason in ``why_no_comparison``;
    - ``deadline``: null without one; ``at``, ``missed`` (null while that is open), ``late`` (seconds), the ``task`` that ended
      last after it, and ``why``: where its time went;
    - ``moves``: how many ``attempts`` a deadline moved elsewhere, and what the ``launches`` after that cost (an amount of
      ``boot``);
    - ``pools``: ``name``, ``capacity``, ``price`` of a node hour, ``price_source`` (``simulated``, ``example`` or
      ``configured``), ``nodes`` (how many), and the same amounts as above;
    - ``attempts_by_start``: ``task``, ``attempt``, ``pool``, ``node``, ``capacity``, ``cause``, ``started_at``,
      ``seconds`` by the clock, ``share`` of its node, ``cost``, ``kept`` (a range: the part of it that was kept), ``ended_by``
      (its end was not reported: it counts up to the last proof of life, and was known to be gone then; else null);
    - ``builds`` of Python environments: ``packages``, and the ``seconds`` by the clock, which are in no amount;
    - ``cached``: tasks that cost nothing, with the ``run`` whose result they used and the ``task_there``.
    """
    return {
        "run": name,
        "currency": account.currency,
        "prices": account.prices,
        "time_scale": account.time_scale,
        "until": account.until,
        "under_way": account.under_way,
        "whole": amount_json(account.whole),
        "attempts": amount_json(account.attempts),
        "boot": amount_json(account.boot),
        "idle": amount_json(account.idle),
        "unfilled": amount_json(account.unfilled),
        "useful": range_json(account.useful),
        "spent": {spent.value: range_json(amounts) for spent, amounts in account.spent.items()},
        "on_demand": range_json(account.on_demand) if account.on_demand is not None else None,
        "on_demand_pools": {pool: float(price) for pool, price in account.on_demand_pools},
        "saved": {"low": float(account.saved[0]), "high": float(account.saved[1])}
        if account.saved is not None
        else None,
        "deadline": deadline_json(account.deadline),
        "moves": {"attempts": account.moves, "launches": amount_json(account.relaunches)},
        "why_no_comparison": account.why_no_comparison,
        "pools": [_pool_json(pool) for pool in account.pools],
        "attempts_by_start": [_attempt_json(cost) for cost in account.attempts_by_start] if with_attempts else [],
        "builds": [{"packages": list(packages), "seconds": seconds} for packages, seconds in account.builds],
        "cached": [{"task": task, "run": run, "task_there": origin} for task, run, origin in account.cached],
        "unpriced": list(account.unpriced),
    }


def each_second(costs: Account) -> Amount:
    """The cost of each further second of the running attempts, each with its paid part of the node."""
    running = [one for one in costs.attempts_by_start if one.cause is None]
    parts = (Fraction(one.used, one.clock) if one.clock else one.share for one in running)
    nothing = Amount(money=None if costs.unpriced else Fraction(0))
    return total([nothing, *(Amount.of(1, one.price, per=1) * part for one, part in zip(running, parts, strict=True))])


def amount_json(amount: Amount) -> Mapping[str, float | None]:
    """One amount for machines."""
    return {"seconds": float(amount.seconds), "money": float(amount.money) if amount.money is not None else None}


def range_json(amounts: Range) -> Mapping[str, Any]:
    """The two ends of a range for machines."""
    return {"low": amount_json(amounts.low), "high": amount_json(amounts.high)}


def _pool_json(pool: PoolCost) -> Mapping[str, Any]:
    return {
        "name": pool.name,
        "capacity": pool.capacity.value,
        "price": float(pool.price) if pool.price is not None else None,
        "price_source": pool.price_source.value,
        "nodes": pool.nodes,
        "whole": amount_json(pool.whole),
        "boot": amount_json(pool.boot),
        "idle": amount_json(pool.idle),
        "unfilled": amount_json(pool.unfilled),
        "attempts": amount_json(pool.attempts),
    }


def _attempt_json(attempt: AttemptCost) -> Mapping[str, Any]:
    return {
        "task": attempt.task,
        "attempt": attempt.number,
        "pool": attempt.pool,
        "node": attempt.node,
        "capacity": attempt.capacity.value,
        "cause": attempt.cause.value if attempt.cause is not None else None,
        "started_at": attempt.started_at,
        "seconds": float(attempt.seconds),
        "share": float(attempt.share),
        "cost": amount_json(attempt.cost),
        "kept": {"low": float(attempt.kept.low), "high": float(attempt.kept.high)},
        "ended_by": attempt.ended_by,
    }
