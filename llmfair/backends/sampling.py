"""What stands between a local model's logits and the token it says: a grammar, and a seeded draw.

Both work row by row, so that an answer does not depend on the other answers of its batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmfair.backends.grammar import permutation_grammar
from llmfair.checkpoints import INSTALL
from llmfair.errors import MissingExtra, UsageError
from llmfair.nouns import Expects, Labels, Permutation

if TYPE_CHECKING:
    import torch


def grammar_of(expects: Expects) -> str:
    """A Lark grammar, as llguidance reads it, of all answers of this shape. Raises UsageError for free text."""
    match expects:
        case Permutation(n, best):
            return permutation_grammar(n, best)
        case Labels(labels):
            return f"start: {' | '.join(json.dumps(label) for label in labels)}\n"
        case _:
            raise UsageError("--constrain needs an answer of a known shape.", "leave it out")


class GrammarTokens:
    """A tokenizer as llguidance sees it; grammars are compiled once each.

    `width`: the logits of the model, which may be more than the tokenizer has tokens. Raises MissingExtra, and
    UsageError for a tokenizer that cannot be read.
    """

    def __init__(self, tokenizer: Any, width: int, ends: Sequence[int]) -> None:
        try:
            import llguidance.hf
        except ImportError:
            raise MissingExtra("--constrain needs llguidance.", INSTALL) from None
        try:
            self._tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=width, eos_token=list(ends))
        except ValueError as error:
            raise UsageError(
                f"the tokenizer cannot be held to a grammar: {error}.", "leave --constrain out"
            ) from None
        self.ends = list(ends)
        self._compiled: dict[str, Any] = {}

    def matcher(self, grammar: str) -> Any:
        """A fresh matcher, at the start of an answer."""
        from llguidance import LLMatcher

        if grammar not in self._compiled:
            found = LLMatcher(self._tokens, LLMatcher.grammar_from_lark(grammar))
            if found.is_error():
                raise UsageError(f"the grammar cannot be used: {found.get_error()}.", "leave --constrain out")
            self._compiled[grammar] = found
        return self._compiled[grammar].deep_copy()


class Constraint:
    """Allows each row the tokens of its grammar only; `start` is where answers begin. A row may be free (None)."""

    def __init__(self, tokens: GrammarTokens, grammars: Sequence[str | None], start: int) -> None:
        self._matchers = [tokens.matcher(grammar) if grammar else None for grammar in grammars]
        self._start, self._ends = start, tokens.ends

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import numpy as np
        import torch

        spoken = ids[:, self._start :].tolist()
        allowed = np.ones(tuple(scores.shape), dtype=bool)
        for row, matcher in enumerate(self._matchers):
            if matcher is None:
                continue
            if spoken[row] and not matcher.is_stopped():
                matcher.consume_token(spoken[row][-1])
            allowed[row] = False
            if matcher.is_stopped():  # nothing can follow but the end
                allowed[row, self._ends] = True
            else:
                mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
                bits = np.unpackbits(mask, bitorder="little")[: allowed.shape[1]]
                allowed[row, : len(bits)] = bits
        return scores.masked_fill(torch.from_numpy(~allowed).to(scores.device), -torch.inf)


class Drawing:
    """Draws from softmax(scores / temperature) cut at `top_p`, each row with its own seed.

    Gumbel noise makes the likeliest token a draw [Gumbel 1954; Maddison et al. 2014], so that `generate` can stay
    greedy and rows need no common generator.
    """

    def __init__(self, seeds: Sequence[int], temperature: float, top_p: float | None) -> None:
        self._seeds, self._temperature, self._top_p = seeds, temperature, top_p
        self._generators: list[torch.Generator] = []

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch

        if not self._generators:
            self._generators = [torch.Generator(scores.device).manual_seed(seed) for seed in self._seeds]
        scores = scores.float() / self._temperature
        if self._top_p is not None and self._top_p < 1:
            scores = self._cut(scores, self._top_p)
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise.log()

    def _cut(self, scores: torch.Tensor, top_p: float) -> torch.Tensor:
        """The likeliest tokens whose probabilities come to `top_p`, the one that reaches it included."""
        import torch

        ordered, places = scores.sort(descending=True, dim=-1)
        shares = ordered.softmax(-1)
        dropped = shares.cumsum(-1) - shares >= top_p
        return scores.masked_fill(torch.zeros_like(dropped).scatter(-1, places, dropped), -torch.inf)
