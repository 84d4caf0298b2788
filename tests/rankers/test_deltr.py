"""DELTR: the reference figures, its gradient in numbers, the published models, and what it takes."""

from __future__ import annotations

import math
import re
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from llmfair.errors import UsageError
from llmfair.nouns import LABEL, Attribute, Candidates, Document, Query, Side
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers.deltr import (
    PROTECTED,
    Features,
    Gradient,
    Standardize,
    Training,
    TrainingRows,
    scale_of,
    start_weights,
)
from llmfair.rankers.reader import QUESTION_TOKENS, Fitting, Ruler, by_tokens, by_words, check_prompt
from llmfair.retrieval.bm25 import Bm25Index
from tests.models import chat_tokenizer, needs_local
from tests.shared import realdata, vectors

Floats = NDArray[np.float64]
GRADIENTS: tuple[tuple[Gradient, str], ...] = (
    ("exact", "true_gradient_same_schedule"),
    ("compat", "fairsearchdeltr"),
)


def scaled(features: Floats, how: Standardize = "columns") -> Floats:
    mean, deviation = scale_of(features, how)
    return (features - mean) / deviation


def rows_of(case: dict[str, Any]) -> TrainingRows:
    """The rows of a reference case: query, document, flag, features, judgement."""
    given = case["input"]
    table = np.array(given["rows"], dtype=float)
    features = table[:, 2:-1]
    if given["standardize"]:
        features = scaled(features, "global")
    return TrainingRows(table[:, 0], features, table[:, -1])


def drawn(queries: int, items: int, columns: int, seed: int = 1) -> TrainingRows:
    random = np.random.default_rng(seed)
    features = random.normal(size=(queries * items, columns))
    features[:, PROTECTED] = random.random(len(features)) < 0.4
    relevant = random.random(len(features)) < 1 / (
        1 + np.exp(1 + 2 * features[:, PROTECTED] - features[:, 1])
    )
    return TrainingRows(np.repeat(np.arange(queries), items), features, relevant)


def losses(rows: TrainingRows, weights: ArrayLike) -> dict[str, Floats]:
    """What weights cost by query, (queries,) each, as the paper has it; an exposure without a member is NaN."""
    figures = []
    for query in range(len(rows.sizes)):
        of = rows.query == query
        scores, judged = rows.features[of] @ weights, np.exp(rows.judgements[of])
        logs = scores - np.logaddexp.reduce(scores)
        groups = (rows.features[of, PROTECTED] == flag for flag in (0, 1))
        shown = [np.exp(logs[g]).mean() / math.log(2) if g.any() else np.nan for g in groups]
        gap = max(0.0, np.nan_to_num(shown[0] - shown[1]))
        figures.append((-(judged / judged.sum()) @ logs, *shown, gap**2))
    names = ("listnet_cross_entropy", "exposure_unprotected", "exposure_protected", "U")
    return dict(zip(names, np.array(figures).T, strict=True))


def objective(training: Training, rows: TrainingRows, weights: ArrayLike) -> float:
    """What the steps lower: Σ_q n_q (L_q / ln N + γ U_q)."""
    cost, divisor = losses(rows, weights), math.log(len(rows.query)) if training.divided else 1
    return float(rows.sizes @ (cost["listnet_cross_entropy"] / divisor + training.gamma * cost["U"]))


def same(cost: dict[str, Floats], expected: dict[str, Any], rows: TrainingRows, gamma: float) -> None:
    """Losses and exposures as a reference case has them, to 1e-8; what it does not define is NaN."""
    for name, value in cost.items():
        of_queries = [expected["per_query"][f"{query:g}"][name] for query in rows.query_ids]
        assert value == pytest.approx(np.array(of_queries, dtype=float), abs=1e-8, nan_ok=True), name
    total = (cost["listnet_cross_entropy"] + gamma * cost["U"]).sum()
    assert total == pytest.approx(expected["loss_paper_sum_over_queries"], abs=1e-8)


