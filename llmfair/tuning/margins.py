"""Margins of pairs, by the head that training uses and with the arithmetic that audits use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import BackendError
from llmfair.tuning.drawing import ExampleGroup, Ids, answer_ids
from llmfair.tuning.head import answer_head, inputs_cast, language_model, require_same_margin

if TYPE_CHECKING:
    from llmfair.backends.local import LocalModel


def pair_margins(
    model: LocalModel, groups: Sequence[ExampleGroup], batch_tokens: int
) -> list[NDArray[np.float64]]:
    """Per group (pairs, 2): the margins z1 (`a` shown first) and z2, answer naming the first minus the other.

    In float32, without autocast; with the adapter, or without it inside `model.without_adapter()`. Prompts of like
    length share a batch of up to `batch_tokens` positions. Raises BackendError for a model whose logits two rows
    of its output matrix do not give, and for a prompt that does not fit the memory.
    """
    prompts = [ids for group in groups for example in group for ids in example.prompts]
    if not prompts:
        return [np.zeros((0, 2)) for _ in groups]
    answers = answer_ids(groups)
    inner = language_model(model.model)
    training = inner.training
    model.model.eval()
    try:
        with inputs_cast(inner, True):
            require_same_margin(model, next(example for group in groups for example in group))
            found = np.zeros(len(prompts))
            with answer_head(inner, answers):
                for rows in _batches(prompts, batch_tokens):
                    found[rows] = _margins(model, [prompts[row] for row in rows])
    finally:
        model.model.train(training)
    sizes = np.cumsum([len(group) for group in groups])[:-1]
    return np.split(found.reshape(-1, 2), sizes)


def _batches(prompts: Sequence[Ids], batch_tokens: int) -> Iterator[list[int]]:
    """The prompts' places, longest first, so that a batch too large for the memory is the first one."""
    batch: list[int] = []
    for place in sorted(range(len(prompts)), key=lambda place: (-len(prompts[place]), place)):
        if batch and (len(batch) + 1) * len(prompts[batch[0]]) > batch_tokens:
            yield batch
            batch = []
        batch.append(place)
    yield batch


def _margins(model: LocalModel, prompts: Sequence[Ids]) -> NDArray[np.float64]:
    """Padded on the right, without a mask; a batch that is too large for the memory runs in halves."""
    import torch

    inner = language_model(model.model)
    lengths = [len(ids) for ids in prompts]
    ids = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.from_numpy(prompt)
    try:
        with torch.inference_mode():
            # Not the wrapped model: a training's autocast is none of an audit's.
            logits = inner(input_ids=ids.to(inner.device), use_cache=False).logits
            last = logits[torch.arange(len(prompts)), torch.tensor(lengths) - 1].double()
            margins: NDArray[np.float64] = (last[:, 0] - last[:, 1]).cpu().numpy()
            return margins
    except torch.OutOfMemoryError:
        pass  # out here the batch's own tensors are gone
    if len(prompts) == 1:
        raise BackendError(
            f"the memory of {model.place.device} is too small for a prompt of {max(lengths):,} tokens.",
            "choose fewer --words, --dtype bfloat16, or a smaller model",
        )
    half = len(prompts) // 2
    return np.concatenate([_margins(model, prompts[:half]), _margins(model, prompts[half:])])
