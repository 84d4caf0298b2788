"""Questions with answers in a user's own files: read as they stand, every mistake named by file, line and field."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfair.datasets.answers import load_answers, questions_sha256
from llmfair.errors import UsageError
from llmfair.nouns import Document
from llmfair.rankers.bm25 import Bm25
from tests.cli.command import refuses
from tests.folders import write

ITEMS: list[dict[str, Any]] = [
    {"id": "01", "text": "a town on the Seine"},
    {"id": 2, "title": "Rome", "text": "seven hills"},
]
GOOD: Mapping[str, Any] = {"id": "007", "input": "Which town?", "gold": "Paris", "items": ITEMS}


def lines(path: Path, *rows: Mapping[str, Any]) -> str:
    write(path / "own.jsonl", (json.dumps(row) for row in rows))
    return str(path / "own.jsonl")


def folder(path: Path, **files: str) -> str:
    """A corpus of three documents and two queries; a file given as "" is left out."""
    content = {
        "docs.jsonl": '{"doc_id": "01", "text": "one"}\n{"doc_id": "2", "title": "Two", "text": "two"}\n{"doc_id": 3, "text": "3"}\n',
        "queries.tsv": "q1\tWhich?\nq2\tWhat?\n",
        "answers.jsonl": '{"query_id": "q2", "gold": ["a", "b"]}\n{"query_id": "q1", "gold": 5}\n',
    } | {name.replace("_", "."): text for name, text in files.items()}
    path.mkdir(exist_ok=True)
    for name, text in content.items():
        if text:
            (path / name).write_text(text)
    return str(path)


def test_a_line_is_a_question_with_items_of_its_own(tmp_path: Path) -> None:
    items = [{"id": "01", "text": "another"}]
    other = {"id": "q2", "input": "?", "golden_answers": ["a", "b"], "items": items}
    dataset = load_answers(lines(tmp_path, GOOD, {**GOOD, "id": 7, "gold": ["x", 3], "other": None}, other))
    first, second, third = dataset.queries
    assert (first.query_id, first.text, second.query_id) == ("007", "Which town?", "7")
    golds = [dataset.questions[query.query_id].golds for query in dataset.queries]
    assert golds == [("Paris",), ("x", "3"), ("a", "b")]
    assert dataset.candidates(third).documents[0].text == "another"
    of_first = dataset.candidates(first)
    assert of_first.doc_ids == ("01", "2") and of_first.relevance == {} and dataset.qrels == {}
    texts = [(item.title, item.text, item.groups) for item in of_first.documents]
    assert texts == [("", "a town on the Seine", {}), ("Rome", "seven hills", {})]
    assert dataset.searched(first) == first.text and dataset.questions[first.query_id].parts == (
        "",
        first.text,
    )
    assert not dataset.questions[first.query_id].meanings
    assert (dataset.name, dataset.prompt, dataset.shared) == ("own", "rag/question", False)
    assert dataset.task.utility == "token-f1" and not dataset.task.label_utility


def test_items_that_all_have_a_label_make_a_choice(tmp_path: Path) -> None:
    labelled = [{**item, "label": 5} for item in ITEMS]
    dataset = load_answers(lines(tmp_path, {**GOOD, "items": labelled}))
    groups = [item.groups for item in dataset.candidates(dataset.queries[0]).documents]
    assert groups == [{"label": ("5",)}] * 2
    assert (dataset.prompt, dataset.task.utility) == ("rag/label", "accuracy")
    assert (
        load_answers(lines(tmp_path, {**GOOD, "items": [labelled[0], ITEMS[1]]})).task.utility == "token-f1"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "a b"}, "own.jsonl:2: id: is empty or holds white space"),
        ({"id": "all"}, "own.jsonl:2: id: 'all' stands for all queries"),
        ({"id": "007"}, "own.jsonl:2: id: '007' was already given"),
        ({"input": " "}, "own.jsonl:2: input: is empty"),
        ({"gold": " "}, "own.jsonl:2: gold: is empty"),
        ({"items": []}, "own.jsonl:2: items: is empty"),
        ({"items": [{"id": "a", "text": " "}]}, "own.jsonl:2: items[0].text: is empty"),
        ({"items": [{"id": "", "text": "x"}]}, "own.jsonl:2: items[0].id: is empty or holds white space"),
        ({"items": [ITEMS[0], ITEMS[0]]}, "own.jsonl:2: items[1].id: '01' was already given"),
        ({"items": [{**ITEMS[0], "label": ""}]}, "own.jsonl:2: items[0].label: is empty"),
    ],
)  # fmt: skip
def test_a_slip_in_a_line_is_named(tmp_path: Path, change: Mapping[str, Any], message: str) -> None:
    refuses(message, "datasets", "show", lines(tmp_path, GOOD, {**GOOD, "id": "2", **change}))


def test_the_identity_moves_with_inputs_answers_items_and_labels(tmp_path: Path) -> None:
    labelled = {**GOOD, "items": [{**ITEMS[0], "label": "x"}, ITEMS[1]]}
    changes = [GOOD, {**GOOD, "gold": "Rome"}, {**GOOD, "input": "?"}, {**GOOD, "items": ITEMS[:1]}, labelled]
    found = []
    for row in changes:
        dataset = load_answers(lines(tmp_path, row))
        found.append(questions_sha256(dataset, dataset.queries))
    assert len(set(found)) == len(changes)


def test_the_identity_leaves_judgements_out(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", qrels_txt="q1 0 2 1\n")
    plain, judged = load_answers(path), load_answers(path, judged=True)
    assert questions_sha256(plain, plain.queries) == questions_sha256(judged, judged.queries)


def test_a_folder_is_a_corpus_that_all_queries_share(tmp_path: Path) -> None:
    dataset = load_answers(folder(tmp_path / "corpus"))
    assert dataset.shared and dataset.name == "corpus" and dataset.prompt == "rag/question"
    for query in dataset.queries:
        assert dataset.candidates(query).doc_ids == ("01", "2", "3")
        assert dataset.candidates(query).relevance == {}
    assert dataset.questions["q1"].golds == ("5",) and dataset.questions["q2"].golds == ("a", "b")


def test_a_folder_may_have_lists_labels_and_qrels_that_are_read_where_asked_for(tmp_path: Path) -> None:
    path = folder(
        tmp_path / "own",
        candidates_run="q1 Q0 2 1 9 x\nq1 Q0 01 2 8 x\nq2 Q0 3 1 9 x\n",
        groups_tsv="01\tlabel\tred\n2\tlabel\tblue\n3\tlabel\tred\n01\tcolour\twarm\n",
        qrels_txt="q1 0 2 1\nq2 0 3 0\n",
    )
    dataset = load_answers(path, judged=True)
    first = dataset.candidates(dataset.queries[0])
    assert not dataset.shared and dataset.task.utility == "accuracy"
    assert first.doc_ids == ("2", "01") and first.relevance == {"2": 1}
    assert first.documents[0].groups == {"label": ("blue",)}
    assert load_answers(path).qrels == {}
    red = [one.groups for one in dataset.documents.values() if one.groups == {"label": ("red",)}]
    assert len(red) == 2 and red[0] is red[1]  # what many documents have is held once


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"answers_jsonl": "", "qrels_txt": ""}, "needs docs.jsonl, queries.tsv, answers.jsonl, qrels.txt; missing: answers.jsonl, qrels.txt."),
        ({"qrels_txt": ""}, "; missing: qrels.txt."),
        ({"answers_jsonl": '{"query_id": "q1", "gold": "a"}\n'}, "answers.jsonl: query_id: query 'q2' has no line"),
        ({"answers_jsonl": '{"query_id": "q9", "gold": "a"}\n'}, "answers.jsonl:1: query_id: 'q9' is not in queries.tsv"),
        ({"answers_jsonl": '{"gold": "a"}\n'}, "answers.jsonl:1: query_id: is missing"),
        ({"docs_jsonl": '{"doc_id": "01", "text": ""}\n'}, "docs.jsonl:1: text: is empty"),
        ({"qrels_txt": "q1 0 99 1\n"}, "qrels.txt:1: doc_id: '99' is not in docs.jsonl"),
        ({"candidates_run": "q1 Q0 2 1 9 x\n"}, "candidates.run: query_id: query 'q2' has no item"),
        ({"groups_tsv": "01\tlabel\ta\n01\tlabel\tb\n"}, "groups.tsv:2: label: '01' has a label already"),
    ],
)  # fmt: skip
def test_a_slip_in_a_folder_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_answers(folder(tmp_path / "own", **({"qrels_txt": "q1 0 2 1\n"} | files)), judged=True).queries  # noqa: B018
    assert message in raised.value.message and raised.value.hint


def test_what_is_no_dataset_with_answers_is_refused(tmp_path: Path) -> None:
    for name, data, message in [
        ("rag-sampel", None, "no dataset 'rag-sampel'. Did you mean 'rag-sample'?"),
        ("sample", None, "dataset 'sample' has no questions with answers."),
        ("rag-sample", tmp_path, "dataset 'rag-sample' is not read from a folder."),
    ]:
        with pytest.raises(UsageError) as raised:
            load_answers(name, data)
        assert message in raised.value.message and raised.value.hint
    with pytest.raises(UsageError, match="has no qrels"):
        load_answers("rag-sample", judged=True)


# The bundled sample of questions with answers


K = 5


def answered(shown: Sequence[Document]) -> str:
    """The commonest label of the items shown; of several, the one shown first."""
    return Counter(item.groups["label"][0] for item in shown).most_common(1)[0][0]


def test_eight_questions_of_twenty_labelled_items_of_which_some_are_useful() -> None:
    dataset = load_answers("rag-sample")
    assert (dataset.prompt, dataset.task.utility, len(dataset.queries)) == ("rag/label", "accuracy", 8)
    ids = set[str]()
    for query in dataset.queries:
        items, (gold,) = dataset.candidates(query).documents, dataset.questions[query.query_id].golds
        labels = Counter(item.groups["label"][0] for item in items)
        assert len(items) == 20 and 5 <= labels[gold] <= 8 and len(labels) == 4
        assert gold not in query.text.casefold()
        assert all(3 <= len(item.text.split()) <= 25 and not item.title for item in items)
        ids.update(item.doc_id for item in items)
    assert len(ids) == 160


def test_the_best_five_are_a_mixture_and_a_reader_of_them_is_sometimes_wrong() -> None:
    dataset, ranker = load_answers("rag-sample"), Bm25()
    right = []
    for query in dataset.queries:
        candidates, (gold,) = dataset.candidates(query), dataset.questions[query.query_id].golds
        best, scores = ranker.ordered(candidates)
        assert scores and scores[K - 1] > scores[K], "the five best hang on no tie"
        labels = [item.groups["label"][0] for item in best.documents[:K]]
        assert 0 < labels.count(gold) < K
        right.append(answered(best.documents[:K]) == gold)
        useful = [item for item in candidates.documents if item.groups["label"] == (gold,)]
        assert answered(useful[:K]) == gold, "shown useful items alone it is always right"
    assert sum(right) == 6
