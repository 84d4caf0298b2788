"""Groups of sources: worked by hand, planted and found by name, in runs, in their folders and in logs."""

from __future__ import annotations

import math
import random
import re
import subprocess
from pathlib import Path

import pytest

import llmfair
from llmfair.audits.aggregates import ALL, Inference, summarise
from llmfair.audits.rag.measure import by_groups
from llmfair.metrics.base import measure_all
from llmfair.metrics.expected import ListSample, Retrieved
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Conclusion, Request
from llmfair.stats.significance import holm
from tests.audits.rag.test_rag import QUICK, corpus, questions, told
from tests.cli.command import llmfair as command
from tests.cli.command import ran as done
from tests.cli.command import refuses, table
from tests.report.reading import read

SHARES = {
    ("EE", "Acme"): 0.75 / 1.5, ("EE", "Globex"): 0.75 / 0.5, ("Credit", "Acme"): 1 / 1.5,
    ("Credit", "Globex"): 0.5 / 0.5, ("Useful", "Acme"): 2 / 2, ("Useful", "Globex"): 1 / 4,
}  # fmt: skip
BY_HAND = ("EE(group)", "Credit(group)(by=cited)", "Useful(group)")


def shown(query_id: str, useful: str, *lists: tuple[str, str]) -> Retrieved:
    """A query of items a to d, of which a is Acme's, b and c are Globex's and d is nobody's; what was shown and cited."""
    samples = (ListSample(tuple(items), 1, "x", None, frozenset(cited)) for items, cited in lists)
    groups = {"a": "Acme", "b": "Globex", "c": "Globex"}
    return Retrieved(query_id, (*"abcd",), frozenset(useful), 2, None, tuple(samples), groups=groups)


def found(*queries: Retrieved) -> dict[tuple[str, str], tuple[float | None, str | None]]:
    rows = summarise(measure_all(parse_measures(",".join(BY_HAND)), {"log": queries}))
    return {
        (row.measure.partition("(")[0], row.group): (row.value, row.reason)
        for row in rows
        if row.query_id == "all"
    }


def test_shares_of_groups_by_hand() -> None:
    """ε̂ is (1, ½, ½, 0) in p and (½, ½, 0, 1) in q, a share of ½ and ¼ for Acme, which has ½ and all that is useful:
    ¾ over 1½, not the mean of 1 and ¼. Credit is Acme's in p alone, Globex's in half of q, where the rest is nobody's."""
    p = shown("p", "ab", ("ab", "a"), ("ac", "a"))
    q = shown("q", "a", ("ad", "d"), ("bd", "b"))
    assert {of: value for of, (value, _) in found(p, q).items()} == pytest.approx(SHARES)


@pytest.mark.parametrize("n", [7, 8, 20, 44])
def test_of_queries_that_are_all_alike_it_takes_many(n: int) -> None:
    """Whether the variance of equal numbers is 0 hangs on how their mean is rounded: it is not taken for certainty."""
    columns = measure_all(
        parse_measures("EE(group)"), {"log": [shown(f"q{i}", "ab", ("bc", "b")) for i in range(n)]}
    )
    rows = by_groups(columns, summarise(columns), Inference(), (0.8, 1.25))
    (acme,) = (row for row in rows if row.query_id == ALL and row.group == "Acme")
    assert acme.value == 0 and acme.p == pytest.approx(math.exp(-0.4 * n))
    assert acme.conclusion is (Conclusion.OUTSIDE if n >= 20 else Conclusion.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("in_turn", "recurring", "outside"),
    [(False, False, 2), (False, True, 0), (True, False, 2), (True, True, 2)],
)
def test_what_recurs_takes_its_own_appeal_along(in_turn: bool, recurring: bool, outside: int) -> None:
    """Of six useful items of either source two or three of Acme's are shown: always the same, or any."""
    groups = {f"{source}{n}": source for source in ("Acme", "Globex") for n in range(6)}

    def of_query(query: int) -> Retrieved:
        draw = random.Random(query)
        order = draw.sample(range(6), 6) if in_turn else range(6)
        names = [f"Acme{n}" for n in order[: draw.randint(2, 3)]] + [f"Globex{n}" for n in order]
        sample = (ListSample(tuple(names[:3]), 1, None, None),)
        return Retrieved(f"q{query}", tuple(groups), frozenset(groups), 3, None, sample, groups=groups)

    columns = measure_all(parse_measures("EE(group)"), {"log": [of_query(query) for query in range(100)]})
    rows = by_groups(columns, summarise(columns), Inference(), (0.8, 1.25), recurring)
    assert sum(row.conclusion is Conclusion.OUTSIDE for row in rows) == outside


