"""Whether one text entails another, by a classifier in this process: its class by name, the pair cut, batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.nli import TOKENS, encode, nli
from llmfair.errors import BackendError, UsageError
from llmfair.nouns import Chat, Completion, Document, Message, Request, Sampling, Text
from llmfair.prompts import load_prompt
from llmfair.rankers.reader import Judging
from tests import models
from tests.backends.asking import answers_of
from tests.cli.command import llmfair, ran, refuses, table
from tests.folders import write
from tests.lamp import WORDS
from tests.models import one_thread as one_thread

pytestmark = pytest.mark.whole

models.needs_local()
CLASSES = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
ITEMS = {f"d{n}": Document(f"d{n}", f"Title {n}", "some words of an item " * (5 * n % 17)) for n in range(12)}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, but for a bias that makes every class likeliest now and then."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = models.bert(tmp_path_factory.mktemp("models") / "mnli", classes=CLASSES)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    texts = [[message.content for message in chat.messages] for chat in chats(["comedy", "satire", "essay"])]
    with torch.inference_mode():
        logits = torch.cat([model(**tokenizer(*pair, return_tensors="pt")).logits for pair in texts])
    model.classifier.bias.data -= logits.median(0).values
    models.save(model, folder)
    return folder


def permuted(folder: Path, copy: Path, places: Sequence[int]) -> Path:
    """The same classifier with its classes in another order."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    for weights in (model.classifier.weight, model.classifier.bias):
        weights.data = weights.data[list(places)].clone()
    model.config.id2label = {place: CLASSES[old].lower() for place, old in enumerate(places)}
    model.config.label2id = {name: place for place, name in model.config.id2label.items()}
    models.save(model, copy)
    AutoTokenizer.from_pretrained(folder).save_pretrained(copy)
    return copy


def answers(model: Path, chats: Sequence[Chat], alone: bool = False) -> list[Completion]:
    asked = [Request(chat, Sampling(), f"key {n}", "probe") for n, chat in enumerate(chats)]
    return answers_of(nli(str(model), BackendOptions()), asked, alone=alone)


def chats(outputs: Sequence[str] = ("comedy", "a much longer claim of many words")) -> list[Chat]:
    pairs = [(doc_id, output) for doc_id in ITEMS for output in outputs]
    judging = Judging("q", ITEMS, pairs, load_prompt("rag/entailment"), "It is about {output}.")
    return [judging.chat(pair) for pair in pairs]


def test_a_batch_says_what_each_alone_does_and_the_likeliest_class_decides(
    classifier: Path, tmp_path: Path
) -> None:
    turned = permuted(classifier, tmp_path / "permuted", (2, 0, 1))
    assert [x.text for x in answers(turned, chats())] == [one.text for one in answers(classifier, chats())]
    together, alone = answers(classifier, chats()), answers(classifier, chats(), alone=True)
    assert {one.text for one in together} == {"yes", "no"}
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs is not None and one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        likeliest = max(one.logprobs, key=one.logprobs.__getitem__)
        assert one.text == other.text == ("yes" if likeliest == "ENTAILMENT" else "no")


