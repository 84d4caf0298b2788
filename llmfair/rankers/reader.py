"""A generator that answers a question from items: first without any and with each alone, then with whole lists.

What one item alone adds to the answer's utility is its gain, and an item with a gain is useful (Kim and Diaz 2025,
3.1). A program asks about one query in two steps: its labels, then, where at least two items are useful, every distinct
list that any condition shows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Generic, TypeVar

from llmfair.checkpoints import find_checkpoint, tokenizer_of
from llmfair.control_tokens import answer_of
from llmfair.errors import UsageError
from llmfair.metrics import generation
from llmfair.metrics.generation import FEWEST_USEFUL
from llmfair.metrics.texts import EMPTY, cleaned
from llmfair.nouns import LABEL, Chat, Completion, Document, Finish, Labels, Message, Query, Steps, Text
from llmfair.prompts import Prompt
from llmfair.rankers.answers import undressed
from llmfair.rankers.passages import WHOLE, clean, passage

T = TypeVar("T")

Shown = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """What a generator said, how it ended, and what that is worth against the right answer."""

    text: str
    finish: Finish
    utility: float

    @property
    def ended(self) -> str:
        """`ok`, or why it is no answer: cut off, refused or empty. It counts as it stands all the same."""
        if self.finish is not Finish.STOP:
            return str(self.finish)
        return "empty" if self.text == EMPTY else "ok"

    @property
    def unparseable(self) -> bool:
        """Whether it is no answer."""
        return self.ended != "ok"


@dataclass(frozen=True, slots=True)
class Read:
    """What a generator made of one query: `alone` beside no item and each, `lists` beside lists; `useful` items."""

    query_id: str
    useful: frozenset[str]
    gains: Mapping[str, float] = field(default_factory=dict)
    alone: Mapping[Shown, Output] = field(default_factory=dict)
    lists: Mapping[Shown, Output] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether there are enough useful items for lists to be asked about."""
        return len(self.useful) >= FEWEST_USEFUL


@dataclass(frozen=True, slots=True)
class Chats(Sequence[Chat], Generic[T]):
    """Chats about these things, made when their turn comes: a query has hundreds, and many are under way."""

    about: Sequence[T]
    make: Callable[[T], Chat]

    def __len__(self) -> int:
        return len(self.about)

    def __getitem__(self, place: int) -> Chat:  # type: ignore[override]
        return self.make(self.about[place])


@dataclass(frozen=True)
class QueryTask:
    """One query as a generator is asked about it.

    `useful`: the items judged so; None: gains say it. `lists` names the distinct lists of all conditions. `utility`
    is an output's worth against the right answers, `gain` the same as labels are made with.
    """

    query: Query
    items: Mapping[str, Document]
    render: Callable[[Shown], tuple[Message, ...]]
    lists: Callable[[frozenset[str]], Sequence[Shown]]
    utility: Callable[[str], float]
    gain: Callable[[str], float]
    useful: frozenset[str] | None = None

    def chat(self, doc_ids: Shown) -> Chat:
        """The question beside these items."""
        labels = ["".join(self.items[doc_id].groups.get(LABEL, ())) for doc_id in doc_ids]
        about = {"task": "rag", "query_id": self.query.query_id, "doc_ids": list(doc_ids), "labels": labels}
        return Chat(self.render(doc_ids), Text(), about=about)

    def steps(self) -> Steps[Read]:
        """Asks for labels unless they are known: beside no item, then each. Lists follow if two items are useful."""
        useful, gains, alone = self.useful, dict[str, float](), dict[Shown, Output]()
        if useful is None:
            alone = yield from self._outputs([(), *((doc_id,) for doc_id in self.items)], self.gain)
            added = generation.gains(alone[()].utility, [alone[doc_id,].utility for doc_id in self.items])
            gains = dict(zip(self.items, added.tolist(), strict=True))
            useful = frozenset(compress(self.items, generation.useful(added)))
        lists = self.lists(useful) if len(useful) >= FEWEST_USEFUL else []
        outputs = (yield from self._outputs(lists, self.utility)) if lists else {}
        return Read(self.query.query_id, useful, gains, alone, outputs)

    def _outputs(self, shown: Sequence[Shown], worth: Callable[[str], float]) -> Steps[dict[Shown, Output]]:
        completions = yield Chats(shown, self.chat)
        return {of: output_of(made, worth) for of, made in zip(shown, completions, strict=True)}


