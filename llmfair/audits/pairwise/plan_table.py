"""A planned pairwise audit in words, before anything is asked: what it takes and what it can find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.report.planned import calls_line, folder_lines, queries_lines, share, time_line, told
from llmfair.report.tables import Table, count, few_queries, planned_note, plural
from llmfair.stats.power import FEWEST_TESTED

Found = Mapping[str, Any]
HEADER = (
    "pairs",
    "queries",
    "pairs a query",
    "smallest odds found",
    "power for",
    "pairs needed",
    "queries needed",
)
UNKNOWN = {
    "sequential": "--sequential asks until each stratum is settled, so what it finds is not planned; leave it out to "
    "see what a fixed number of pairs finds",
    "no_pairs": "no pairs: nothing can be found",
}


def plan_pairs_text(planned: Mapping[str, Any]) -> str:
    """What a dry run says."""
    return told(_design(planned), _lines(planned))


def plan_pairs_table(planned: Mapping[str, Any]) -> Table:
    """The odds that each relevance stratum can find, with everything else below them."""
    findable = planned["findable"]
    ratio = next(iter(findable.values()))["ratio"]
    header = tuple(f"{name} {ratio:g}" if name == "power for" else name for name in HEADER)
    rows = [_row(stratum, found) for stratum, found in findable.items()]
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    header, *rows = (tuple(row[place] for place in kept) for row in (header, *rows))
    return Table(_design(planned), header, tuple(rows), (*_lines(planned), "Nothing was asked."))


def _row(stratum: str, found: Found) -> tuple[str, ...]:
    known, nothing = found["power"] is not None, found["reason"] in UNKNOWN
    no = "" if nothing else "no test"
    return (
        stratum,
        f"{found['queries']:,}",
        "" if found["reason"] == "sequential" else _number(found["pairs"]),
        _odds(found["smallest"]) if known else no,
        share(found["power"]) if known else no,
        _needed(found["pairs_needed"], "not with these queries") if known else no,
        "" if nothing else _needed(found["queries_needed"], "beyond any number"),
    )


def _design(planned: Mapping[str, Any]) -> str:
    """Queries × pairs × strata × orders = calls, where every query has all its pairs."""
    strata = len(planned["conditions"])
    asked = planned["calls"] - planned["noise_calls"]
    factors = [count(planned["queries"], "query", "queries"), count(planned["pairs"] or 0, "pair")]
    whole = 2 * planned["queries"] * (planned["pairs"] or 0) * strata * planned["repeats"] * planned["models"]
    if planned["sequential"]:
        factors = [f"up to {count(planned['max_pairs'], 'pair')}"]
    factors += [count(strata, "stratum", "strata"), "2 orders"]
    if planned["repeats"] > 1 and not planned["sequential"]:
        factors.append(f"{planned['repeats']} times")
    if planned["models"] > 1:
        factors.append(f"{planned['models']} models")
    product = " × ".join(factors)
    if planned["sequential"]:
        return f"{product}: at most {count(asked, 'call')}"
    told = f"{product} = {count(asked, 'call')}"
    if asked != whole:
        told = f"{product}, less what queries lack: {count(asked, 'call')}"
    noise = planned["noise_calls"]
    return f"{told} + {noise:,} ({100 * noise / asked:.3g} % of pairs asked twice)" if noise else told


def _lines(planned: Mapping[str, Any]) -> list[str]:
    return [
        *filter(None, [planned["sees"]]),
        *planned_note(planned["design"]),
        *queries_lines(planned),
        calls_line(planned),
        time_line(planned),
        *_pairs_lines(planned),
        *_findable_lines(planned),
        *folder_lines(planned),
        *planned["unready"],
    ]


def _pairs_lines(planned: Mapping[str, Any]) -> list[str]:
    """Queries without pairs of a stratum, or with fewer than asked for."""
    design, lines = planned["design"], []
    for stratum in planned["conditions"]:
        if without := len(design["without_pairs"][stratum]):
            lines.append(f"{stratum}: {count(without, 'query', 'queries')} without such pairs")
        if (fewer := design["fewer_pairs"][stratum]) and not planned["sequential"]:
            lines.append(f"{stratum}: {count(fewer, 'query', 'queries')} with fewer pairs than asked")
    return lines


def _findable_lines(planned: Mapping[str, Any]) -> list[str]:
    """What each relevance stratum finds; said once where it is the same for all."""
    if "findable" not in planned:
        return ["what it can find, and its cost: llmfair plan pairwise, with the same flags"]
    same: dict[tuple[str, ...], list[str]] = {}
    for stratum, found in planned["findable"].items():
        same.setdefault(tuple(_sentences(found)), []).append(stratum)
    lines = [
        (f"{', '.join(strata)}: " if len(same) > 1 else "") + sentence
        for sentences, strata in same.items()
        for sentence in sentences
    ]
    recurring = [
        stratum
        for stratum, found in planned["findable"].items()
        if found["items_recur"] and found["reason"] not in UNKNOWN
    ]
    if recurring:
        lines.append(
            f"{', '.join(recurring)}: items stand in pairs of several queries, so intervals will be wider than planned"
        )
    few = max(found["queries"] for found in planned["findable"].values())
    return [*lines, *(few_queries(few) if few >= FEWEST_TESTED else [])]


def _sentences(found: Found) -> list[str]:
    if found["reason"] in UNKNOWN:
        return [UNKNOWN[found["reason"]]]
    percent = f"{100 * found['target']:g} % power"
    consistent = f"a share of {found['consistent']:g} of the pairs consistent"
    expected = f"p < {1 - found['level']:.3g}, icc {found['icc']:g}, {consistent}"
    queries, odds = found["queries_needed"], f"odds of {found['ratio']:g}"
    needs = "are beyond any number of queries" if queries is None else f"need about {queries:,} queries"
    needs += f" of {_number(found['pairs'])} {plural(found['pairs'], 'pair')}"
    if found["reason"] == "too_few_queries":
        few = f"{count(found['queries'], 'query', 'queries')}: no test at all, which needs {FEWEST_TESTED}"
        return [few, f"with {percent}, preference {odds} {needs} ({expected})"]
    return [
        f"{_smallest(found, percent)} ({expected})",
        f"{odds}: power {share(found['power'])}; with {percent} they {needs}{_or_pairs(found)}",
        *_more_pairs(found),
    ]


def _smallest(found: Found, percent: str) -> str:
    if found["smallest"] is None:
        return f"no preference odds are found with {percent}, however extreme"
    below = found["smallest"]
    return f"smallest preference odds found with {percent}: {below:.3f} or {1 / below:.3f}"


def _or_pairs(found: Found) -> str:
    """The other way to find the odds: more pairs (or fewer) of the queries there are."""
    if found["pairs_needed"] is None:
        return ""
    return f", or {count(found['pairs_needed'], 'pair')} of each of these {found['queries']:,}"


def _more_pairs(found: Found) -> list[str]:
    """Plainly, that pairs of the same queries cannot make up for queries."""
    if found["pairs_needed"] is not None:
        return []
    every, smallest = _number(found["all_pairs"]), found["smallest_with_all"]
    detect = "find no odds" if smallest is None else f"find {smallest:.3f}"
    return [f"more pairs alone are not enough: all {every} a query {detect}"]


def _odds(odds: float | None) -> str:
    return "none" if odds is None else f"{odds:.3f}"


def _needed(number: int | None, never: str) -> str:
    return never if number is None else f"{number:,}"


def _number(pairs: float) -> str:
    """Pairs a query, which on average need not be whole."""
    return f"{pairs:,.1f}".removesuffix(".0")