def test_the_reference_figures() -> None:
    for case in vectors("deltr")["cases"]:
        given, expected, id = case["input"], case["expected"], case["id"]
        rows, gamma = rows_of(case), given["gamma"]
        same(losses(rows, given["omega0"]), expected["loss_at_omega0"], rows, gamma)
        for gradient, name in GRADIENTS:
            known = expected[f"omega_{name}"]
            if None in known:  # its NaN, of a query without a protected item
                known, name = expected["omega_true_gradient_same_schedule"], "true_gradient"
            training = Training(gamma, gradient, given["iterations"], given["learning_rate"])
            assert training.weights(rows, given["omega0"]) == pytest.approx(known, abs=1e-6), (id, gradient)
            at = expected[f"loss_at_omega_{name.removesuffix('_same_schedule')}"]
            same(losses(rows, known), at, rows, gamma)
            assert objective(training, rows, known) == pytest.approx(at["loss_package"], abs=1e-6), id


@pytest.mark.parametrize("divided", [True, False])
def test_the_gradient_equals_the_numeric_one(divided: bool) -> None:
    rows, training = drawn(5, 12, 6), Training(gamma=500, divided=divided)
    for weights in np.random.default_rng(3).normal(size=(8, 6)):
        step = 1e-6 * np.eye(6)
        numeric = [
            (objective(training, rows, weights + one) - objective(training, rows, weights - one)) / 2e-6
            for one in step
        ]
        assert training.slope(rows, weights) == pytest.approx(numeric, rel=1e-5, abs=1e-5)
    assert losses(rows, weights)["U"].any(), "some query has to show the protected less"


def test_rows_of_a_query_need_not_stand_together_and_scores_of_any_size_are_read() -> None:
    rows = drawn(3, 10, 4)
    mixed = np.random.default_rng(5).permutation(30)
    other = TrainingRows(np.repeat(["b", "a", "c"], 10)[mixed], rows.features[mixed], rows.judgements[mixed])
    start = start_weights(4)
    expected = Training(steps=50).weights(rows, start)
    assert Training(steps=50).weights(other, start) == pytest.approx(expected, rel=1e-9)
    assert np.isfinite(Training().slope(rows, np.full(4, 4e3))).all()


def test_more_gamma_shows_the_protected_more_and_no_query_needs_both_groups() -> None:
    rows = drawn(8, 20, 4)
    gaps = []
    for gamma in (0, 500, 5000):
        cost = losses(rows, Training(gamma).weights(rows, start_weights(4)))
        gaps.append((cost["exposure_unprotected"] - cost["exposure_protected"]).mean())
    assert gaps[0] > gaps[1] > gaps[2]
    features = rows.features.copy()
    features[:20, PROTECTED] = 0
    one_sided = TrainingRows(rows.query, features, rows.judgements)
    assert np.isfinite(Training(steps=50).weights(one_sided, start_weights(4))).all()
    assert not one_sided.of_both[0]


def test_what_is_no_number_is_refused() -> None:
    rows = drawn(2, 10, 3)
    with pytest.raises(UsageError, match="grew beyond all numbers"):
        Training(gamma=1e300, rate=1e200, steps=5).weights(rows, [0.1, 0.2, 0.3])
    with pytest.raises(UsageError, match="have to be numbers"):
        TrainingRows([1, 1], [[0.0, float("nan")], [1.0, 1.0]], [0, 1])
    with pytest.raises(UsageError, match="no two judged items"):
        TrainingRows([1], [[0, 1]], [0])


def test_features_are_standardized_by_column_or_as_a_whole_and_flags_are_left() -> None:
    features = np.array([[0, 1, 5], [1, 3, 5]], dtype=float)
    assert scaled(features).tolist() == [[0, -1, 0], [1, 1, 0]]
    whole = (features - features.mean()) / features.std()
    assert scaled(features, "global")[:, 1:] == pytest.approx(whole[:, 1:])
    assert scaled(features, "global")[:, PROTECTED].tolist() == [0, 1]


