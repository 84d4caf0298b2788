"""Models in this process: margins in float32, text, held answers, adapters, and every way to fail said in a sentence."""

from __future__ import annotations

import asyncio
import json
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfair import checkpoints, nouns
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import LocalBackend, hf
from llmfair.backends.local import ChatTemplate, label_answers
from llmfair.errors import BackendError, ContextTooLong, MissingExtra, UsageError
from llmfair.rankers.choices import LABELS, read_margin
from tests import models
from tests.backends.asking import answers_of
from tests.cli.command import kept, llmfair, only_run, ran, refuses
from tests.models import one_thread as one_thread

pytestmark = pytest.mark.whole

models.needs_local()
LETTER, ORDER = nouns.Labels(("A", "B")), nouns.Permutation(2)
PLAIN = BackendOptions()
FAMILIES: tuple[models.Family, ...] = ("mistral", "llama", "qwen")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {family: models.causal(root / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def mistral(folders: dict[str, Path]) -> Path:
    return folders["mistral"]


def request(
    number: int = 0, expects: nouns.Expects = LETTER, key: str | None = None, **sampling: Any
) -> nouns.Request:
    """A question of its own length for each number."""
    words = " ".join(f"word{word}" for word in range(number % 17))
    chat = nouns.Chat(
        (nouns.Message("system", "You choose."), nouns.Message("user", f"{number}: {words} A or B?")), expects
    )
    settings = {"max_tokens": 12, **sampling}
    return nouns.Request(chat, nouns.Sampling(**settings), key or f"key {number}", f"probe {number}")


def answers(
    model: Path | str, requests: Iterable[nouns.Request], options: BackendOptions = PLAIN, alone: bool = False
) -> list[nouns.Completion]:
    return answers_of(hf(str(model), options), requests, alone=alone)


def loaded(folder: Path, **settings: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **settings)


def changed(folder: Path, to: Path, change: Callable[[Any], None], **settings: Any) -> Path:
    """A copy of a model whose weights were changed."""
    import torch
    from transformers import AutoTokenizer

    model = loaded(folder, **settings)
    with torch.no_grad():
        change(model)
    models.save(model, to)
    AutoTokenizer.from_pretrained(folder).save_pretrained(to)
    return to


@pytest.mark.parametrize("family", ["mistral", "qwen"])
def test_margins_are_those_of_an_unpadded_pass_alone_or_in_a_batch(
    folders: dict[str, Path], family: models.Family
) -> None:
    import torch

    template = ChatTemplate(models.chat_tokenizer(family))
    model = loaded(folders[family])
    for expects in (LETTER, ORDER):
        asked = [request(number, expects, margins=True) for number in range(9)]
        together, single = answers(folders[family], asked), answers(folders[family], asked[:3], alone=True)
        for one, found in zip(asked, together, strict=True):
            ids, labels = template.label_ids(one.chat.messages, label_answers(expects))
            with torch.inference_mode():
                expected = model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1)
            assert found.logprobs is not None and found.prompt_tokens == len(ids)
            for label, row in labels.items():
                assert found.logprobs[label] == pytest.approx(
                    float(expected[row]), abs=2 * models.margin_error()
                )
        labels_of_form = ("A", "B") if expects is LETTER else ("1", "2")
        for batched, alone in zip(together, single, strict=False):
            margins = [read_margin(completion, labels_of_form).margin for completion in (batched, alone)]
            assert margins[0] == pytest.approx(margins[1], abs=models.margin_error())


def test_what_prompts_begin_with_is_read_once(mistral: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 64 bits, where nothing but a mistake could move a margin; in float32 every prompt is read whole."""
    from llmfair.backends import local
    from llmfair.checkpoints import Place, find_checkpoint

    checkpoint = find_checkpoint(str(mistral))
    model = local.load_model(checkpoint, Place("cpu", "float64", ""), PLAIN, "sdpa")
    assert model.template is not None
    prompts, labels = [], []
    for number in (0, 3, 11, 5, 5):
        shown = (nouns.Message("user", f"{'Which one is it? ' * 6}{'word ' * number}A or B?"),)
        ids, tokens = model.template.label_ids(shown, label_answers(LETTER))
        prompts.append(ids)
        labels.append(tokens)
    read: list[int] = []
    reading = local.LocalModel._read

    def noted(self: local.LocalModel, ids: Sequence[int]) -> Any:
        read.append(len(ids))
        return reading(self, ids)

    monkeypatch.setattr(local.LocalModel, "_read", noted)
    shared = model.margins([*zip(prompts, labels, strict=True)])
    assert max(read) >= local.FEWEST_SHARED
    assert prompts[0][: max(read)] == prompts[2][: max(read)] and max(read) < len(prompts[0])
    whole = [model.margins([(ids, tokens)])[0] for ids, tokens in zip(prompts, labels, strict=True)]
    for one, other in zip(shared, whole, strict=True):
        assert one[1] == other[1]
        assert one[0] == pytest.approx(other[0], abs=2e-6)
    read.clear()
    same = model.margins([(prompts[0], labels[0])] * 4)
    assert max(read) == len(prompts[0]) - 1 and same[3][0] == pytest.approx(whole[0][0], abs=2e-6)
    read.clear()
    single = local.load_model(checkpoint, Place("cpu", "float32", ""), PLAIN, "sdpa")
    single.margins([*zip(prompts, labels, strict=True)])
    assert not read


def test_bfloat16_margins_are_calculated_in_float32(mistral: Path, tmp_path: Path) -> None:
    """A debiased model's labels tie in bfloat16 logits; the margin still tells them apart."""
    import torch

    def close(model: Any) -> None:
        tokenizer = models.chat_tokenizer("mistral")
        a, b = (tokenizer(label, add_special_tokens=False).input_ids[0] for label in "AB")
        noise = torch.randn(64, generator=torch.Generator().manual_seed(1))
        model.lm_head.weight[b] = model.lm_head.weight[a] + (0.003 * noise).to(model.dtype)

    folder = changed(mistral, tmp_path / "close", close, dtype=torch.bfloat16)
    found = answers(folder, [request(number, margins=True) for number in range(24)])
    margins = [read_margin(one, LABELS["letter"]).margin for one in found]
    assert sum(margin == 0 for margin in margins) == 0
    plain = loaded(folder)
    assert plain.dtype == torch.bfloat16

    template, ties = ChatTemplate(models.chat_tokenizer("mistral")), 0
    for number in range(24):
        ids, labels = template.label_ids(request(number).chat.messages, label_answers(LETTER))
        with torch.inference_mode():
            logits = plain(torch.tensor([ids])).logits[0, -1]
        ties += int(logits[labels["A"]] == logits[labels["B"]])
    assert ties >= 3, "the model's own logits do tie"
    single = answers(folder, [request(number, margins=True) for number in range(4)], alone=True)
    for one, margin in zip(single, margins, strict=False):
        assert read_margin(one, LABELS["letter"]).margin == pytest.approx(margin, abs=0.05)


def test_capped_and_scaled_logits_and_output_biases_are_followed(tmp_path: Path) -> None:
    import torch

    for name in models.ALTERING:
        tokenizer = models.altering(tmp_path / name, name)
        (found,) = answers(tmp_path / name, [request(5, margins=True)], BackendOptions(backend_args=EAGER))
        assert found.logprobs is not None
        ids, labels = ChatTemplate(tokenizer).label_ids(request(5).chat.messages, label_answers(LETTER))
        with torch.inference_mode():
            own = loaded(tmp_path / name, attn_implementation="eager")(torch.tensor([ids])).logits[0, -1]
        expected = own.double().log_softmax(-1)
        for label, row in labels.items():
            assert found.logprobs[label] == pytest.approx(float(expected[row]), abs=1e-4), name


EAGER = {"attention": "eager"}


def test_an_unknown_change_of_the_logits_is_an_error_and_not_a_guess(
    mistral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import MistralForCausalLM

    own = MistralForCausalLM.forward

    def squared(self: Any, *arguments: Any, **named: Any) -> Any:
        found = own(self, *arguments, **named)
        found.logits = found.logits**3
        return found

    monkeypatch.setattr(MistralForCausalLM, "forward", squared)
    with pytest.raises(BackendError, match="in a way that is not known here") as error:
        answers(mistral, [request(margins=True)])
    assert "--answers text" in error.value.hint


def test_greedy_text_is_transformers_own_alone_and_in_a_batch(mistral: Path) -> None:
    import torch

    asked = [request(number, nouns.Text()) for number in range(5)]
    together = answers(mistral, asked)
    assert [one.text for one in together] == [one.text for one in answers(mistral, asked, alone=True)]
    template, model = ChatTemplate(models.chat_tokenizer("mistral")), loaded(mistral)
    for one, found in zip(asked[:3], together, strict=False):
        ids = torch.tensor([template.ids(one.chat.messages)])
        with torch.inference_mode():
            said = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, pad_token_id=0)
        assert found.text == template.tokenizer.decode(said[0, ids.shape[1] :], skip_special_tokens=True)
        assert found.finish is nouns.Finish.LENGTH and found.completion_tokens == 12


def test_a_checkpoint_s_own_sampling_settings_are_left_out(mistral: Path, tmp_path: Path) -> None:
    """Instruction-tuned checkpoints ship penalties and temperatures, which are no part of an audit."""
    folder = changed(mistral, tmp_path / "own", lambda model: None)
    settings = json.loads((folder / "generation_config.json").read_text())
    settings |= {
        "do_sample": True, "temperature": 2.0, "repetition_penalty": 5.0, "top_k": 3, "max_length": 9,
    }  # fmt: skip
    (folder / "generation_config.json").write_text(json.dumps(settings))
    asked = [request(number, nouns.Text(), max_tokens=24) for number in range(4)]
    assert [one.text for one in answers(folder, asked)] == [one.text for one in answers(mistral, asked)]


def test_draws_have_a_seed_of_their_own_and_do_not_depend_on_the_batch(mistral: Path) -> None:
    asked = [request(number, nouns.Text(), temperature=1.0) for number in range(4)]
    together = [one.text for one in answers(mistral, asked)]
    assert together == [one.text for one in answers(mistral, asked, alone=True)]
    greedy = [one.text for one in answers(mistral, [request(n, nouns.Text()) for n in range(4)])]
    assert sum(a == b for a, b in zip(together, greedy, strict=True)) <= 2
    same_words = [request(3, nouns.Text(), temperature=1.0, key=f"draw {draw}") for draw in range(6)]
    assert len({one.text for one in answers(mistral, same_words)}) >= 4


@pytest.mark.parametrize(("temperature", "top_p"), [(0.5, None), (1.0, 0.6)])
def test_draws_follow_the_distribution(temperature: float, top_p: float | None) -> None:
    import torch

    from llmfair.backends.local import drawing

    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    rows = 5_000
    drawn = drawing(range(rows), temperature, top_p)(torch.zeros(rows, 1), logits.repeat(rows, 1)).argmax(-1)
    shares = (logits / temperature).softmax(-1)
    if top_p is not None:  # .64 alone reaches .6
        shares = torch.tensor([1.0, 0.0, 0.0, 0.0])
    for token, share in enumerate(shares.tolist()):
        deviation = math.sqrt(share * (1 - share) / rows)
        assert float((drawn == token).float().mean()) == pytest.approx(share, abs=4 * deviation + 1e-9)


def test_an_answer_ends_at_the_end_token_or_at_a_stop(mistral: Path, tmp_path: Path) -> None:
    def ends(model: Any) -> None:
        model.lm_head.weight[1] *= 6.0  # </s>

    folder = changed(mistral, tmp_path / "short", ends)
    found = answers(folder, [request(number, nouns.Text(), max_tokens=40) for number in range(12)])
    whole = [one for one in found if one.finish is nouns.Finish.STOP]
    assert whole and all((one.completion_tokens or 0) < 40 and "</s>" not in one.text for one in whole)
    (long,) = answers(mistral, [request(0, nouns.Text(), max_tokens=20)])
    stop = long.text[len(long.text) // 2 :][:3]
    (cut,) = answers(mistral, [request(0, nouns.Text(), max_tokens=20, stop=(stop,))])
    assert cut.text == long.text.partition(stop)[0] and cut.finish is nouns.Finish.STOP


@pytest.mark.parametrize("n", [4, 20])
def test_held_orders_are_all_valid(mistral: Path, n: int) -> None:
    asked = [
        request(number, nouns.Permutation(n), constrain=True, temperature=1.0, max_tokens=16 + 8 * n)
        for number in range(8)
    ]
    found = answers(mistral, asked)
    for one in found:
        assert one.finish is nouns.Finish.STOP
        assert sorted(int(label.strip("[]")) for label in one.text.split(" > ")) == list(range(1, n + 1))
    assert len({one.text for one in found}) >= min(len(found), n // 2)


def test_held_labels_are_said_and_free_requests_beside_them_stay_free(mistral: Path) -> None:
    held = [request(number, constrain=True, temperature=3.0, max_tokens=16) for number in range(40)]
    found = answers(mistral, held)
    assert {one.text for one in found} == {"A", "B"} and {one.finish for one in found} == {nouns.Finish.STOP}


def test_a_prompt_that_does_not_fit_is_said_before_the_model_sees_it(mistral: Path) -> None:
    long = nouns.Chat((nouns.Message("user", "word " * models.CONTEXT),), LETTER)
    with pytest.raises(ContextTooLong, match=r"the prompt of p has [\d,]+ tokens .* room for 4,096 in all"):
        answers(mistral, [nouns.Request(long, nouns.Sampling(max_tokens=16), "k", "p")])
    fits = nouns.Chat((nouns.Message("user", "A or B?"),), LETTER)
    with pytest.raises(ContextTooLong, match="its answer up to 4,090"):
        answers(mistral, [nouns.Request(fits, nouns.Sampling(max_tokens=4090), "k", "p")])


def test_an_encoder_decoder_reads_plain_text(tmp_path: Path) -> None:
    folder = models.t5(tmp_path / "t5")
    asked = [request(number, nouns.Text()) for number in range(4)]
    found = answers(folder, asked)
    assert all(one.finish in (nouns.Finish.LENGTH, nouns.Finish.STOP, nouns.Finish.EMPTY) for one in found)
    beams = answers(folder, asked, BackendOptions(backend_args={"num_beams": "4"}))
    assert [one.text for one in beams] != [one.text for one in found]
    for flags in (("--answers", "margin"), ("--constrain",)):
        refuses(f"cannot do {' '.join(flags)}", "pairwise", "-m", f"hf:{folder}", *flags)


def test_a_batch_too_large_for_the_memory_is_halved(mistral: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from llmfair.backends.local import LocalModel

    own, sizes = LocalModel.margins, []

    def small(self: LocalModel, questions: Sequence[Any]) -> Any:
        sizes.append(len(questions))
        if len(questions) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return own(self, questions)

    asked = [request(number, margins=True) for number in range(10)]
    expected = answers(mistral, asked)
    monkeypatch.setattr(LocalModel, "margins", small)
    found = answers(mistral, asked)
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert max(sizes) == 10 and min(sizes) <= 3

    def none(self: LocalModel, questions: Sequence[Any]) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(LocalModel, "margins", none)
    with pytest.raises(BackendError, match="too small for a prompt of") as error:
        answers(mistral, asked[:1])
    assert "dtype=bfloat16" in error.value.hint


def test_closing_ends_what_is_being_generated(mistral: Path) -> None:
    import time

    async def ask() -> float:
        backend = hf(str(mistral), BackendOptions())
        await backend.open()
        await backend.complete(request(0, nouns.Text(), max_tokens=1))
        task = asyncio.create_task(backend.complete(request(1, nouns.Text(), max_tokens=4000)))
        await asyncio.sleep(0.2)
        task.cancel()
        executor = backend._thread
        await backend.close()
        started = time.perf_counter()
        executor.shutdown(wait=True)
        return time.perf_counter() - started

    assert asyncio.run(ask()) < 5, "4,000 tokens take longer"


def test_an_adapter_moves_margins_and_without_it_it_is_the_base(mistral: Path, tmp_path: Path) -> None:
    from llmfair.backends.local import load_model
    from llmfair.checkpoints import Place, find_checkpoint

    folder = models.adapter(mistral, tmp_path / "adapter")
    options = BackendOptions(adapter=folder)
    asked = [request(number, margins=True) for number in range(6)]
    base, adapted = answers(mistral, asked), answers(mistral, asked, options)
    assert all(one.logprobs != other.logprobs for one, other in zip(base, adapted, strict=True))
    bare = hf(str(mistral), BackendOptions()).identity
    assert hf(str(mistral), options).identity.startswith(f"{bare} adapter=")

    place = Place("cpu", "float32", "")
    prompts, labels = [[5, 6, 7], [8, 9]], [{"A": 34, "B": 35}] * 2
    plain = load_model(find_checkpoint(str(mistral)), place, BackendOptions(), "sdpa")
    both = load_model(find_checkpoint(str(mistral)), place, options, "sdpa")
    with both.model.disable_adapter():
        for one, other in zip(
            both.margins([*zip(prompts, labels, strict=True)]),
            plain.margins([*zip(prompts, labels, strict=True)]),
            strict=True,
        ):
            # weights of two loads may lie at other boundaries in memory, where products round otherwise
            assert one[0] == pytest.approx(other[0], abs=models.margin_error())
    assert both.margins([*zip(prompts, labels, strict=True)]) != plain.margins(
        [*zip(prompts, labels, strict=True)]
    )


def test_an_adapter_without_effect_is_refused(mistral: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    zero = models.adapter(mistral, tmp_path / "zero", scale=0.0)
    misplaced = models.adapter(mistral, tmp_path / "misplaced")
    weights = load_file(misplaced / "adapter_model.safetensors")
    old, new = "base_model.model.model", "base_model.model.language"
    renamed = {name.replace(old, new): w for name, w in weights.items()}
    save_file(renamed, misplaced / "adapter_model.safetensors")
    for folder in (zero, misplaced):
        with warnings.catch_warnings(), pytest.raises(BackendError, match="changes nothing"):
            warnings.simplefilter("ignore")  # peft says that keys are missing
            answers(mistral, [request(margins=True)], BackendOptions(adapter=folder))


def test_an_adapter_of_another_model_or_none_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = models.adapter(folders["mistral"], tmp_path / "adapter")
    with pytest.raises(UsageError, match=r"belongs to .*mistral, not to .*llama"):
        hf(str(folders["llama"]), BackendOptions(adapter=folder))
    with pytest.raises(UsageError, match="holds no adapter"):
        hf(str(folders["llama"]), BackendOptions(adapter=tmp_path))
    moved = tmp_path / "moved"
    folders["mistral"].rename(moved)
    try:
        settings = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(
            json.dumps(settings | {"base_model_name_or_path": str(tmp_path / "elsewhere" / "moved")})
        )
        assert "adapter=" in hf(str(moved), BackendOptions(adapter=folder)).identity
    finally:
        moved.rename(folders["mistral"])
    refuses("cannot do --adapter", "listwise", "-m", "fake:biased", "--adapter", folder)


# Which model it is, and what is said when it cannot be had


def test_identity_is_the_files_and_the_type_and_not_the_place(mistral: Path, tmp_path: Path) -> None:
    import shutil

    identity = hf(str(mistral), BackendOptions()).identity
    shutil.copytree(mistral, tmp_path / "copy")
    assert hf(str(tmp_path / "copy"), BackendOptions()).identity == identity
    same = BackendOptions(backend_args={"batch_tokens": "64", "device": "cpu"})
    assert hf(str(mistral), same).identity == identity
    for args, system in (({"dtype": "bfloat16"}, "auto"), ({"num_beams": "2"}, "auto"), ({}, "fold")):
        options = BackendOptions(backend_args=args, system=system)  # type: ignore[arg-type]
        assert hf(str(mistral), options).identity != identity
    models.causal(tmp_path / "copy", seed=1)  # the same names and sizes
    assert hf(str(tmp_path / "copy"), BackendOptions()).identity != identity


def test_what_is_no_model_is_a_usage_error(mistral: Path, tmp_path: Path) -> None:
    for name, message in (
        ("./nowhere", "there is no folder ./nowhere"),
        (str(tmp_path), "holds no model: it has no config.json"),
        ("a/b/c", "there is no folder a/b/c"),
        ("not a name", "the Hub has no model not a name"),
    ):
        with pytest.raises(UsageError, match=message):
            hf(name, BackendOptions())
    for given, message in (
        ({"dtpye": "float32"}, "Did you mean 'dtype'"),
        ({"dtype": "float7"}, "there is no dtype 'float7'"),
        ({"batch_tokens": "0"}, "not a number of 1 or more"),
    ):
        with pytest.raises(UsageError, match=message):
            hf(str(mistral), BackendOptions(backend_args=given))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"config\.json: not JSON"):
        hf(str(tmp_path), BackendOptions())


def test_a_repository_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    found = llmfair("pairwise", "-m", "hf:nobody/nothing")
    assert found.code == 1
    assert "nobody/nothing is not on this machine, and the Hub cannot be reached" in found.err
    assert "hf download nobody/nothing" in found.err


def test_missing_or_broken_weights_and_missing_packages(
    mistral: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = changed(mistral, tmp_path / "broken", lambda model: None)
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(BackendError, match="broken cannot be loaded"):
        answers(folder, [request()])
    (folder / "model.safetensors").unlink()
    with pytest.raises(BackendError, match="broken cannot be loaded"):
        answers(folder, [request()])
    monkeypatch.setattr(checkpoints, "find_spec", lambda package: None)
    with pytest.raises(MissingExtra) as error:
        hf(str(mistral), BackendOptions())
    assert error.value.hint == "pip install 'llmfair[local]'"


PAIRWISE = ("pairwise", "-n", "5", "--pairs", "4", "--conditions", "relevant", "--noise-share", "0", "--json")


def test_a_pairwise_audit_by_margins(mistral: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a model of random weights puts next to no probability on labels
    asked = (*PAIRWISE, "-m", f"hf:{mistral}", "--answers", "margin", "--form", "order", "--max-invalid", "1")
    found = ran(*asked)
    manifest = kept("manifest")
    assert (manifest["status"], manifest["calls"]) == ("complete", 40)
    model = manifest["invocations"][-1]["model"]
    assert model["place"] == "cpu: torch finds no GPU; float32: as the checkpoint was saved"
    assert model["system"] == "folded" and set(model["versions"]) == {"torch", "transformers"}
    rows = (only_run() / "verdicts.csv").read_text().splitlines()
    assert len(rows) == 21 and all(float(row.split(",")[10]) for row in rows[1:])

    monkeypatch.setattr(LocalBackend, "_load", lambda self: pytest.fail("a finished run loads no model"))
    again = llmfair(*asked)
    assert (again.code, again.out) == (0, found.out)


def test_a_closed_model_is_given_up_and_may_be_opened_again(mistral: Path) -> None:
    import gc
    import weakref

    backend = LocalBackend(checkpoints.find_checkpoint(str(mistral)), PLAIN)

    async def ask() -> tuple[str, weakref.ref[Any]]:
        await backend.open()
        text, model = (await backend.complete(request())).text, weakref.ref(backend._model.model)
        await backend.close()
        return text, model

    first, model = asyncio.run(ask())
    gc.collect()
    assert model() is None
    assert asyncio.run(ask())[0] == first
