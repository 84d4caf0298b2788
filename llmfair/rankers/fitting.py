"""A question and its items as a generator reads them, cut to what its context holds [official code of Fair-RAG].

With L the context in tokens: the question is cut to 256 tokens, each item's line to ⌊(L − tokens of the question) /
number of items⌋, and the whole to L; without items the question is cut to L. A prompt with `budget = "prompt"` takes
off its own words as well, so that nothing behind the items is cut away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.checkpoints import find_checkpoint, tokenizer_of
from llmfair.errors import UsageError
from llmfair.nouns import LABEL, Document, Message
from llmfair.prompts import Prompt
from llmfair.rankers.passages import clean, passage

QUESTION_TOKENS = 256
WORDS_PER_TOKEN = 0.75
TURNS = 64
"""More tokens than a chat template puts around one message."""
LEAST = 64
"""A context with room for less is none."""
UNSET = 1_000_000
"""A tokenizer without a context says that it is larger than this."""
WHOLE = 1_000_000
"""More words than any item has."""
_TOO_LONG = "sequence-length-is-longer-than-the-specified-maximum"
BARE, ITEMS, SPLIT = "bare", "items", "split"
_OF_ITEM = frozenset({"k", "item", "title", "text", LABEL})


@dataclass(frozen=True, slots=True)
class Ruler:
    """Measures and cuts texts in tokens. `unit` says in words what is counted, `context` is in tokens.

    `pieces` of a text are tokens, or words of which `per_token` make one; `text` puts pieces together.
    """

    unit: str
    context: int
    pieces: Callable[[str], Sequence[str]]
    text: Callable[[Sequence[str]], str]
    per_token: float = 1.0

    def count(self, text: str) -> int:
        """Tokens of a text, without special ones."""
        return math.ceil(len(self.pieces(text)) / self.per_token)

    def cut(self, text: str, tokens: int) -> str:
        """The first tokens of a text, or the text itself if it has no more."""
        return self.head(text, self.pieces(text), tokens)

    def head(self, text: str, pieces: Sequence[str], tokens: int) -> str:
        """As `cut`, of a text whose pieces are known."""
        kept = int(max(tokens, 0) * self.per_token)
        return text if len(pieces) <= kept else self.text(pieces[:kept])


def by_tokens(tokenizer: Any, context: int | None = None) -> Ruler:
    """In the tokens of a transformers tokenizer; its context unless one is given. Raises UsageError if it has none."""
    own = tokenizer.model_max_length
    if context is None and own > UNSET:
        raise UsageError(
            f"the tokenizer of {tokenizer.name_or_path} does not say how many tokens its model reads.",
            "give them: --context 4096",
        )
    # Measured here are texts that are too long, which transformers would warn of.
    getattr(tokenizer, "deprecation_warnings", {})[_TOO_LONG] = True
    longest = int(own) if context is None else context
    return Ruler("its own tokens", longest, tokenizer.tokenize, tokenizer.convert_tokens_to_string)


def by_checkpoint(name: str, context: int | None, answer: int) -> Ruler:
    """In the tokens of a model of this machine; its tokenizer is read, not its weights.

    Without a context it is the model's own: less `answer` tokens and the turns of a chat where the model has one
    context for prompt and answer. Raises UsageError where nobody says it, BackendError for no such model.
    """
    checkpoint = find_checkpoint(name)
    tokenizer = tokenizer_of(checkpoint)
    if context is None and checkpoint.context is not None:
        context = int(min(checkpoint.context, tokenizer.model_max_length)) - answer - TURNS
        if context < LEAST:
            raise UsageError(
                f"{name} reads {checkpoint.context:,} tokens, of which its answer takes {answer:,}.",
                "less room for answers: --max-tokens 128",
            )
    return by_tokens(tokenizer, context)


def by_words(context: int) -> Ruler:
    """In words, of which three are taken for four tokens: for models whose tokenizer is not at hand."""
    return Ruler(f"words at {WORDS_PER_TOKEN} a token", context, str.split, " ".join, WORDS_PER_TOKEN)


def check_prompt(prompt: Prompt, items: Iterable[Document] = ()) -> None:
    """Raises UsageError unless a prompt shows a question without items and with some, and they have what it shows."""
    if not prompt.of_passage & (_OF_ITEM - {"k"}):
        raise UsageError(
            f"prompt {prompt.file}: 'passage' shows nothing of an item.", 'passage = "[{k}] {item}"'
        )
    prompt.expect({"question"}, {"question"}, BARE)
    prompt.expect({"question", *_OF_ITEM}, {"question", *prompt.of_passage}, ITEMS)
    if SPLIT in prompt.variants:
        needed = {"before", "behind", *prompt.of_passage}
        prompt.expect({"before", "behind", *_OF_ITEM}, needed, SPLIT)
    if LABEL in prompt.of_passage and (
        bare := next((item for item in items if LABEL not in item.groups), None)
    ):
        raise UsageError(
            f"prompt {prompt.file} shows labels, and item '{bare.doc_id}' has none.",
            "--prompt rag/question    shows titles and texts",
        )


class Fitting:
    """The messages of one query: with no item, or with any of its items in any order.

    Each item is split into tokens once. `parts`: the input before and behind the place where items are put.
    """

    def __init__(
        self, prompt: Prompt, ruler: Ruler, parts: tuple[str, str], items: Sequence[Document]
    ) -> None:
        self._prompt, self._ruler = prompt, ruler
        self._items = {item.doc_id: item for item in items}
        self._input = "".join(parts)
        self._variant, self._values = self._question(*parts)
        self._tokens = ruler.count("".join(self._values.values()))
        self._head, self._line = _number_and_line(prompt.passage)
        self._budgets: dict[int, int] = {}
        self._pieces: dict[tuple[str, int], tuple[str, Sequence[str]]] = {}
        self._cut: dict[tuple[str, int, int], str] = {}

    def messages(self, doc_ids: Sequence[str]) -> tuple[Message, ...]:
        """The messages with these items, in this order, or with none."""
        if doc_ids:
            passages = self._prompt.join.join(self.lines(doc_ids))
            return self._whole(self._variant, {**self._values, "passages": passages})
        room = self._ruler.context - self._frame(BARE, {"question": ""}, 0)
        return self._whole(BARE, {"question": self._ruler.cut(self._input, room)})

    def lines(self, doc_ids: Sequence[str]) -> list[str]:
        """What the model reads of each of these items."""
        count = len(doc_ids)
        if count not in self._budgets:
            frame = self._frame(self._variant, dict.fromkeys(self._values, ""), count)
            self._budgets[count] = (self._ruler.context - self._tokens - frame) // count
        return [self._numbered(doc_id, k, self._budgets[count]) for k, doc_id in enumerate(doc_ids, start=1)]

    def _question(self, before: str, behind: str) -> tuple[str, dict[str, str]]:
        """The variant with items, and its values; `split` as long as the place for items is not cut away."""
        count, cut = self._ruler.count, self._ruler.cut
        if not before or SPLIT not in self._prompt.variants:
            return ITEMS, {"question": cut(self._input, QUESTION_TOKENS)}
        if count(self._input) <= QUESTION_TOKENS:
            return SPLIT, {"before": before, "behind": behind}
        if (left := QUESTION_TOKENS - count(before)) > 0:
            return SPLIT, {"before": before, "behind": cut(behind, left)}
        return ITEMS, {"question": cut(self._input, QUESTION_TOKENS)}

    def _frame(self, variant: str, values: dict[str, str], items: int) -> int:
        """Tokens of all that is sent beside question and lines, where the prompt's budget counts it."""
        if self._prompt.budget == "question":
            return 0
        heads = self._prompt.join.join(self._head.format(k=k + 1) for k in range(items))
        messages = self._prompt.render({**values, "passages": heads}, variant)
        return sum(self._ruler.count(message.content) for message in messages)

    def _numbered(self, doc_id: str, k: int, budget: int) -> str:
        place = k if "{k}" in self._line else 0  # else its number is all that an item's place changes
        key = (doc_id, place, budget)
        if key not in self._cut:
            self._cut[key] = self._ruler.head(*self._line_of(doc_id, place), budget)
        return self._head.format(k=k) + self._cut[key]

    def _line_of(self, doc_id: str, k: int) -> tuple[str, Sequence[str]]:
        """An item's line without its number, and the pieces that it is made of."""
        if (doc_id, k) not in self._pieces:
            values = self._shown(self._items[doc_id])
            line = self._line.format_map({**values, "k": k})
            self._pieces[doc_id, k] = line, self._ruler.pieces(line)
        return self._pieces[doc_id, k]

    def _shown(self, item: Document) -> dict[str, str]:
        (label,) = item.groups.get(LABEL, ("",))
        texts = {"title": item.title, "text": item.text, LABEL: label}
        values = {name: clean(text, WHOLE) if text.strip() else "" for name, text in texts.items()}
        return {**values, "item": passage(item, "text", WHOLE)}

    def _whole(self, variant: str, values: dict[str, str]) -> tuple[Message, ...]:
        """The conversation, its last message cut to the context."""
        *first, last = self._prompt.render(values, variant)
        return (*first, last._replace(content=self._ruler.cut(last.content, self._ruler.context)))


def _number_and_line(pattern: str) -> tuple[str, str]:
    """What a pattern begins with if that is the number, as `[{k}] `, and the rest, which is cut."""
    before, k, behind = pattern.partition("{k}")
    if not k or "{" in before:
        return "", pattern
    words, brace, line = behind.partition("{")
    return before + k + words, brace + line