def w3c(name: str) -> tuple[Floats, Floats, Floats]:
    """Query, features and judgement of TREC W3C's expert search, of its first fold."""
    path = realdata("fairrag/deltr_trec_w3c_fold1") / name
    table = np.loadtxt(path, delimiter=",")
    return table[:, 0], table[:, 1:-1], table[:, -1]


def published(name: str) -> Floats:
    return np.loadtxt(realdata("fairrag/deltr_trec_w3c_fold1") / name / "model.m")


@pytest.mark.parametrize("name", ["GAMMA=0", "GAMMA=SMALL", "GAMMA=LARGE"])
def test_published_weights_give_the_published_predictions(name: str) -> None:
    _, features, _ = w3c("test.csv")
    path = realdata("fairrag/deltr_trec_w3c_fold1") / name / "predictions_UNSORTED.pred"
    assert np.abs(features @ published(name) - np.loadtxt(path, delimiter=",")[:, 2]).max() < 1e-12


@pytest.mark.whole
def test_without_gamma_the_published_weights_are_found_again() -> None:
    training = Training(0, rate=1e-5, divided=False)
    found = training.weights(TrainingRows(*w3c("train.csv")), start_weights(6))
    assert found == pytest.approx(published("GAMMA=0"), abs=0.005)


@pytest.mark.whole
def test_with_gamma_they_are_but_for_the_column_that_the_authors_gradient_moves() -> None:
    training = Training(20_000, rate=1e-5, divided=False)
    found = training.weights(TrainingRows(*w3c("train.csv")), start_weights(6))
    assert found[3] == pytest.approx(
        -0.0316, abs=1e-4
    )  # -0.0942 published: one number taken from every column
    assert np.delete(found, 3) == pytest.approx(np.delete(published("GAMMA=SMALL"), 3), abs=0.005)


@pytest.mark.whole
@pytest.mark.parametrize("gradient", ["exact", "compat"])
def test_forty_seven_queries_of_200_take_seconds(gradient: Gradient) -> None:
    rows = drawn(47, 200, 8)
    started = time.process_time()
    Training(gradient=gradient, steps=3000).weights(rows, start_weights(8))
    took = time.process_time() - started
    tracemalloc.start()
    Training(gradient=gradient, steps=20).weights(drawn(47, 200, 8), start_weights(8))
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert took < 20 and megabytes < 300


# What a learnt ranker knows of candidates


GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "women", Side.UNPROTECTED: "men"})
DOCUMENTS = (
    Document("a", "Physics prize", "a woman in the laboratory", {"gender": ("female",)}),
    Document("b", "Chemistry", "a physics prize and a film", {"gender": ("male",)}),
    Document("c", "Film", "nothing of it", {}),
)
QUERY = Query("q", "physics prize")
METADATA = ("predicted quality", "ln sitelinks", "relative page views")


def test_flag_title_text_and_length(tmp_path: Path) -> None:
    features = Features(DOCUMENTS, GENDER, tmp_path)
    assert features.names == ("protected", "BM25(query, title)", "BM25(query, text)", "ln length")
    assert features.missing == METADATA
    found = features(Candidates(QUERY, DOCUMENTS[::-1], {}))
    assert found[:, 0].tolist() == [0, 0, 1], "of no group is not protected"
    titles = Bm25Index(None, [Document(one.doc_id, one.title, "") for one in DOCUMENTS])
    assert found[:, 1].tolist() == [0, 0, titles.scores("physics prize", ["a"])["a"]]
    assert found[0, 2] == found[2, 2] == 0 < found[1, 2]
    assert found[:, 3] == pytest.approx([math.log(5), math.log(8), math.log(8)])


