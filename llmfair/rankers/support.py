"""Whether an item supports what a generator made of it: asked of a model that judges, once per item and output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmfair.control_tokens import answer_of
from llmfair.nouns import LABEL, Chat, Completion, Document, Finish, Labels, Steps
from llmfair.prompts import Prompt
from llmfair.rankers.answers import undressed
from llmfair.rankers.passages import clean, passage
from llmfair.rankers.reader import Chats

ANSWERS = Labels(("yes", "no"))
WHOLE = 1_000_000
"""More words than any text has."""
Pair = tuple[str, str]
"""A doc_id, and what an output says."""
_BRACKETS = str.maketrans("", "", "[]()")
_SAID = re.compile(
    r"(?:(?:(?:the|my|final)\s+)*answer(?:\s*:|\s+is)\s*)?(?:(yes|true)|no|false)"
    r"(?:\s*[.,;:!\n–—](?!.*\b(?:but|however|actually|(?(1)no(?!\sdoubt)|yes))\b).*|\s*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Judged:
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

    def steps(self) -> Steps[Judged]:
        """All at once, since no answer depends on another."""
        completions = (yield Chats(self.pairs, self.chat)) if self.pairs else []
        answers = map(read_support, completions)
        return Judged(self.query_id, dict(zip(self.pairs, answers, strict=True)))


def read_support(completion: Completion) -> bool | None:
    """Whether an answer says yes; None where it says neither, breaks off or leaves it open.

    It is yes or no alone, or one of them up to a punctuation mark, unless the rest takes it back: `Yes, but no` is
    neither.
    """
    if completion.finish is not Finish.STOP:
        return None
    answer = answer_of(completion.text)
    said = None if answer is None else _SAID.fullmatch(undressed(answer).translate(_BRACKETS).strip())
    return None if said is None else said[1] is not None
