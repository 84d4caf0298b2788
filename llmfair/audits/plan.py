"""What a design would cost and can show, counted before anything is asked."""

from __future__ import annotations

import shlex
from typing import Any

from llmfair.audits.design import Design, answer_in_shown_order, make_design
from llmfair.audits.listwise import backend_for, run_name
from llmfair.audits.outcome import reach
from llmfair.audits.running import backend_of, is_ranker, limits_of
from llmfair.rundir import RunDir
from llmfair.settings import ListwiseSettings

CHARACTERS_PER_TOKEN = 4
WORDS_OF_A_PROMPT = (
    "dataset", "attribute", "seed", "candidates", "buckets", "experts", "min_experts", "mixed", "input", "words",
    "prompt", "window", "step", "depth", "windows", "initial", "orders",
)  # fmt: skip


def plan_listwise(settings: ListwiseSettings) -> dict[str, Any]:
    """Chains, calls, about how many tokens, the shortest possible time and the reach of a listwise audit.

    The programs themselves are driven, each answered with the order it showed, so the count is exact for any
    model whose answers are all readable. Tokens are characters / 4. Rankers that ask no model cost nothing.
    """
    asked = [model for model in settings.model if not is_ranker(model)]
    design = make_design(settings, (asked or settings.model)[0])
    workers = max((limits_of(backend_of(model, settings), settings).workers for model in asked), default=1)
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
    sizes = [shape.n for shape in design.shapes()]
    return {
        "task": "listwise",
        "queries": len(design.queries),
        "candidates": [min(sizes), max(sizes)],
        "arms": [arm.name for arm in design.arms],
        **design.asked_with(),
        "orders": design.settings.orders,
        "chains": len(design.queries) * design.chains_per_query,
        "longest_chain": longest,
        "calls": calls * len(asked),
        "prompt_tokens": characters // CHARACTERS_PER_TOKEN * len(asked),
        "completion_tokens": answer // CHARACTERS_PER_TOKEN * len(asked),
        "workers": workers,
        "seconds_at_1s_a_call": max(longest, -(-calls // workers)) * len(asked),
        "never_ranked": design.never_ranked(),
        "reach": reach(design),
        **_known(design, settings, (asked or list(settings.model))[0]),
        "render": _render_flags(design),
    }


def _known(design: Design, settings: ListwiseSettings, model: str) -> dict[str, Any]:
    """The run folder of this design, and how many answers it holds already."""
    identity = {"task": "listwise", "identity": backend_for(design, model).identity, **design.identity()}
    folder = RunDir(settings.output or settings.runs_dir / run_name(design, model, identity))
    answers = folder.summary()["answers"] if folder.manifest.is_file() else 0
    return {"folder": str(folder.path), "answered": answers}


def _render_flags(design: Design) -> str:
    """The flags under which `prompts render` shows the first prompt of this design."""
    flags = design.settings.as_flags(WORDS_OF_A_PROMPT)
    return f"{flags} --queries {shlex.quote(design.queries[0].query_id)}".strip()