def test_what_no_document_has_is_left_out_by_name(tmp_path: Path) -> None:
    bare = tuple(Document(one.doc_id, one.title, "", one.groups) for one in DOCUMENTS)
    features = Features(bare, GENDER, tmp_path)
    assert features.names == ("protected", "BM25(query, title)", "ln length")
    assert features.missing == ("BM25(query, text)", *METADATA)
    assert features(Candidates(QUERY, bare, {})).shape == (3, 3)
    assert "text" not in features.identity and "bm25" in features.identity


def test_numbers_of_the_metadata_are_features_and_unknown_ones_their_mean(tmp_path: Path) -> None:
    numbers: tuple[dict[str, float], ...] = (
        {"pred_qual": 0.2, "num_sitelinks": 0.0},
        {"pred_qual": 0.6, "num_sitelinks": 8.0},
        {},
    )
    known = tuple(replace(one, numbers=of) for one, of in zip(DOCUMENTS, numbers, strict=True))
    features = Features(known, GENDER, tmp_path)
    assert features.names[-2:] == METADATA[:2] and features.missing == METADATA[2:]
    found = features(Candidates(QUERY, known, {}))[:, -2:]
    assert found == pytest.approx(np.array([[0.2, 0], [0.6, math.log(9)], [0.4, math.log(9) / 2]]))
    other = (*known[:2], replace(known[2], numbers={"pred_qual": 0.4}))
    assert Features(other, GENDER, tmp_path).identity != features.identity


# Questions and items cut to a context


class Spaced:
    """A tokenizer of words with the space before them, so that tokens put together are the text."""

    name_or_path = "mine/words"

    def __init__(self, model_max_length: int) -> None:
        self.model_max_length = model_max_length
        self.asked: list[str] = []

    def tokenize(self, text: str) -> list[str]:
        self.asked.append(text)
        return re.findall(r"\s*\S+", text)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)


def words(count: int, of: str = "w") -> str:
    return " ".join(f"{of}{number}" for number in range(count))


def item(doc_id: str, count: int = 3, label: str = "red", title: str = "") -> Document:
    return Document(doc_id, title, words(count, doc_id), {LABEL: (label,)})


def said(fitting: Fitting, *doc_ids: str) -> str:
    (message,) = fitting.messages(doc_ids)
    return message.content


def of(name: str, context: int, question: str | tuple[str, str], *items: Document) -> Fitting:
    parts = question if isinstance(question, tuple) else ("", question)
    return Fitting(load_prompt(name), by_tokens(Spaced(context)), parts, items)


def test_a_question_of_256_tokens_stays_and_one_more_is_cut() -> None:
    for count in (QUESTION_TOKENS, QUESTION_TOKENS + 1):
        shown = said(of("rag/lamp-7", 512, words(count), item("a", 2)), "a")
        assert shown.endswith(f" w{QUESTION_TOKENS - 1}")


def test_without_items_a_question_of_the_whole_context_stays_and_one_more_is_cut() -> None:
    for count in (512, 513):
        assert said(of("rag/lamp-7", 512, words(count))) == words(512)
    assert said(of("rag/lamp-7", 512, "a\n\nb ")) == "a\n\nb ", "what is not cut stays as it is"