def test_of_a_source_of_few_items_that_recur_nothing_can_be_said() -> None:
    columns = measure_all(
        parse_measures("EE(group)"), {"log": [shown(f"q{i}", "ab", ("bc", "b")) for i in range(99)]}
    )
    rows = by_groups(columns, summarise(columns), Inference(), (0.8, 1.25), recurring=True)
    assert {row.conclusion for row in rows if row.group and row.query_id == ALL} == {
        Conclusion.NOT_ASSESSABLE
    }


def test_settings_and_measures_are_tested_together() -> None:
    """Two sources, measures and settings: eight p, one family."""
    queries = [shown(f"q{i}", "ab", ("bc", "b"), *[("ad", "a")] * (i % 4 == 0)) for i in range(12)]
    columns = measure_all(parse_measures(",".join(BY_HAND)), {"first": queries, "second": queries})
    tested = [
        row for row in by_groups(columns, summarise(columns), Inference(), (0.8, 1.25)) if row.p is not None
    ]
    assert len(tested) == 8 and {row.measure for row in tested} == {*BY_HAND[:2]}
    assert [row.p_adjusted for row in tested] == holm([row.p for row in tested])


def test_groups_without_useful_items_or_without_credit() -> None:
    values = found(shown("p", "a", ("ab", "b")))
    assert values["EE", "Globex"] == (None, "no_useful_of_group")
    assert values["Credit", "Acme"] == (0.0, "no_share") and values["Useful", "Globex"][0] == 0.0
    assert found(shown("p", ""))["EE", "Acme"] == (None, "no_useful")


# Twelve sources with an item each in every question, half of them useful: of a list the generator cites all useful items
# of three, none of two, and of the others about half.

SOURCES = [f"s{n:02}" for n in range(12)]
FAVOURED, OVERLOOKED = SOURCES[:3], SOURCES[3:5]
QUESTIONS = 80


def is_useful(query: int, source: int) -> bool:
    return source in random.Random(query).sample(range(len(SOURCES)), 6)


def cites(query: int, source: int) -> bool:
    name = SOURCES[source]
    taken = name in FAVOURED or random.Random(repr((query, name))).random() < 0.5
    return taken and name not in OVERLOOKED and is_useful(query, source)


class Generator:
    """Answers alike, and cites what it is said to."""

    name = "generator"

    async def complete(self, request: Request) -> str:
        notes = re.findall(r"\[(\d+)\] note (\d+) of (\d+)", request.chat.messages[-1].content)
        return "yes " + "".join(f"[{slot}]" for slot, *of in notes if cites(*map(int, of)))


def service() -> Path:
    """Questions whose items name their sources, with a file that says which are useful."""
    pairs = [(query, source) for query in range(QUESTIONS) for source in range(len(SOURCES))]
    items: dict[int, list[dict[str, str]]] = {}
    for query, source in pairs:
        row = {"id": f"d{source}", "text": f"note {query} of {source}", "source": SOURCES[source]}
        items.setdefault(query, []).append(row)
    labels = (f"q{query}\td{source}\t{int(is_useful(query, source))}\n" for query, source in pairs)
    Path("labels.tsv").write_text("qid\tpid\trelevance_label\n" + "".join(labels))
    return questions(*({"id": f"q{n}", "input": "?", "gold": "yes", "items": of} for n, of in items.items()))


@pytest.mark.whole
def test_what_a_generator_favours_and_overlooks_is_found_by_name() -> None:
    run = llmfair.audit_rag(  # type: ignore[attr-defined]
        service(), model=Generator(), useful="labels.tsv", attribute="source", k=6, alpha="0", samples=5,
        attribution="cited", output="run", report=False,
    )  # fmt: skip
    assert not told("run")["design"]["recurring"]  # an id is another item in every question
    sentence = run.found.verdict.sentence.partition(". ")[2]
    more, _, less = sentence.partition(" get more than their share of credit; ")
    assert sentence.startswith("Among 12 sources, s02 (2.18 [") and less.startswith(
        "s03 (0) and s04 (0) get less"
    )
    assert sorted(re.findall(r"(s\d+) \(", more)) == FAVOURED
    shown = done("score", "run", "-o", "again", "--no-report").out
    assert re.search(r"^ s03 .* less credit$", shown, re.MULTILINE) and "By source: 12 sources" in shown
    measured = [
        {(row["measure"], row["condition"], row["group"], row["query_id"]): row["value"] for row in rows}
        for rows in (table(Path(folder, "per_query.csv")) for folder in ("run", "again"))
    ]
    assert measured[0] == measured[1]
    done("report", "run", "-o", "page.html")
    assert [text for text in read(Path("page.html")).text if text.startswith("By source: 12 sources")]
    assert command("runs", "check", "run").code == 0


