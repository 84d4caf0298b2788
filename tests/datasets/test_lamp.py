"""The seven tasks of LaMP: what is asked, searched, shown and scored, from files that users bring."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from llmfair.datasets import fetch
from llmfair.datasets import lamp as of_lamp
from llmfair.datasets.answers import load_answers
from llmfair.datasets.base import cache_folder
from llmfair.datasets.lamp import LAYOUTS, read_retrieval, read_useful
from llmfair.errors import UsageError
from llmfair.prompts import load_prompt
from llmfair.rankers.reader import Fitting, by_words
from tests import lamp
from tests.cli.command import llmfair, refuses, well
from tests.cli.command import refusal as refused
from tests.datasets.trec_sources import FileServer

UTILITIES = {1: "accuracy", 2: "accuracy", 3: "mae", 4: "rouge-l", 5: "rouge-l", 6: "rouge-l", 7: "rouge-l"}
TEXT = lamp.sentence(1, 0)
ITEM = lamp.sentence(1, 2)
HEADLINE = " ".join(ITEM.split()[:4])


@pytest.mark.parametrize(
    ("number", "title", "text", "label"),
    [
        (1, HEADLINE, ITEM, None),
        (2, "", ITEM, lamp.TAGS[len(ITEM) % 3]),
        (3, "", ITEM, str(1 + len(ITEM) % 5)),
        (4, HEADLINE, ITEM, None),
        (5, HEADLINE, ITEM, None),
        (6, "", ITEM, HEADLINE),  # a retriever reads the text of an e-mail alone
        (7, "", ITEM, None),
    ],
)
def test_every_task_has_its_questions_profiles_and_answers(
    number: int, title: str, text: str, label: str | None, tmp_path: Path
) -> None:
    dataset = load_answers(f"lamp/{number}", lamp.write_lamp(tmp_path, number))
    assert [query.query_id for query in dataset.queries] == ["001", "011", "021"]
    query, entry = dataset.queries[1], lamp.inputs(number)[1]
    assert query.text == entry["input"] and "".join(dataset.questions[query.query_id].parts) == query.text
    assert dataset.questions["011"].golds == (lamp.outputs(number)["golds"][1]["output"],)
    assert dataset.prompt == f"rag/lamp-{number}" and not dataset.shared
    assert dataset.task.utility == UTILITIES[number]
    assert dataset.task.label_utility == ("accuracy" if number == 3 else "")
    items = dataset.candidates(query)
    assert items.doc_ids == tuple(f"011{place}" for place in range(12)) and items.relevance == {}
    item = items.documents[2]
    assert (item.title, item.text) == (title, text)
    assert item.groups == ({} if label is None else {"label": (label,)})
    quoted = f'{" ".join(TEXT.split()[:4])} Of "quoted" things'
    assert dataset.searched(query) == (quoted if number == 1 else TEXT)
    prompt = load_prompt(dataset.prompt)
    (message,) = Fitting(prompt, by_words(512), dataset.questions[query.query_id].parts, [item]).messages(
        [item.doc_id]
    )
    assert (title if number == 1 else text) in message.content
    assert label is None or label in message.content


def test_task_1_puts_items_before_its_question_and_says_what_an_answer_means(tmp_path: Path) -> None:
    dataset = load_answers("lamp/1", lamp.write_lamp(tmp_path, 1))
    query = dataset.queries[0]
    before, behind = dataset.questions[query.query_id].parts
    assert before.endswith('", ') and behind.startswith("which reference is related?")
    assert dataset.questions[query.query_id].meanings.get("[2]") == 'Of "quoted" things'
    assert dataset.questions[query.query_id].meanings.get("neither") is None


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        ('with the title "T", which reference is related? [1]: "A" [2]: "B"', "A B"),
        ('WITH THE TITLE "T", WHICH REFERENCE IS RELATED? [1]: "A "x" y" [2]: "B: "z""', 'A "x" y B: "z"'),
        ('the title "T", which reference is related? "A" or "B"? [1] or [2]', "A B"),
    ],
)
def test_references_are_read_with_quotation_marks_in_them(text: str, searched: str, tmp_path: Path) -> None:
    dataset = changed(tmp_path, 1, lambda entries: entries[0].update(input=text))
    assert dataset.searched(dataset.queries[0]) == searched


def test_all_layouts_are_found(tmp_path: Path) -> None:
    for number, (inputs, outputs) in enumerate(LAYOUTS):
        folder = lamp.write_lamp(tmp_path / f"{number}", 4, (inputs.format(4), outputs.format(4)))
        assert len(load_answers("lamp/4", folder).queries) == 3


def test_a_mark_at_the_head_numbers_for_scores_and_fields_of_no_use_are_fine(tmp_path: Path) -> None:
    entries = lamp.inputs(3)
    entries[0] |= {"user_id": 7}
    entries[0]["profile"][0] |= {"score": 5, "date": "2020"}
    entries[0]["profile"][1] |= {"score": 4.0, "text": ""}
    lamp.write_lamp(tmp_path, 3)
    (tmp_path / "3_user_dev_inputs.json").write_bytes(
        b"\xef\xbb\xbf" + json.dumps(entries, indent=2).replace("\n", "\r\n").encode()
    )
    dataset = load_answers("lamp/3", tmp_path)
    first, second = dataset.candidates(dataset.queries[0]).documents[:2]
    assert first.groups == {"label": ("5",)} and second.groups == {"label": ("4",)} and second.text == ""


def changed(folder: Path, number: int, change: Callable[[list[dict[str, Any]]], object]) -> Any:
    """A task whose inputs were changed."""
    lamp.write_lamp(folder, number)
    entries = lamp.inputs(number)
    change(entries)
    (folder / f"{number}_user_dev_inputs.json").write_text(json.dumps(entries))
    return load_answers(f"lamp/{number}", folder)


def refusal(dataset: Any) -> UsageError:
    with pytest.raises(UsageError) as raised:
        dataset.queries  # noqa: B018
    assert raised.value.hint and "Traceback" not in raised.value.message
    return raised.value


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (2, lambda e: e[1]["profile"][3].pop("tag"), "inputs.json: [1].profile[3].tag: is missing"),
        (4, lambda e: e[1]["profile"][3].update(text=None), "[1].profile[3].text: expected `int | float | str`"),
        (7, lambda e: e[0]["profile"][1].update(id="0010"), "query '001', profile.id: '0010' was already given"),
        (5, lambda e: e[2]["profile"].clear(), "inputs.json: [2].profile: is empty"),
        (1, lambda e: e[2].update(input='the title "T"'), "query '021', input: asks otherwise"),
        (4, lambda e: e[2].update(input="A headline"), "query '021', input: asks otherwise"),
        (4, lambda e: e.reverse(), "entry 1 is '021' in "),
        (4, lambda e: e[0].update(id="1"), "entry 1 is '1' in "),
    ],
)  # fmt: skip
def test_a_slip_in_the_inputs_is_named(
    number: int, change: Callable[[list[dict[str, Any]]], object], message: str, tmp_path: Path
) -> None:
    assert message in refusal(changed(tmp_path, number, change)).message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda golds: json.dumps(lamp.outputs(3)), "task: is 'LaMP_3', not LaMP_4"),
        (lambda golds: json.dumps(golds)[:-5], "outputs.json: not JSON"),
    ],
)
def test_a_slip_in_the_outputs_is_named(change: Callable[[Any], str], message: str, tmp_path: Path) -> None:
    lamp.write_lamp(tmp_path, 4)
    (tmp_path / "4_user_dev_outputs.json").write_text(change(lamp.outputs(4)))
    assert message in refusal(load_answers("lamp/4", tmp_path)).message


def test_without_files_the_way_to_bring_them_is_said(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(UsageError, match="no inputs and outputs of LaMP-4") as raised:
            _ = load_answers("lamp/4", folder).queries
        assert "--data DIR" in raised.value.hint and "datasets fetch lamp/4" in raised.value.hint


# Fetched over real HTTP on loopback: asked for, continued, read as a whole, and never done twice

FETCH = ("datasets", "fetch", "lamp/4", "--yes")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that has task 4 where LaMP has it."""
    monkeypatch.setattr(fetch, "PAUSES", (0.0,) * 5)
    questions, outputs = (json.dumps(of(4)).encode() for of in (lamp.inputs, lamp.outputs))
    files = {"LaMP_4/dev/dev_questions.json": questions, "LaMP_4/dev/dev_outputs.json": outputs}
    with ExitStack() as stack:
        server = stack.enter_context(FileServer(files).running())
        monkeypatch.setattr(of_lamp, "PUBLISHED", server.url(""))
        yield server