def output_of(completion: Completion, utility: Callable[[str], float]) -> Output:
    """What is scored and credited: the answer without thoughts, which stay in the journal; none of open thoughts."""
    answer, finish = answer_of(completion.text), completion.finish
    if answer is None and finish is Finish.STOP:
        finish = Finish.UNFINISHED_THINKING
    text = cleaned(answer or "")
    return Output(text, finish, utility(text))


# A question and its items as a generator reads them [official code of Fair-RAG]. With L the context in tokens: the
# question is cut to 256 tokens, each item's line to ⌊(L − tokens of the question) / number of items⌋, and the whole to
# L; without items the question is cut to L. A prompt with `budget = "prompt"` takes off its own words as well.

QUESTION_TOKENS = 256
WORDS_PER_TOKEN = 0.75
TURNS = 64
"""More tokens than a chat template puts around one message."""
LEAST = 64
"""A context with room for less is none."""
UNSET = 1_000_000
"""A tokenizer without a context says that it is larger than this."""
_TOO_LONG = "sequence-length-is-longer-than-the-specified-maximum"
BARE, ITEMS, SPLIT = "bare", "items", "split"
_OF_ITEM = frozenset({"k", "item", "title", "text", LABEL})


@dataclass(frozen=True, slots=True)
class Ruler:
    """Cuts texts in tokens: `pieces` are tokens, or words of which `per_token` make one; `text` joins them."""

    unit: str
    context: int
    pieces: Callable[[str], Sequence[str]]
    text: Callable[[Sequence[str]], str]
    per_token: float = 1.0

    def count(self, text: str) -> int:
        """Tokens of a text, without special ones."""
        return math.ceil(len(self.pieces(text)) / self.per_token)

    def cut(self, text: str, tokens: int, pieces: Sequence[str] | None = None) -> str:
        """The first tokens of a text, or the text itself if it has no more; `pieces` are its own, if at hand."""
        pieces, count = self.pieces(text) if pieces is None else pieces, int(max(tokens, 0) * self.per_token)
        return text if len(pieces) <= count else self.text(pieces[:count])


def by_tokens(tokenizer: Any, context: int | None = None) -> Ruler:
    """In the tokens of a transformers tokenizer; its context unless one is given. Raises UsageError if it has none."""
    limit = tokenizer.model_max_length
    if context is None and limit > UNSET:
        raise UsageError(
            f"the tokenizer of {tokenizer.name_or_path} does not say how many tokens its model reads.",
            "give them: --context 4096",
        )
    # Measured here are texts that are too long, which transformers would warn of.
    getattr(tokenizer, "deprecation_warnings", {})[_TOO_LONG] = True
    longest = int(limit) if context is None else context
    return Ruler("its own tokens", longest, tokenizer.tokenize, tokenizer.convert_tokens_to_string)


