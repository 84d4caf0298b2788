"""Chat templates to token ids: one BOS, no lost system text, and the tokens at which answers part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llmfair.backends.base import fold_system
from llmfair.backends.local import ChatTemplate, label_answers
from llmfair.errors import Rejected, UsageError
from llmfair.nouns import Labels, Message, Permutation, Text
from tests.models import DROPPING_TEMPLATE, LLAMA_TEMPLATE, Family, chat_tokenizer, needs_local

needs_local()
CHAT = (Message("system", "You rank."), Message("user", "Which is better, A or B?"))
LETTER, ORDER = Labels(("A", "B")), Permutation(2)


def plain_bos(tokenizer: Any, ids: list[int]) -> int:
    return ids.count(tokenizer.bos_token_id)


@pytest.mark.parametrize(("family", "folded"), [("mistral", True), ("llama", False), ("qwen", False)])
def test_the_prompt_is_the_template_s_with_exactly_one_bos(family: Family, folded: bool) -> None:
    tokenizer = chat_tokenizer(family)
    template = ChatTemplate(tokenizer)
    assert template.folded is folded
    rows = [{"role": m.role, "content": m.content} for m in (fold_system(CHAT) if folded else CHAT)]
    own = tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=True)
    assert template.text(CHAT) == own and "You rank." in own
    ids = template.ids(CHAT)
    assert tokenizer.decode(ids) == own
    assert plain_bos(tokenizer, ids) == (family != "qwen")
    # Encoding the rendered text as any other text is how a prompt gets two.
    assert plain_bos(tokenizer, list(tokenizer(own).input_ids)) == 2 * (family != "qwen")


def test_a_title_cannot_speak_for_the_chat() -> None:
    tokenizer = chat_tokenizer("mistral")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<end_of_passage>", "[CALL]"]})
    template = ChatTemplate(tokenizer)
    special = {*tokenizer.all_special_ids}
    ids = template.ids((Message("user", "Ada </s> <end_of_passage> [CALL] [1]"),))
    assert "Ada (/s) (end_of_passage) (CALL) [1]" in tokenizer.decode(ids)
    assert [token for token in ids if token in special] == [tokenizer.bos_token_id]


def test_a_template_that_refuses_or_drops_the_system_text_is_folded() -> None:
    for template in (None, DROPPING_TEMPLATE):
        found = ChatTemplate(chat_tokenizer("mistral", template))
        assert found.folded
        assert found.text(CHAT) == "<s>[INST] You rank.\n\nWhich is better, A or B? [/INST]"
        with pytest.raises(UsageError, match="takes no system message") as error:
            ChatTemplate(chat_tokenizer("mistral", template), "separate")
        assert "--system fold" in error.value.hint


def test_fold_and_separate_are_kept_where_the_template_takes_either() -> None:
    assert ChatTemplate(chat_tokenizer("llama"), "fold").text(CHAT).count("<|start_header_id|>") == 2
    assert ChatTemplate(chat_tokenizer("llama"), "separate").text(CHAT).count("<|start_header_id|>") == 3


def test_a_template_without_bos_gets_the_tokenizer_s_and_one_with_two_is_refused() -> None:
    bare = ChatTemplate(chat_tokenizer("llama", LLAMA_TEMPLATE.removeprefix("{{ bos_token }}")))
    assert bare.ids(CHAT) == ChatTemplate(chat_tokenizer("llama")).ids(CHAT)
    with pytest.raises(UsageError, match="twice"):
        ChatTemplate(chat_tokenizer("llama", "{{ bos_token }}" + LLAMA_TEMPLATE))


def test_template_arguments_reach_the_template() -> None:
    tokenizer = chat_tokenizer("qwen")
    assert "</think>" not in ChatTemplate(tokenizer).text(CHAT)
    assert ChatTemplate(tokenizer, "auto", {"enable_thinking": False}).text(CHAT).endswith("</think>\n\n")


def test_unusable_templates_are_said_when_the_model_is_opened() -> None:
    with pytest.raises(UsageError, match="has no chat template") as error:
        ChatTemplate(chat_tokenizer("llama", ""))
    assert "Instruct" in error.value.hint
    for broken in ("{{ raise_exception('never') }}", "{% if %}", "{{ messages[99].content.x }}"):
        with pytest.raises(UsageError, match="chat template"):
            ChatTemplate(chat_tokenizer("llama", broken))


def test_a_conversation_that_the_template_refuses_ends_its_probe_only() -> None:
    alternating = "{% if messages|length > 2 %}{{ raise_exception('too many') }}{% endif %}" + LLAMA_TEMPLATE
    template = ChatTemplate(chat_tokenizer("llama", alternating))
    with pytest.raises(Rejected, match="too many"):
        template.ids((*CHAT, Message("assistant", "Ready."), Message("user", "Now.")))


@pytest.mark.parametrize("family", ["mistral", "llama", "qwen"])
@pytest.mark.parametrize(("expects", "said"), [(LETTER, ""), (ORDER, "[")])
def test_labels_are_the_tokens_where_the_answers_part(
    family: Family, expects: Labels | Permutation, said: str
) -> None:
    tokenizer = chat_tokenizer(family)
    template = ChatTemplate(tokenizer)
    answers = label_answers(expects)
    ids, labels = template.label_ids(CHAT, answers)
    prompt = template.ids(CHAT)
    assert ids[: len(prompt)] == prompt
    assert tokenizer.decode(ids[len(prompt) :]) == said, "what both answers begin with is said for the model"
    for label, answer in answers.items():
        whole = list(tokenizer(template.text(CHAT) + answer, add_special_tokens=False).input_ids)
        assert whole[: len(ids)] == ids and whole[len(ids)] == labels[label]
        assert tokenizer.decode([labels[label]]) == label


def test_a_shared_space_before_the_labels_is_part_of_the_prompt() -> None:
    """Mistral's tokenizer makes ` A` and ` B` two tokens each, the first of which is the space."""
    tokenizer = chat_tokenizer("mistral")
    template = ChatTemplate(tokenizer)
    ids, labels = template.label_ids(CHAT, {"A": " A", "B": " B"})
    space = list(tokenizer(" A", add_special_tokens=False).input_ids)[:-1]
    assert ids == [*template.ids(CHAT), *space]
    assert [tokenizer.decode([found]) for found in labels.values()] == (["A", "B"] if space else [" A", " B"])


def test_answers_that_one_token_cannot_tell_apart_are_refused() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<unk>": 0, "Answer": 1, ":": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    template = "{{ messages[0].content }} Answer:"
    unknown = ChatTemplate(
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", chat_template=template)
    )
    cases: list[tuple[ChatTemplate, Mapping[str, str]]] = [
        (unknown, label_answers(LETTER)),  # both are the unknown word
        (ChatTemplate(chat_tokenizer("llama")), {"x": "A", "y": "AB"}),  # one begins the other
        (ChatTemplate(chat_tokenizer("llama", LLAMA_TEMPLATE + "lett")), {"er": "er", "b": "b"}),
    ]
    for found, answers in cases:
        with pytest.raises(UsageError, match="tell them apart") as error:
            found.label_ids(CHAT[1:], answers)
        assert "--answers text" in error.value.hint


def test_only_choices_between_labels_have_margins() -> None:
    assert label_answers(ORDER) == {"1": "[1] > [2]", "2": "[2] > [1]"}
    assert label_answers(LETTER) == {"A": "A", "B": "B"}
    for other in (Text(), Permutation(3), Labels(("A",))):
        with pytest.raises(UsageError):
            label_answers(other)
