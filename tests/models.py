"""Tiny models with random weights, made on disk by the tests: nothing is downloaded.

Causal models of three families, with the tokenizer habits and chat templates that the families have, an
encoder–decoder and an encoder that classifies. Heads are 32 wide, which vLLM's CPU kernels take.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest

Family = Literal["mistral", "llama", "qwen"]
CONTEXT = 4096

# As the families have them: [INST] and no system role; headers and a BOS; ChatML, no BOS, a default system text.
MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('Only user and assistant roles are supported!') }}"
    "{% elif message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
QWEN_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}"
    "{% endif %}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
DROPPING_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}{% endfor %}"
)
_FAMILIES: Mapping[Family, tuple[str, str | None, str, tuple[str, ...]]] = {
    "mistral": (MISTRAL_TEMPLATE, "<s>", "</s>", ()),
    "llama": (
        LLAMA_TEMPLATE, "<|begin_of_text|>", "<|eot_id|>", ("<|start_header_id|>", "<|end_header_id|>"),
    ),
    "qwen": (QWEN_TEMPLATE, None, "<|im_end|>", ("<|im_start|>",)),
}  # fmt: skip
_WORDS = (
    "Rank the passages based on their relevance to the search query. The more relevant passage first, joined by >. "
    "Reply with the letter of the more relevant passage, A or B, and nothing else. [1] > [2] > [3] > [10] > [20]"
)


def margin_error() -> float:
    """How far margins of one prompt, alone and in a batch, may lie apart; those of two prompts do by 4e-4.

    Products of float32 without AVX-512 differ by up to 1e-4 where the shapes of the factors do.
    """
    import torch

    return 1e-5 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 2e-4


def needs_local() -> None:
    """Skips a test module where the libraries of `[local]` are not installed; they are imported by its tests."""
    for package in ("torch", "transformers", "peft", "llguidance"):
        if find_spec(package) is None:
            reason = f"{package} is not installed: pip install 'llmfair[local]'"
            pytest.skip(reason, allow_module_level=True)


def needs_encoders() -> None:
    """The same of the library of encoders."""
    needs_local()
    if find_spec("sentence_transformers") is None:
        reason = "sentence-transformers is not installed: pip install 'llmfair[local]'"
        pytest.skip(reason, allow_module_level=True)


def causal(
    folder: Path,
    family: Family = "mistral",
    *,
    seed: int = 0,
    dtype: str = "float32",
    template: str | None = None,
    corpus: str = "",
    **config: Any,
) -> Path:
    """A causal model of two layers with random weights, saved with tokenizer and chat template.

    Texts like `corpus` take few tokens, as they do with a real tokenizer.
    """
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

    tokenizer = chat_tokenizer(family, template, corpus)
    sizes = {
        "vocab_size": (len(tokenizer) + 63) // 64 * 64, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": CONTEXT, "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": None, "tie_word_embeddings": False,
    }  # fmt: skip
    kind = {"mistral": MistralConfig, "llama": LlamaConfig, "qwen": Qwen2Config}[family]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(kind(**sizes | config))
        # Larger than at the start of training, so that answers differ from prompt to prompt.
        for name, weights in model.named_parameters():
            if "norm" not in name:
                weights.data.normal_(0.0, 0.4 if weights.shape[-1] == 64 and "embed" not in name else 0.6)
    save(model.to(getattr(torch, dtype)), folder)
    tokenizer.save_pretrained(folder)
    return folder


ALTERING: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "capped": ("Gemma2Config", {"final_logit_softcapping": 1.5, "tie_word_embeddings": False}),
    "multiplied": ("CohereConfig", {"logit_scale": 0.25}),
    "divided": ("GraniteConfig", {"logits_scaling": 8.0, "tie_word_embeddings": False}),
    "biased": ("PhiConfig", {}),
}
"""Families of models that change the logits of their head, by what they do to them."""


def altering(folder: Path, name: str, corpus: str = "") -> Any:
    """A model of such a family with random weights, saved with its tokenizer, which is given."""
    import torch
    import transformers

    tokenizer = chat_tokenizer("llama", corpus=corpus)
    kind, own = ALTERING[name]
    config = getattr(transformers, kind)(
        vocab_size=(len(tokenizer) + 63) // 64 * 64, hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=32,
        max_position_embeddings=512, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=None, **own,
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weights in model.parameters():
        weights.data.normal_(0.0, 0.3)
    save(model, folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def chat_tokenizer(family: Family = "mistral", template: str | None = None, corpus: str = "") -> Any:
    """A byte-level BPE of a few hundred pieces: any text has tokens, the labels of answers have one each."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    own, bos, eos, special = _FAMILIES[family]
    tokenizer = Tokenizer(models.BPE())
    # Single digits and no merges over spaces, as in Llama: an order's numbers are told apart at their first digit.
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    named = [token for token in (bos, eos, *special) if token]
    tokenizer.train_from_iterator(
        [_WORDS, corpus],
        trainers.BpeTrainer(
            vocab_size=4000 if corpus else 400,
            special_tokens=named,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=bos, eos_token=eos,
        chat_template=own if template is None else template, model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def adapter(base: Path, folder: Path, *, seed: int = 0, scale: float = 0.5, **config: Any) -> Path:
    """A LoRA adapter over the attention of a causal model; `scale` 0 leaves it without effect."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    settings = {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    adapted = get_peft_model(model, LoraConfig(**settings | config))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.data.normal_(0.0, scale)
    with quiet():
        adapted.save_pretrained(folder)
    return folder


def t5(folder: Path, *, seed: int = 0, varied: bool = False, size: Mapping[str, int] | None = None) -> Path:
    """An encoder–decoder with the pieces that MonoT5 reads, ▁true and ▁false; `size` makes it larger than tiny.

    `varied`: it says other things of others.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = ["▁true", "▁false", "▁Query:", "▁Document:", "▁Relevant:", "▁"]
    characters = [chr(code) for code in range(33, 127)]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(word, -1.0) for word in words] + [(character, -5.0) for character in characters]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512,
    ).save_pretrained(folder)  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = T5ForConditionalGeneration(
            T5Config(
                **{"vocab_size": 128, "d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 2}
                | dict(size or {}),
                decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, tie_word_embeddings=not varied,
            )
        )  # fmt: skip
        for name, weights in model.named_parameters():
            weights.data.mul_(16 if varied and "EncDec" in name else 1 if varied else 1.5)
    save(model, folder)
    return folder


def bert(folder: Path, *, seed: int = 0, labels: int = 2, classes: Sequence[str] = ()) -> Path:
    """An encoder that classifies pairs of texts, into so many or into these."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters)]
    folder.mkdir(parents=True, exist_ok=True)
    words = {word: number for number, word in enumerate(vocabulary)}
    BertTokenizerFast(vocab=words, do_lower_case=True, model_max_length=512).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForSequenceClassification(
            BertConfig(
                vocab_size=len(vocabulary), hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=128, num_labels=len(classes) or labels,
                **({"id2label": dict(enumerate(classes))} if classes else {}),
            )
        )  # fmt: skip
        for weights in model.parameters():
            weights.data.mul_(3.0)
    save(model, folder)
    return folder


def encoder(folder: Path, *, seed: int = 0, words: bool = False) -> Path:
    """An encoder of texts: its last layer, or with `words` scores of all words, which sparse encoders read."""
    import torch
    from transformers import BertForMaskedLM, BertModel

    bert(folder, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kind = BertForMaskedLM if words else BertModel
        model = kind(kind.config_class.from_pretrained(folder))
        for weights in model.parameters():
            weights.data.mul_(3.0)
    save(model, folder)
    return folder


def save(model: Any, folder: Path) -> None:
    with quiet():
        model.save_pretrained(folder)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars of saving and loading."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with contextlib.redirect_stderr(io.StringIO()):
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For a module that imports it: several threads a tiny model's product only wait for each other."""
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