def test_it_is_what_the_classifier_says_of_the_pair(classifier: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(classifier)
    model = AutoModelForSequenceClassification.from_pretrained(classifier).eval()
    chat = chats()[5]
    pair = tokenizer(*(message.content for message in chat.messages), return_tensors="pt")
    with torch.inference_mode():
        expected = model(**pair).logits[0].log_softmax(-1).tolist()
    (found,) = answers(classifier, [chat])
    assert found.logprobs == pytest.approx(dict(zip(CLASSES, expected, strict=True)), abs=1e-5)
    assert found.prompt_tokens == pair.input_ids.shape[1]


def test_the_premise_is_cut_and_texts_stay_texts(classifier: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(classifier)
    claim = tokenizer("a claim", add_special_tokens=False).input_ids
    cut = encode(tokenizer, TOKENS, "word " * 900, "a claim")["input_ids"]
    assert len(cut) == TOKENS and cut[-len(claim) - 1 : -1] == claim
    assert len(encode(tokenizer, TOKENS, "a premise", "word " * 900)["input_ids"]) == TOKENS
    hostile = encode(tokenizer, TOKENS, "a [SEP] b", "c [CLS]")["input_ids"]
    assert hostile.count(tokenizer.sep_token_id) == 2 and hostile.count(tokenizer.cls_token_id) == 1


def test_a_classifier_without_entailment_is_refused_and_its_classes_listed(tmp_path: Path) -> None:
    models.bert(tmp_path / "stars", classes=("1 star", "2 stars"))
    flags = ("rag", "--attribution", f"nli:{tmp_path / 'stars'}")
    refuses("has no class 'entailment': its classes are 1 star, 2 stars.", *flags)
    models.bert(tmp_path / "bare")
    refuses("has no class 'entailment'", "rag", "--attribution", f"nli:{tmp_path / 'bare'}")
    assert not Path("runs").exists()


def test_it_answers_nothing_else_and_files_that_are_broken_are_said_in_a_sentence(
    classifier: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="says whether one text entails another"):
        answers(classifier, [Chat((Message("user", "Who?"),), Text())])
    models.bert(tmp_path / "broken", classes=CLASSES)
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"none")
    with pytest.raises(BackendError, match="cannot be loaded"):
        answers(tmp_path / "broken", chats())


def test_too_little_memory_names_what_it_takes(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    def none(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(AutoModelForSequenceClassification, "from_pretrained", none)
    with pytest.raises(BackendError, match="does not fit the memory of") as error:
        answers(classifier, chats())
    assert error.value.hint == "a smaller model"


def corpus(folder: Path) -> Path:
    """Six questions about twelve notes, four of them judged useful for each; the words differ from note to note."""
    texts = [" ".join(WORDS[(n * 3 + m) % 10] for m in range(9)) for n in range(12)]
    docs = ({"doc_id": f"d{n}", "title": WORDS[n % 10], "text": text} for n, text in enumerate(texts))
    folder.mkdir()
    write(folder / "docs.jsonl", map(json.dumps, docs))
    write(folder / "queries.tsv", (f"q{n}\twhat of the {WORDS[n]} and the {WORDS[n + 3]}?" for n in range(6)))
    write(folder / "qrels.txt", (f"q{n} 0 d{(n * 2 + m) % 12} 1" for n in range(6) for m in range(4)))
    write(folder / "answers.jsonl", (json.dumps({"query_id": f"q{n}", "gold": WORDS[n]}) for n in range(6)))
    return folder


def test_outputs_of_a_model_here_are_judged_by_a_classifier_here(classifier: Path, tmp_path: Path) -> None:
    """The published design with tiny models: T5 with beams, entailment of bare answers."""
    t5 = models.t5(tmp_path / "t5", varied=True)
    ran(
        "rag", "-q", "--no-report", "--no-cache", "--preset", "paper", "-d", str(corpus(tmp_path / "corpus")), "--useful",
        "qrels", "-m", f"hf:{t5}", "--retriever", "bm25-okapi", "--samples", "2", "-k", "3",
        "--alpha", "1,8", "--max-tokens", "8", "--max-invalid", "1", "-o", "one", "--attribution", f"nli:{classifier}",
    )  # fmt: skip
    found = json.loads(Path("one/results.json").read_text())
    outputs = {line["output"] for line in table(Path("one/outputs.csv"))}
    asked = json.loads(Path("one/manifest.json").read_text())["settings"]["identity"]
    assert len(outputs) > 5 and "num_beams=4" in asked
    assert found["judged"]["by"] == "nli"
    assert 0 < found["judged"]["supported"] < found["judged"]["asked"]
    assert all(r["value"] is not None for r in found["rows"] if r["measure"].startswith(("EAR", "EAE-D")))
    for row in found["rows"]:
        assert row["value"] is not None or row["reason"], row
    assert llmfair("runs", "check", "one").code == 0
