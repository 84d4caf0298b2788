"""A generator that answers a question from items: first without any and with each alone, then with whole lists.

What one item alone adds to the answer's utility is its gain, and an item with a gain is useful (Kim and Diaz 2025,
3.1). A program asks about one query in two steps: its labels, then, where at least two items are useful, every distinct
list that any condition shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Generic, TypeVar, overload

from llmfair.control_tokens import answer_of
from llmfair.metrics import generation
from llmfair.metrics.generation import FEWEST_USEFUL
from llmfair.metrics.texts import EMPTY, cleaned
from llmfair.nouns import LABEL, Chat, Completion, Document, Finish, Message, Query, Steps, Text

T = TypeVar("T")

Shown = tuple[str, ...]
"""The doc_ids that a generator is shown, in order."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a generator said, whether it could be used, and what that is worth against the right answer."""

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
    """What a generator made of one query.

    `alone` has its outputs for labels, without any item's among them, `lists` those for whole lists; `useful` are the
    items whose gain is above 0, or those judged so.
    """

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
    """Chats about these things, made when their turn comes: a query has hundreds, and many queries are under way."""

    about: Sequence[T]
    make: Callable[[T], Chat]

    def __len__(self) -> int:
        return len(self.about)

    @overload
    def __getitem__(self, place: int) -> Chat: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Chat]: ...
    def __getitem__(self, place: int | slice) -> Chat | Sequence[Chat]:
        return (
            Chats(self.about[place], self.make) if isinstance(place, slice) else self.make(self.about[place])
        )


@dataclass(frozen=True)
class Asked:
    """One query as a generator is asked about it.

    `useful`: the items judged so; None: gains say it. `lists` names the distinct lists of all conditions, once it is
    known which items are useful. `utility` is an output's worth against the right answers, `gain` the same as labels
    are made with.
    """

    query: Query
    items: Mapping[str, Document]
    render: Callable[[Shown], tuple[Message, ...]]
    lists: Callable[[frozenset[str]], Sequence[Shown]]
    utility: Callable[[str], float]
    gain: Callable[[str], float]
    useful: frozenset[str] | None = None

    def labelled(self) -> list[Shown]:
        """What is asked about for labels: no item, then each alone."""
        return [] if self.useful is not None else [(), *((doc_id,) for doc_id in self.items)]

    def chat(self, shown: Shown) -> Chat:
        """The question beside these items."""
        labels = ["".join(self.items[doc_id].groups.get(LABEL, ())) for doc_id in shown]
        about = {"task": "rag", "query_id": self.query.query_id, "doc_ids": list(shown), "labels": labels}
        return Chat(self.render(shown), Text(), about=about)

    def steps(self) -> Steps[Read]:
        """Asks for labels unless they are known, then about lists if at least two items are useful."""
        query_id, useful, gains, alone = self.query.query_id, self.useful, dict[str, float](), {}
        if useful is None:
            labelled = self.labelled()
            completions = yield Chats(labelled, self.chat)
            alone = {
                shown: output_of(completion, self.gain)
                for shown, completion in zip(labelled, completions, strict=True)
            }
            added = generation.gains(alone[()].utility, [alone[doc_id,].utility for doc_id in self.items])
            gains = dict(zip(self.items, added.tolist(), strict=True))
            useful = frozenset(compress(self.items, generation.useful(added)))
        lists = self.lists(useful) if len(useful) >= FEWEST_USEFUL else []
        completions = (yield Chats(lists, self.chat)) if lists else []
        outputs = (output_of(completion, self.utility) for completion in completions)
        return Read(query_id, useful, gains, alone, dict(zip(lists, outputs, strict=True)))


def output_of(completion: Completion, utility: Callable[[str], float]) -> Output:
    """What is scored and credited: the answer without thoughts, which stay in the journal; none of open thoughts."""
    answer, finish = answer_of(completion.text), completion.finish
    if answer is None and finish is Finish.STOP:
        finish = Finish.UNFINISHED_THINKING
    text = cleaned(answer or "")
    return Output(text, finish, utility(text))