def by_checkpoint(name: str, context: int | None, answer: int) -> Ruler:
    """In the tokens of a model of this machine; without a context its own, less the answer's and a chat's turns.

    Raises UsageError where nobody says it, BackendError for no such model.
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
    """The messages of one query with items; `parts`: the input before and behind the place where items are put."""

    def __init__(
        self, prompt: Prompt, ruler: Ruler, parts: tuple[str, str], items: Sequence[Document]
    ) -> None:
        self._prompt, self._ruler = prompt, ruler
        self._items = {item.doc_id: item for item in items}
        self._input = "".join(parts)
        self._variant, self._values = self._question(*parts)
        self._tokens = ruler.count("".join(self._values.values()))
        # the number that a pattern begins with, as `[{k}] `, is never cut; the rest is
        before, k, behind = prompt.passage.partition("{k}")
        words, brace, line = behind.partition("{")
        numbered = k and "{" not in before
        self._head, self._line = (before + k + words, brace + line) if numbered else ("", prompt.passage)
        self._budgets: dict[int, int] = {}
        self._pieces: dict[tuple[str, int], tuple[str, Sequence[str]]] = {}

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
        lines = []
        for k, doc_id in enumerate(doc_ids, start=1):
            place = k if "{k}" in self._line else 0  # else its number is all that an item's place changes
            if (doc_id, place) not in self._pieces:
                item = self._items[doc_id]
                texts = {"title": item.title, "text": item.text, LABEL: "".join(item.groups.get(LABEL, ()))}
                values = {name: clean(text, WHOLE) if text.strip() else "" for name, text in texts.items()}
                line = self._line.format(**values, item=passage(item, "text", WHOLE), k=place)
                self._pieces[doc_id, place] = line, self._ruler.pieces(line)
            line, pieces = self._pieces[doc_id, place]
            lines.append(self._head.format(k=k) + self._ruler.cut(line, self._budgets[count], pieces))
        return lines

    def _question(self, before: str, behind: str) -> tuple[str, dict[str, str]]:
        """The variant with items, and its values; `split` as long as the place for items is not cut away."""
        count, cut = self._ruler.count, self._ruler.cut
        whole, left = count(self._input) <= QUESTION_TOKENS, QUESTION_TOKENS - count(before)
        if before and SPLIT in self._prompt.variants and (whole or left > 0):
            return SPLIT, {"before": before, "behind": behind if whole else cut(behind, left)}
        return ITEMS, {"question": cut(self._input, QUESTION_TOKENS)}

    def _frame(self, variant: str, values: dict[str, str], items: int) -> int:
        """Tokens of all that is sent beside question and lines, where the prompt's budget counts it."""
        if self._prompt.budget == "question":
            return 0
        heads = self._prompt.join.join(self._head.format(k=k + 1) for k in range(items))
        messages = self._prompt.render({**values, "passages": heads}, variant)
        return sum(self._ruler.count(message.content) for message in messages)

    def _whole(self, variant: str, values: dict[str, str]) -> tuple[Message, ...]:
        """The conversation, its last message cut to the context."""
        *first, last = self._prompt.render(values, variant)
        return (*first, last._replace(content=self._ruler.cut(last.content, self._ruler.context)))


# Whether an item supports what a generator made of it: asked of a model that judges, once per item and output.

ANSWERS = Labels(("yes", "no"))
Pair = tuple[str, str]
_BRACKETS = str.maketrans("", "", "[]()")
_SAID = re.compile(
    r"(?:(?:(?:the|my|final)\s+)*answer(?:\s*:|\s+is)\s*)?(?:(yes|true)|no|false)"
    r"(?:\s*[.,;:!\n–—](?!.*\b(?:but|however|actually|(?(1)no(?!\sdoubt)|yes))\b).*|\s*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Support:
    """What a model says of pairs of one query: whether the item supports the output; None where nobody can read it."""

    query_id: str
    supported: Mapping[Pair, bool | None]

    @property
    def unparseable(self) -> int:
        """Answers that are neither yes nor no."""
        return sum(answer is None for answer in self.supported.values())


@dataclass(frozen=True)
class Judging:
    """Pairs of one query as a model is asked about them. `hypothesis` words what an `{output}` claims."""

    query_id: str
    items: Mapping[str, Document]
    pairs: Sequence[Pair]
    prompt: Prompt
    hypothesis: str

    def chat(self, pair: Pair) -> Chat:
        """Does the item support the output?"""
        doc_id, output = pair
        item = self.items[doc_id]
        claim = self.hypothesis.format(output=clean(output, WHOLE))
        about = {
            "task": "support",
            "query_id": self.query_id,
            "doc_ids": [doc_id],
            "label": "".join(item.groups.get(LABEL, ())),
            "output": output,
        }
        values = {"item": passage(item, "text", WHOLE), "output": claim}
        return Chat(self.prompt.render(values), ANSWERS, about=about)

    def steps(self) -> Steps[Support]:
        """The answers to all pairs, which are asked at once, since none depends on another."""
        completions = (yield Chats(self.pairs, self.chat)) if self.pairs else []
        return Support(self.query_id, dict(zip(self.pairs, map(read_support, completions), strict=True)))


def read_support(completion: Completion) -> bool | None:
    """Whether an answer says yes: alone, or up to a punctuation mark unless taken back; None where it says neither."""
    if completion.finish is not Finish.STOP:
        return None
    answer = answer_of(completion.text)
    match = None if answer is None else _SAID.fullmatch(undressed(answer).translate(_BRACKETS).strip())
    return None if match is None else match[1] is not None
