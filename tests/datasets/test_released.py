"""Released files of labels and of retrieval: ids are texts, and what is not the dataset's is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmfair.datasets.lamp import check_belongs, read_retrieval, read_useful
from llmfair.errors import UsageError

LISTS = {"011": ["0110", "0111", "0112"], "012": ["0120", "0121"]}
MAPPING = "qid\tpid\trelevance_label\n011\t0110\t1\n011\t0111\t0\n011\t0112\t1\n"
DELTA = (
    "qid\tpid\taugment_score\tbaseline_score\tdelta\n012\t0120\t0.5\t0.5\t0.0\n012\t0121\t0.25\t0\t2.5e-1\n"
)
Rows = dict[str, list[Any]]
SCORES: Rows = {
    "012": [["0121", 2.5], ["0120", -1]],
    "011": [["0112", 3.0], ["0110", 2.0], ["0111", 0.0]],
}


def written(folder: Path, text: str, name: str = "4_relevance_mapping.tsv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_labels_and_gains_tell_what_is_useful(tmp_path: Path) -> None:
    assert read_useful(written(tmp_path, MAPPING), LISTS) == {
        "011": {"0110": True, "0111": False, "0112": True}
    }
    tiny = DELTA.replace("0.0\n", "1e-17\n")
    for text in (DELTA, tiny, "\ufeff" + DELTA.replace("\n", "\r\n")):
        assert read_useful(written(tmp_path, text), LISTS) == {"012": {"0120": False, "0121": True}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MAPPING.replace("\t1\n", "\t2\n", 1), "mapping.tsv:2: relevance_label: '2' is not 0 or 1"),
        (DELTA.replace("0.0\n", "nan\n"), "mapping.tsv:2: delta: 'nan' is not a finite number"),
        (MAPPING.replace("\t0\n", "\n"), "mapping.tsv:3: has 2 cells where the first line names 3"),
        (MAPPING.replace("pid", "item"), "mapping.tsv:1: is no header with qid, pid and relevance_label or delta"),
        (MAPPING + "011\t0110\t1\n", "mapping.tsv:5: pid: '0110' was already given for query '011'"),
        (MAPPING.replace("011\t0112\t1\n", ""), "query '011' lacks item '0112' (1 of 3 items)"),
        (MAPPING.replace("\t0112", "\t112"), "query '011' has no item '112'"),
        (MAPPING.replace("\n011\t", "\n11\t"), "query '11' is not in the dataset"),
        ("", "is empty"),
    ],
)  # fmt: skip
def test_a_slip_in_labels_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_useful(written(tmp_path, text), LISTS)
    assert message in raised.value.message and raised.value.hint


def run(scores: Rows) -> str:
    rows = [
        f"{q} Q0 {doc_id} {rank} {score} tag"
        for q, ranking in scores.items()
        for rank, (doc_id, score) in enumerate(ranking, start=1)
    ]
    return "\n".join(rows) + "\n"


def test_scores_come_from_released_json_or_a_run(tmp_path: Path) -> None:
    expected = {query_id: dict(ranking) for query_id, ranking in SCORES.items()}
    for path in (written(tmp_path, json.dumps(SCORES), "4.json"), written(tmp_path, run(SCORES), "bm25.run")):
        assert read_retrieval(path, LISTS, needed=["011", "012"]) == expected


def test_of_a_corpus_only_what_was_found_has_scores(tmp_path: Path) -> None:
    path = written(tmp_path, run({**SCORES, "011": SCORES["011"][:2]}), "bm25.run")
    assert list(read_retrieval(path, LISTS, ["011"], whole=False)["011"]) == ["0112", "0110"]
    with pytest.raises(UsageError, match=r"query '011' lacks item '0111' \(1 of 3 items\)"):
        read_retrieval(path, LISTS, ["011"])


@pytest.mark.parametrize("form", ["json", "run"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"011": [["0110", "nan"], *SCORES["011"][:1], SCORES["011"][2]]}, "bm25."),
        ({"011": [*SCORES["011"], ["0110", 1]]}, "'0110' was already given for query '011'"),
        ({"011": [*SCORES["011"], ["9", 1]]}, "query '011' has no item '9'"),
        ({"013": [["9", 1]]}, "query '013' is not in the dataset"),
    ],
)  # fmt: skip
def test_a_slip_in_retrieval_is_named(tmp_path: Path, form: str, change: Rows, message: str) -> None:
    scores = {**SCORES, **change}
    path = written(tmp_path, json.dumps(scores) if form == "json" else run(scores), f"bm25.{form}")
    with pytest.raises(UsageError) as raised:
        read_retrieval(path, LISTS, ["011"])
    assert message in raised.value.message and raised.value.hint


def test_a_query_without_scores_and_what_is_no_retrieval_file_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"011": SCORES["011"]}), "4.json")
    assert read_retrieval(path, LISTS, ["011"])
    with pytest.raises(UsageError, match=r"has no scores for query '012' \(1 lack them\)"):
        read_retrieval(path, LISTS, ["011", "012"])
    for text, message in (
        ("[1]", "expected `object`, got `array`"),
        ('{"a": {"bc": 1}}', r"\[...\]: expected `array`, got `object`"),
        ('{"a": [[null, 1]]}', r"\[...\]\[0\]\[0\]: expected `int | str`, got `null`"),
        ('{"a": [["b", 1, 2]]}', "expected `array` of length 2"),
        ("{", "not JSON"),
    ):
        with pytest.raises(UsageError, match=message):
            read_retrieval(written(tmp_path, text, "4.json"), LISTS, [])


def test_files_of_another_task_or_generator_are_refused(tmp_path: Path) -> None:
    labels = tmp_path / "lamp_utility_labels_flanT5Base" / "4_relevance_mapping.tsv"
    scores = tmp_path / "flanT5Base" / "bm25" / "4.json"
    for path in (labels, scores):
        check_belongs(path, "lamp/4", "hf:google/flan-t5-base")
        check_belongs(path, "my-data", "hf:models/flan-t5-base/")
        with pytest.raises(UsageError, match=r"is of LaMP-4, and the dataset is lamp/3\."):
            check_belongs(path, "lamp/3")
        with pytest.raises(UsageError, match=r"was made with google/flan-t5-base, and the generator is hf:google/flan-t5-small\."):  # fmt: skip
            check_belongs(path, "lamp/4", "hf:google/flan-t5-small")
    check_belongs(tmp_path / "gains.tsv", "lamp/4", "openai:gpt")
