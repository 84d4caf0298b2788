"""The answer head: two rows of a model's output matrix, in float32, in the place of the whole.

Logits rounded to bfloat16 tie answers that a debiased model tells apart, and a vocabulary of logits costs memory that
two do not. What the model does to its logits afterwards (scaling, soft-capping) it does to these two as well, in
its own `forward`; that nothing else happens is checked against the margin that audits calculate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llmfair.errors import BackendError
from llmfair.tuning.examples import Example

if TYPE_CHECKING:
    from llmfair.backends.local import LocalModel

AnswerIds = tuple[int, int]


def language_model(model: Any) -> Any:
    """The transformers model itself, under an adapter or not."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def answer_head(model: Any, answers: AnswerIds) -> Iterator[None]:
    """Meanwhile the model's logits have the shape (rows, length, 2): those of the two answers, in this order.

    Nests, and leaves nothing behind; the rows are no part of a state dict.
    """
    inner = language_model(model)
    whole = inner.get_output_embeddings()
    if getattr(whole, "answers", None) == answers:
        yield
        return
    inner.set_output_embeddings(_two_rows(whole, answers))
    try:
        yield
    finally:
        inner.set_output_embeddings(whole)


def _two_rows(whole: Any, answers: AnswerIds) -> Any:
    """A module of the rows of `answers` in the output matrix, and of their biases."""
    import torch

    class AnswerHead(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.answers = answers
            rows, bias = whole.weight[list(answers)], getattr(whole, "bias", None)
            self.register_buffer("weight", rows.detach().float(), persistent=False)
            self.register_buffer(
                "bias", None if bias is None else bias[list(answers)].detach().float(), persistent=False
            )

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            # Outside autocast, which would round the product to bfloat16.
            with torch.autocast(hidden.device.type, enabled=False):
                return torch.nn.functional.linear(hidden.float(), self.weight, self.bias)

    return AnswerHead()


def require_same_margin(model: LocalModel, example: Example) -> None:
    """Raises BackendError unless the two rows give the margin that audits calculate, but for rounding.

    Inside `answer_head`, where there is nothing else to compare with, nothing is asked.
    """
    import torch

    if hasattr(language_model(model.model).get_output_embeddings(), "answers"):
        return
    ids = example.first.tolist()
    named = dict(zip(("first", "second"), example.answers, strict=True))
    try:
        (score,) = model.margins([ids], [named])
    except BackendError as error:
        raise BackendError(error.message, "choose another --base-model") from None
    audited = score.logprobs["first"] - score.logprobs["second"]
    with answer_head(model.model, example.answers), torch.inference_mode():
        logits = model.model(
            input_ids=torch.tensor([ids], device=model.model.device), use_cache=False
        ).logits[0, -1]
    found = float(logits[0] - logits[1])
    allowed = 1e-3 if model.place.dtype == "float32" else 0.1
    if logits.dtype != torch.float32 or abs(found - audited) > allowed * max(1.0, abs(audited)):
        raise BackendError(
            f"{model.checkpoint.name} does something to its logits that two of them alone do not show: "
            f"a margin is {found:.4f} instead of {audited:.4f}.",
            "choose another --base-model",
        )
