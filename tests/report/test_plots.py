"""Figures: the same bytes, ink of the page, ids of their own, nothing that asks the net."""

from __future__ import annotations

import re
from functools import cache

import pytest

from llmfair.report import plots

WORDS = {"protected": "female", "unprotected": "male"}
ARMS = ["neutral", "male", "female", "repeat"]
LOOKS = plots.palette(ARMS)
SHARES = {"PP": 0.2, "UU": 0.3, "FF": 0.3, "SS": 0.1, "T": 0.05, "M1": 0.04, "M2": 0.01}
PLOTS = [
    plots.stacked_answers([("relevant", SHARES), ("irrelevant", SHARES)], WORDS),
    plots.ratios([(f"org/a-model-of-a-long-name-{i}", plots.Value(0.8, 0.5, 1.3)) for i in range(9)], "odds", None, "Odds", "ratios"),
    plots.utility_and_ratio(
        [(a, plots.Value(0.5 + i / 10, 0.4, 0.8), plots.Value(0.7 + i / 5, 0.6, None)) for i, a in enumerate(ARMS)],
        "P@20", "ExpRatio", (0.5, 1.9),
    ),
    plots.ratios([("relevant", plots.Value(0.8, 0.5, 1.3)), ("irrelevant", None)], "odds", (0.8, 1.25), "Odds", "ratios"),
    plots.curves(
        [plots.Line(a, LOOKS[a], [(0.2 * i, plots.Value(0.1 * i, 0.05, None if i else 0.3)) for i in range(6)], (1, 0.9)) for a in ARMS],
        ("EE-D", "EU"), "What fairer lists cost", "Utility by disparity.", "cost", [0, 0.5, 1], diagonal=True,
    ),
    plots.curves([plots.Line("bm25", LOOKS["neutral"], [(1, plots.Value(0.5, 0.4, 0.6))])], ("slot", "share"), "Slots", "By slot.", "slots", [1]),
]  # fmt: skip
NAMES = [f"{place}-{plot.name}" for place, plot in enumerate(PLOTS)]


svg = cache(plots.inline_svg)


@pytest.mark.parametrize("plot", PLOTS, ids=NAMES)
def test_a_drawing_is_the_same_each_time_and_belongs_to_the_page(plot: plots.Plot) -> None:
    text = svg(plot)
    assert text.startswith("<svg viewBox=") and text.endswith("</svg>")
    assert "currentColor" in text and "#010203" not in text.lower() and "#fdfefc" not in text.lower()
    assert "<metadata" not in text and "<style" not in text and "<?xml" not in text and "http" not in text
    assert "<text" in text and "font-family" not in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert all(name.startswith(f"{plot.name}-") for name in ids) and len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', text)) | set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)
    sizes = {
        float(size)
        for size in re.findall(r"font: ?(?:\w+ )*([\d.]+)px|font-size: ?([\d.]+)px", text)
        for size in size
        if size
    }
    assert min(sizes) >= 13
    titles = re.findall(r"<title>([^<]*)</title>", text)
    assert titles and all(re.search(r"\d", title) for title in titles), "values stand where a pointer rests"
    assert all(t in text.partition(">")[0] for t in titles[:5]), "and are read to those who do not see them"


@pytest.mark.whole
@pytest.mark.parametrize("file_format", ["svg", "pdf", "png"])
def test_files_are_the_same_each_time(file_format: str) -> None:
    first = plots.drawn(PLOTS[0], file_format)
    assert first == plots.drawn(PLOTS[0], file_format) and b"tip:" not in first
    assert first.startswith({"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[file_format])


def test_what_the_user_set_for_matplotlib_changes_nothing() -> None:
    import matplotlib

    before = plots.inline_svg(PLOTS[0])
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert plots.inline_svg(PLOTS[0]) == before
        assert matplotlib.rcParams["font.size"] == 30


def test_names_are_taken_as_they_are() -> None:
    text = plots.inline_svg(plots.ratios([('a<b>&"$x$', plots.Value(1.0))], "odds", None, "Odds", "ratios"))
    assert re.search(r"<text[^>]*>a&lt;b&gt;&amp;\"\$x\$<", text)
    assert '<title>a&lt;b&gt;&amp;"$x$: 1.00</title>' in text


@pytest.mark.parametrize(("low", "high"), [(0.85, 1.2), (0.5, 1.9), (0.1, 1.1), (0.001, 5), (1e-9, 1e9)])
def test_ratios_have_few_marks_and_one_at_parity(low: float, high: float) -> None:
    marks = plots.ticks(low, high, 240)
    assert 1 in marks and len(marks) <= 9 and all(low <= mark <= high for mark in marks)


def test_a_band_has_the_numbers_of_both_edges_and_parity_where_there_is_room() -> None:
    assert plots.ticks(0.16, 2.15, 285, (0.8, 1.25)) == [0.2, 0.3, 0.5, 0.8, 1, 1.25, 2]
    assert plots.ticks(0.15, 2.1, 240, (0.8, 1.25)) == [0.2, 0.3, 0.5, 0.8, 1.25, 2]
    assert plots.ticks(0.01, 100, 240, (0.8, 1.25)) == [0.01, 0.1, 0.3, 1, 3, 10, 100]


def test_names_are_folded_and_a_part_alone_is_cut() -> None:
    assert plots.folded("short") == "short"
    assert plots.folded("mistralai/Mistral-7B-Instruct-v0.2", 16) == "mistralai/\nMistral-7B-\nInstruct-v0.2"
    assert plots.folded("one\ntwo three", 7) == "one\ntwo\nthree"
    assert plots.folded("a" * 9 + "b" * 9, 8) == "aaaa…bbb" and plots.clipped("short", 8) == "short"


def test_colour_is_never_the_only_sign() -> None:
    looks = [*plots.palette([str(i) for i in range(16)]).values()]
    assert len({(look.color, look.mark, str(look.dash)) for look in looks}) == 16
    assert len({look.mark for look in looks[:8]}) == len({look.color for look in looks[:8]}) == 8
    assert LOOKS["female"].color != LOOKS["male"].color and LOOKS["female"].mark != LOOKS["male"].mark


@pytest.mark.whole
def test_a_colour_has_one_meaning_on_the_page() -> None:
    """Those of the groups are no condition's and no model's, and stand only where groups are drawn."""
    assert not {plots.PROTECTED, plots.UNPROTECTED, plots.GREY} & {
        look.color for look in plots.palette(NAMES).values()
    }
    assert {plot.name for plot in PLOTS if re.search(r"var\(--[pu]\)", svg(plot))} == {"answers"}


def test_groups_are_told_apart_without_colour() -> None:
    fills = dict(
        re.findall(r"fill: var\(--([pu])\)(; opacity: [\d.]+|; fill-opacity: [\d.]+|)", svg(PLOTS[0]))
    )
    assert fills["p"] != fills["u"]


@pytest.mark.parametrize("long", [3, 9, 20, 60])
def test_legends_stay_within_the_figure(long: int) -> None:
    names = [f"{i}{'n' * long}" for i in range(8)]
    points = [(name, plots.Value(0.5), plots.Value(1.0)) for name in names]
    text = plots.inline_svg(plots.utility_and_ratio(points, "P@20", "ExpRatio", None))
    ends = [
        float(x) + 8.3 * len(label)
        for x, label in re.findall(r'<text [^>]*?x="([\d.]+)"[^>]*>(\d[^<]*n)<', text)
    ]
    assert len(ends) == 8 and max(ends) <= plots.WIDTH