def test_a_task_is_fetched_once_and_then_a_dataset(server: FileServer) -> None:
    found = well(llmfair(*FETCH, "--json"))
    assert "CC BY-NC-SA 4.0" in found.err and "dev_questions.json and dev_outputs.json" in found.err
    assert (found.json["queries"], found.json["items"], found.json["already_fetched"]) == (3, 36, False)
    assert [of["bytes"] for of in found.json["sources"]] == [*map(len, server.files.values())][:2]
    requests = len(server.requests)
    again = well(llmfair(*FETCH))
    assert "fetched before" in again.out and "licence" not in again.err and len(server.requests) == requests
    assert len(load_answers("lamp/4").queries) == 3
    rows = llmfair("datasets", "list", "--json").json["datasets"]
    listed = {row["dataset"]: row["fetched"] for row in rows}
    assert listed["lamp/4"] and listed["lamp/2"] is False


def test_what_cannot_be_fetched_says_where_it_is_had(server: FileServer) -> None:
    refuses("without a terminal nobody can be asked whether to agree to a licence", *FETCH[:3])
    assert not server.requests
    refuses("Avocado collection (LDC2015T03)", "datasets", "fetch", "lamp/6", "--yes")
    refuses("for trec-fair collections", *FETCH, "--stream")
    refuses("can be fetched: ", "datasets", "fetch", "lamp/8")
    missing = llmfair("datasets", "fetch", "lamp/1", "--yes")
    assert "the server answers 404" in missing.err and "--data DIR" in missing.err and missing.code == 1