def test_items_of_folders_have_all_groups_that_are_named_and_combinations_of_them() -> None:
    folder = corpus(["river stone", "river", "cloud", "lamp"], {"q1": "river", "q2": "cloud"}, "x")
    groups = ["d0\tsource\tAcme", "d1\tsource\tAcme", "d1\tsource\tGlobex", "d2\tsource\tGlobex"]
    groups += ["d0\tkind\tnew", "d2\tkind\told"]
    (folder / "groups.tsv").write_text("\n".join(groups) + "\n")
    asked = ("-d", folder, "--alpha", "1", "--stop-after", "retrieval")
    done(*QUICK, *asked, "-a", "source", "-o", "run")
    design = told("run")["design"]
    assert (design["groups"], design["unknown"]) == ({"Acme": 2, "Globex": 2}, 4)
    done(*QUICK, *asked, "-a", "source*kind", "-o", "crossed")
    assert told("crossed")["design"]["groups"] == {"Acme*new": 2, "Globex*old": 2}
    refuses("no item of corpus has a group of 'sorce'. Did you mean 'source'?", *QUICK, *asked, "-a", "sorce")


def test_without_an_attribute_nothing_of_groups_is_read_or_kept() -> None:
    item = {"id": "d1", "text": "river", "source": "Acme"}
    path = questions(
        {"id": "q", "input": "river?", "gold": "x", "items": [item, {"id": "d2", "text": "stone"}]}
    )
    done(*QUICK, "-d", path, "--alpha", "1", "-o", "run")
    assert "group" not in Path("run/scores.csv").read_text() and "groups" not in told("run")["design"]
    refuses("no item of rag-sample has a group of 'source'", "rag", "-a", "source")


# A log says of no item where it is from: a file of groups does.

LOG = """{"query_id": "p", "shown": ["a", "b"], "items": ["a", "b", "c", "d"], "useful": ["a", "b"], "cited": ["a"]}
{"query_id": "p", "shown": ["a", "c"], "cited": ["a"]}
{"query_id": "q", "shown": ["a", "d"], "items": ["a", "b", "c", "d"], "useful": ["a"], "cited": ["d"]}
{"query_id": "q", "shown": ["b", "d"], "cited": ["b"]}
"""


def test_a_log_has_the_same_figures_of_groups() -> None:
    Path("log.jsonl").write_text(LOG)
    Path("groups.tsv").write_text("a\tsource\tAcme\nb\tsource\tGlobex\nc\tsource\tGlobex\nb\ttopic\tx\n")
    asked = ("score", "log.jsonl", "--groups", "groups.tsv")
    rows = done(*asked, "-a", "source", "--json").json["rows"]
    values = {(row["measure"].partition("(")[0], row["group"]): row["value"] for row in rows if row["group"]}
    assert values == pytest.approx(SHARES)
    text = " ".join(done(*asked, "-a", "source").out.split())
    assert "By source: 2 sources" in text and "Nothing can be said of 2 sources" in text
    refuses("no item of groups.tsv has a group of 'sauce'. Did you mean 'source'?", *asked, "-a", "sauce")
    refuses("groups.tsv has several attributes", *asked)
    refuses("-a source: who says of which group items are?", *asked[:2], "-a", "source")
    Path("groups.tsv").write_text("x\tsource\tAcme\n")
    refuses("no item of log.jsonl has a group in groups.tsv", *asked)


@pytest.mark.whole
def test_the_log_of_the_documentation_names_two_sources() -> None:
    page = (Path(__file__).parents[3] / "docs/own-data.md").read_text("utf-8")
    (block,) = (of for of in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "END" in of)
    *made, asked = block.strip().splitlines()
    subprocess.run(["bash", "-c", "\n".join(made)], check=True)
    text = " ".join(done(*asked.split()[1:]).out.split())
    assert (
        "Acme (1.88 [1.63, 2.17]) gets more than its share of credit; Umbrella (0.17 [0.087, 0.34]) gets less"
        in text
    )
