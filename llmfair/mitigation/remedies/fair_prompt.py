"""The run's prompt with a fair instruction."""

from __future__ import annotations

from dataclasses import replace

from llmfair.audits.kind import kind_of
from llmfair.errors import UsageError
from llmfair.mitigation.remedy import OTHERS, Asking, Audit
from llmfair.mitigation.unmitigated import TASK, Unmitigated
from llmfair.prompts import wordings
from llmfair.registry import register

FAIR = "{}-fair"
"""What a prompt with the instruction is called beside the one without."""


UNREAD = ("simulated models read no words, so the instruction cannot move them",)


@register("remedy", "fair-prompt")
class FairPrompt(Asking):
    """`fair-prompt:FILE` asks with a prompt of one's own."""

    title = "fair instruction"
    does = (
        "The same lists in the same initial orders are asked about once more, with one sentence added to the prompt "
        "that asks to treat items of all groups alike (llmfair prompts show listwise-fair)."
    )

    def __init__(self, parameters: str = "") -> None:
        self.prompt = parameters

    def audit(self, run: Unmitigated) -> Audit:
        if not run.prompted:
            raise UsageError(f"{run.model} reads no prompt.", OTHERS)
        if not self.prompt and run.wording is None:
            raise UsageError(
                "the run's prompt is a file of your own, to which llmfair has no fair twin.",
                "--remedy fair-prompt:FILE    a copy of it with a fair instruction",
            )
        prompt = self.prompt or FAIR.format(wordings(TASK)[str(run.wording)])
        settings = replace(run.settings, prompt=prompt, conditions=run.condition, repeat=False)
        return Audit(
            kind_of(TASK), settings, run.subject, run.condition, remarks=UNREAD if run.simulated else ()
        )