def test_what_is_no_lamp_is_not_kept(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files = {**server.files, "LaMP_4/dev/dev_outputs.json": b"<html>"}
    refused(llmfair(*FETCH), "what came is no LaMP", code=1)
    assert not list(Path(cache_folder() / "datasets/lamp/4").iterdir())


# Released files of labels and of retrieval: ids are texts, and what is not the dataset's is refused by name


LISTS = {"011": ["0110", "0111", "0112"], "012": ["0120", "0121"]}
MAPPING = "qid\tpid\trelevance_label\n011\t0110\t1\n011\t0111\t0\n011\t0112\t1\n"
DELTA = (
    "qid\tpid\taugment_score\tbaseline_score\tdelta\n012\t0120\t0.5\t0.5\t0.0\n012\t0121\t0.25\t0\t2.5e-1\n"
)
Rows = dict[str, list[Any]]
SCORES: Rows = {"012": [["0121", 2.5], ["0120", -1]], "011": [["0112", 3.0], ["0110", 2.0], ["0111", 0.0]]}


def written(folder: Path, text: str, name: str = "4_relevance_mapping.tsv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_labels_and_gains_tell_what_is_useful(tmp_path: Path) -> None:
    useful = {"0110": True, "0111": False, "0112": True}
    assert read_useful(written(tmp_path, MAPPING), LISTS) == {"011": useful}
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
        (MAPPING.replace("\n011\t", "\n11\t"), "query '11' has no item '0110'"),
        ("", "is empty"),
    ],
)  # fmt: skip
def test_a_slip_in_labels_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_useful(written(tmp_path, text), LISTS)
    assert message in raised.value.message and raised.value.hint


def run(scores: Rows) -> str:
    ranked = ((q, rank, *one) for q, of in scores.items() for rank, one in enumerate(of, start=1))
    rows = [f"{q} Q0 {doc_id} {rank} {score} tag" for q, rank, doc_id, score in ranked]
    return "\n".join(rows) + "\n"


def test_scores_come_from_released_json_or_a_run(tmp_path: Path) -> None:
    expected = {query_id: dict(ranking) for query_id, ranking in SCORES.items()}
    for path in (written(tmp_path, json.dumps(SCORES), "4.json"), written(tmp_path, run(SCORES), "bm25.run")):
        assert read_retrieval(path, LISTS, needed=["011", "012"]) == expected


def test_of_a_corpus_only_what_was_found_has_scores(tmp_path: Path) -> None:
    path = written(tmp_path, run({**SCORES, "011": SCORES["011"][:2]}), "bm25.run")
    assert list(read_retrieval(path, LISTS, ["011"], complete=False)["011"]) == ["0112", "0110"]
    with pytest.raises(UsageError, match=r"query '011' lacks item '0111' \(1 of 3 items\)"):
        read_retrieval(path, LISTS, ["011"])


@pytest.mark.parametrize("form", ["json", "run"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"011": [["0110", "nan"], *SCORES["011"][:1], SCORES["011"][2]]}, "bm25."),
        ({"011": [*SCORES["011"], ["0110", 1]]}, "'0110' was already given for query '011'"),
        ({"011": [*SCORES["011"], ["9", 1]]}, "query '011' has no item '9'"),
        ({"013": [["9", 1]]}, "query '013' has no item '9'"),
    ],
)  # fmt: skip
def test_a_slip_in_retrieval_is_named(tmp_path: Path, form: str, change: Rows, message: str) -> None:
    scores = {**SCORES, **change}
    path = written(tmp_path, json.dumps(scores) if form == "json" else run(scores), f"bm25.{form}")
    with pytest.raises(UsageError) as raised:
        read_retrieval(path, LISTS, ["011"])
    assert message in raised.value.message and raised.value.hint


def test_a_query_without_scores_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"011": SCORES["011"]}), "4.json")
    assert read_retrieval(path, LISTS, ["011"])
    with pytest.raises(UsageError, match=r"has no scores for query '012' \(1 lack them\)"):
        read_retrieval(path, LISTS, ["011", "012"])