def test_items_share_what_the_question_leaves_and_the_whole_is_cut_to_the_context() -> None:
    items = [item(name, 200) for name in "abc"]
    fitting = of("rag/lamp-7", 512, words(101), *items)
    lines = fitting.lines("abc")
    assert [len(line.split()) for line in lines] == [(512 - 101) // 3] * 3
    assert [len(line.split()) for line in fitting.lines("b")] == [200], "one item alone is not cut"
    shown = said(fitting, *"abc")
    assert len(shown.split()) == 512
    # What joins the lines and follows them counts for nothing, as in the published experiment: the question loses it.
    assert shown.startswith(
        ", and ".join(lines) + " are written by a person. Following the given patterns w0 "
    )
    assert not shown.endswith("w100")


@pytest.mark.parametrize("name", ["rag/question", "rag/cited", "rag/label"])
def test_a_prompt_of_our_own_keeps_all_that_stands_behind_its_items(name: str) -> None:
    items = [item(doc_id, 900) for doc_id in "abcde"]
    for context in (300, 512, 4096):
        shown = said(of(name, context, words(40), *items), *"abcde")
        assert context - len(items) < len(shown.split()) <= context
        assert "w39" in shown and (name != "rag/label" or shown.endswith("Answer with one label alone."))
        assert [int(k) for k in re.findall(r"^\[(\d)\]", shown, re.MULTILINE)] == [1, 2, 3, 4, 5]


def test_an_items_number_is_not_cut_and_each_item_is_split_once() -> None:
    tokenizer = Spaced(512)
    items = [item(name, 400) for name in "ab"]
    fitting = Fitting(load_prompt("rag/question"), by_tokens(tokenizer), ("", "why?"), items)
    orders = ["ab", "ba", "a", "b", "ab"]
    shown = [said(fitting, *order) for order in orders]
    assert re.findall(r"^\[(\d)\] (\w)0", shown[1], re.MULTILINE) == [("1", "b"), ("2", "a")]
    assert shown[0] == shown[4]
    longest = [text for text in tokenizer.asked if len(text.split()) >= 400]
    assert len([text for text in longest if "why?" not in text]) == 2


def test_lamp_1_has_its_items_behind_the_authors_title_unless_the_place_was_cut_away() -> None:
    papers = [Document("a", "First", ""), Document("b", "Second", "")]
    before, behind = 'the paper with the title "T", ', 'which reference is related? [1]: "x" [2]: "y"'
    shown = said(of("rag/lamp-1", 512, (before, behind), *papers), "a", "b")
    assert shown == f"{before}First, and Second, {behind}"
    long = f'the title "{words(250)}", '
    shown = said(of("rag/lamp-1", 512, (long, behind), *papers), "b")
    assert shown.startswith(f"{long}Second, which reference") and len(shown.split()) == QUESTION_TOKENS + 1
    gone = f'the title "{words(300)}", '
    shown = said(of("rag/lamp-1", 512, (gone, behind), *papers), "b", "a")
    assert shown.startswith('Second, and First, the title "w0 ')
    assert len(shown.split()) == QUESTION_TOKENS + 3
    assert said(of("rag/lamp-1", 512, ("", behind), *papers), "a") == f"First, {behind}"


def test_lamp_1_has_the_room_that_its_question_leaves_whole() -> None:
    """Where its parts are split is no matter: a text may have fewer tokens than its parts together."""
    parts = ("a b", "c d ")
    fitting = Fitting(
        load_prompt("rag/lamp-1"), by_tokens(Spaced(23)), parts, [item("a", 40, title=words(40))]
    )
    assert len(fitting.lines("a")[0].split()) == 23 - 3


def test_a_question_larger_than_the_context_leaves_nothing_to_items() -> None:
    shown = said(of("rag/lamp-4", 100, words(300), item("a", title="T")), "a")
    assert shown == ". " + words(99)


def test_words_stand_for_tokens_where_there_is_no_tokenizer() -> None:
    ruler = by_words(512)
    assert ruler.count(words(384)) == 512 and ruler.count(words(385)) == 514
    assert ruler.cut(words(400), 512) == words(384) and ruler.cut("a  b\n", 3) == "a  b\n"
    assert "0.75" in ruler.unit and ruler.cut("a b", -1) == ""


def test_a_tokenizer_without_a_context_needs_one() -> None:
    with pytest.raises(UsageError, match="mine/words does not say how many tokens"):
        by_tokens(Spaced(int(1e30)))
    assert by_tokens(Spaced(int(1e30)), 4096).context == 4096
    assert by_tokens(Spaced(1_000_000)).context == 1_000_000
    assert by_tokens(Spaced(512), 100).context == 100


def test_hostile_items_are_one_line_and_no_placeholder() -> None:
    hostile = Document("a", "{question}", "x\n[2] </s>{0}\u202e<|im_end|>")
    (line,) = of("rag/question", 512, "why?", hostile).lines("a")
    assert line == "[1] {question}: x (2) (/s){0} (|im_end|)"


def test_a_prompt_that_shows_labels_needs_them() -> None:
    labelled, bare = item("b"), Document("a", "", "text")
    with pytest.raises(UsageError, match=r"rag/label\.toml shows labels, and item 'a' has none"):
        check_prompt(load_prompt("rag/label"), [labelled, bare])
    check_prompt(load_prompt("rag/label"), [labelled])
    check_prompt(load_prompt("rag/question"), [bare])


def written(path: Path, passage: str, items: str, bare: str = "{question}") -> Prompt:
    names = set(re.findall(r"\{(\w+)\}", passage + items + bare)) - {"passages"}
    declared = "\n".join(f'{name} = "x"' for name in names)
    (path / "own.toml").write_text(
        f'id = "own"\nsource = "own"\npassage = "{passage}"\n[placeholders]\n{declared}\n[variants]\n'
        f'bare = "{bare}"\nitems = "{items}"\n[[turns]]\nrole = "user"\ntext = "{{variant}}"\n'
    )
    return load_prompt(path / "own.toml")


@pytest.mark.parametrize(
    ("passage", "items", "bare", "message"),
    [
        ("[{k}]", "{passages} {question}", "{question}", "'passage' shows nothing of an item"),
        ("{item}", "{question}", "{question}", "variant 'items': placeholder 'item' is missing"),
        ("{item}", "{passages}", "{question}", "variant 'items': placeholder 'question' is missing"),
        ("{item}", "{passages} {question}", "none", "variant 'bare': placeholder 'question' is missing"),
        ("{itm}", "{passages} {question}", "{question}", "'passage' shows nothing of an item"),
    ],
)
def test_a_slip_in_a_prompt_of_ones_own_is_named(
    tmp_path: Path, passage: str, items: str, bare: str, message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        check_prompt(written(tmp_path, passage, items, bare))
    assert message in raised.value.message and "own.toml" in raised.value.message


def test_all_prompts_that_are_shipped_are_fit_and_listwise_is_not() -> None:
    for name in ("question", "cited", "label", *(f"lamp-{number}" for number in range(1, 8))):
        check_prompt(load_prompt(f"rag/{name}"))
    with pytest.raises(UsageError, match="no variant 'bare'"):
        check_prompt(load_prompt("listwise"))


def test_a_number_behind_the_text_is_part_of_the_line(tmp_path: Path) -> None:
    prompt = written(tmp_path, "{item} [{k}]", "{passages} {question}")
    fitting = Fitting(prompt, by_words(512), ("", "why?"), [item("a", 2), item("b", 2)])
    assert fitting.lines("ba") == ["b0 b1 [1]", "a0 a1 [2]"]


@pytest.mark.whole
def test_a_tokenizer_of_transformers_cuts_at_the_very_token(capfd: pytest.CaptureFixture[str]) -> None:
    needs_local()
    tokenizer: Any = chat_tokenizer()
    tokenizer.model_max_length = 512
    ruler: Ruler = by_tokens(tokenizer)
    text = words(400)
    for limit in (QUESTION_TOKENS, ruler.context):
        assert ruler.count(text) > limit
        exact = ruler.cut(text, limit)
        assert ruler.count(exact) == limit and text.startswith(exact)
        assert ruler.cut(exact, limit) == exact
    fitting = Fitting(load_prompt("rag/lamp-7"), ruler, ("", text), [item("a", 900), item("b", 900)])
    assert ruler.count(said(fitting, "a", "b")) == 512
    assert ruler.count(fitting.lines("ab")[0]) == (512 - QUESTION_TOKENS) // 2
    assert not capfd.readouterr().err, "that a text is too long is no news here"
