"""The prompt that names the protected group, where the run asked under it."""

from __future__ import annotations

from llmfair.errors import UsageError
from llmfair.mitigation.remedy import OTHERS, Remedied, Reordering
from llmfair.mitigation.unmitigated import Unmitigated
from llmfair.nouns import Side
from llmfair.registry import register


@register("remedy", "named-prompt")
class NamedPrompt(Reordering):
    title = "sensitive prompt"
    does = "The rankings of the run's own sensitive prompt that names the protected group, in place of the neutral one."

    def apply(self, run: Unmitigated) -> Remedied:
        return Remedied(run.orders_of(self.condition(run)))

    def calls(self, run: Unmitigated) -> int:
        return run.results.answers[self.condition(run)].asked

    def condition(self, run: Unmitigated) -> str:
        """The prompt's name. Raises UsageError where the run did not ask under it."""
        named = next((name for name, side in run.attribute.variants.items() if side is Side.PROTECTED), None)
        if named is None or not run.prompted:
            why = "has no words that name a group" if run.prompted else "reads no prompt"
            raise UsageError(
                f"{run.attribute.name if run.prompted else run.model} {why}.",
                "`words` in attributes.toml give it some" if run.prompted else OTHERS,
            )
        if named == run.condition:
            raise UsageError("it is the prompt that is mitigated.", "--condition neutral")
        if named not in run.results.design.conditions:
            raise UsageError(
                f"the run did not ask under the {named} prompt.",
                run.again(conditions=f"{run.condition},{named}"),
            )
        return named
