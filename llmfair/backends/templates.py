"""From a conversation to token ids: the one place where `hf:`, `vllm:` and training render a chat template.

The template is rendered to text and the text is encoded by us, without further special tokens, so that an audit and
a training run see the same ids. Labels of answers become ids here, too: what a margin compares are the two tokens
at the first place where the answers differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from llmfair.backends.base import fold_system
from llmfair.control_tokens import without_control_tokens
from llmfair.errors import MissingExtra, Rejected, UsageError
from llmfair.nouns import Expects, Labels, Message, Permutation

FOLD_HINT = "leave --system out, or fold the system text into the first user message with --system fold"
_PROBE = "WordsOfTheSystem"


class ChatTemplate:
    """A tokenizer's chat template, ready to render: `ids(messages)` is the prompt up to where the answer begins.

    `system`: `separate` keeps the role, `fold` puts the system text before the first user message, `auto` folds
    for templates that refuse the role or drop its text; `folded` says which it is. `template_kwargs` go to the
    template (`enable_thinking=False`). Raises UsageError for a tokenizer without a template, or one that cannot
    be rendered.
    """

    def __init__(
        self,
        tokenizer: Any,
        system: Literal["auto", "separate", "fold"] = "auto",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.template_kwargs = dict(template_kwargs or {})
        self.folded = False
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        self._control = tuple(token.content for token in added if token.special)
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"{self.name} has no chat template, so it is not a model one can talk to.",
                "choose its instruction-tuned version, often named Instruct or Chat",
            )
        if system == "fold":
            self.folded = True
        elif not self._takes_system():
            if system == "separate":
                raise UsageError(f"the chat template of {self.name} takes no system message.", FOLD_HINT)
            self.folded = True
        # What a tokenizer puts before any text; models trained with it do badly without.
        bos = tokenizer.bos_token_id
        self._start = [bos] if bos is not None and list(tokenizer("a").input_ids)[:1] == [bos] else []
        try:
            self.ids((Message("system", _PROBE), Message("user", "a")))
        except Rejected as error:
            raise UsageError(error.message, "repair chat_template in its tokenizer files") from None

    @property
    def name(self) -> str:
        return str(getattr(self.tokenizer, "name_or_path", "") or "the tokenizer")

    @property
    def sha256(self) -> str:
        """SHA-256 of the template's text: whether a prompt is rendered as it was when an adapter was trained."""
        return hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest()

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt as text, the head of the answer's turn included. Raises Rejected when the template refuses."""
        shown = fold_system(tuple(messages)) if self.folded else messages
        # What a title says must not end a turn or begin one: the tokenizer would read these as its own.
        rows = [
            {"role": message.role, "content": without_control_tokens(message.content, self._control)}
            for message in shown
        ]
        try:
            import jinja2
        except ImportError:
            raise MissingExtra("chat templates need jinja2.", "pip install 'llmfair[local]'") from None
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    rows, tokenize=False, add_generation_prompt=True, **self.template_kwargs
                )
            )
        except jinja2.TemplateError as error:
            raise Rejected(f"the chat template of {self.name} refuses this conversation: {error}.") from None

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """The prompt as token ids; it starts with exactly one BOS where the tokenizer uses one.

        A template that writes no BOS gets the tokenizer's; one that writes two is broken: UsageError.
        """
        (found,) = self._encode([self.text(messages)])
        return found

    def label_ids(
        self, messages: Sequence[Message], answers: Mapping[str, str]
    ) -> tuple[list[int], dict[str, int]]:
        """The prompt up to where the answers part, and each label's token id there: `(ids, {label: id})`.

        `answers` are the answers' texts by label (`label_answers`). What they have in common, such as the `[` of
        `[1] > [2]`, is appended to the prompt: the model is made to say it. Raises UsageError for answers that one
        token cannot tell apart.
        """
        text = self.text(messages)
        (prompt,) = self._encode([text])
        said, found = self._parting(text[self._last_token(text) :], tuple(answers.items()))
        return [*prompt, *said], dict(found)

    def _last_token(self, text: str) -> int:
        """Where the last control token of a rendered prompt begins: what follows is cut into tokens by itself."""
        return max([0, *(text.rfind(token) for token in self._control)])

    @lru_cache(maxsize=64)  # noqa: B019  # the tail is the same for all prompts of most templates
    def _parting(
        self, tail: str, answers: tuple[tuple[str, str], ...]
    ) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
        """What all answers begin with after the tail of a prompt, and each label's token id where they part."""
        texts = [tail, *(tail + answer for _, answer in answers)]
        before, *encoded = self.tokenizer(texts, add_special_tokens=False).input_ids
        place = next((i for i, ids in enumerate(zip(*encoded, strict=False)) if len(set(ids)) > 1), None)
        # The answers may not change how the prompt itself is cut into tokens.
        if place is None or any(ids[: len(before)] != before for ids in encoded):
            raise self._inseparable(answers)
        found = tuple((label, ids[place]) for (label, _), ids in zip(answers, encoded, strict=True))
        if len({token for _, token in found}) < len(found):
            raise self._inseparable(answers)
        return tuple(encoded[0][len(before) : place]), found

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts of rendered prompts as token ids. Raises UsageError for two BOS."""
        found = [list(ids) for ids in self.tokenizer(texts, add_special_tokens=False).input_ids]
        if self._start:
            found = [ids if ids[:1] == self._start else [*self._start, *ids] for ids in found]
            if any(ids[1:2] == self._start for ids in found):
                raise UsageError(
                    f"the chat template of {self.name} starts with {self.tokenizer.bos_token} twice.",
                    "repair chat_template in its tokenizer files",
                )
        return found

    def _takes_system(self) -> bool:
        """Whether the words of a system message arrive in the prompt."""
        try:
            return _PROBE in self.text((Message("system", _PROBE), Message("user", "a")))
        except Rejected:
            return False

    def _inseparable(self, answers: Sequence[tuple[str, str]]) -> UsageError:
        shown = ", ".join(f"'{answer}'" for _, answer in answers)
        return UsageError(
            f"{self.name} does not cut the answers {shown} into tokens that tell them apart.",
            "read the answers' text with --answers text",
        )


def label_answers(expects: Expects) -> dict[str, str]:
    """The answers whose first difference a margin is about, by label: of two numbers in order, or of labels.

    Raises UsageError for an answer of another shape.
    """
    match expects:
        case Permutation(2, None):
            return {"1": "[1] > [2]", "2": "[2] > [1]"}
        case Labels(labels) if len(labels) > 1:
            return {label: label for label in labels}
        case _:
            raise UsageError(
                "only answers that choose between labels have margins.", "leave --answers margin out"
            )
