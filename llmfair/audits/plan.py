"""What a design would cost and can show, counted before anything is asked."""

from __future__ import annotations

from typing import Any

from llmfair.audits.design import answer_in_shown_order, make_design
from llmfair.audits.listwise import reach
from llmfair.audits.running import backend_of, limits_of
from llmfair.settings import ListwiseSettings

CHARACTERS_PER_TOKEN = 4


def plan_listwise(settings: ListwiseSettings) -> dict[str, Any]:
    """Chains, calls, about how many tokens, the shortest possible time and the reach of a listwise audit.

    The programs themselves are driven, each answered with the order it showed, so the count is exact for any
    model whose answers are all readable. Tokens are characters / 4.
    """
    design = make_design(settings)
    workers = max(limits_of(backend_of(model, settings), settings).workers for model in settings.model)
    calls = characters = answer = longest = 0
    for program in design.programs():
        steps, chain = program.start(), 0
        try:
            chats = next(steps)
            while True:
                chain += len(chats)
                characters += sum(len(message.content) for chat in chats for message in chat.messages)
                answers = [answer_in_shown_order(chat) for chat in chats]
                answer += sum(len(completion.text) for completion in answers)
                chats = steps.send(answers)
        except StopIteration:
            calls += chain
            longest = max(longest, chain)
    sizes = [n for n, *_ in design.lists()]
    return {
        "task": "listwise",
        "queries": len(design.queries),
        "candidates": [min(sizes), max(sizes)],
        "arms": [arm.name for arm in design.arms],
        "window": settings.window,
        "step": settings.step,
        "passes": settings.passes,
        "orders": settings.orders,
        "chains": len(design.queries) * design.chains_per_query,
        "longest_chain": longest,
        "calls": calls * len(settings.model),
        "prompt_tokens": characters // CHARACTERS_PER_TOKEN * len(settings.model),
        "completion_tokens": answer // CHARACTERS_PER_TOKEN * len(settings.model),
        "workers": workers,
        "seconds_at_1s_a_call": max(longest, -(-calls // workers)) * len(settings.model),
        "never_ranked": design.never_ranked(),
        "reach": reach(design),
        "first_query": design.queries[0].query_id,
        "dataset": design.dataset.name,
    }
