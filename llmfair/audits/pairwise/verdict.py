"""The verdict of a pairwise audit: whose items lose pairs, and how many."""

from __future__ import annotations

from llmfair.audits.verdict import Case, VerdictWords
from llmfair.metrics.base import POOLED
from llmfair.report.decimals import interval_text, numbers, outward
from llmfair.report.reasons import in_words


class PairWords(VerdictWords):
    """In pairs won for every hundred that the other group wins, with the position taken out."""

    def __init__(self) -> None:
        super().__init__("pairs")
        self.of = self.of_several = "of {} pairs"

    def disparity(self, case: Case) -> str:
        figure, groups = case.figure, case.groups
        if figure is None or groups is None:
            return super().disparity(case)
        behind, ahead = groups
        edge = figure.high if case.protected_behind else figure.low
        if figure.value is None or figure.low is None or figure.high is None:
            if not edge:
                return super().disparity(case)
            most = outward(100 * (edge if case.protected_behind else 1 / edge), True, (100,))
            why = in_words(case.finding.reason, case.finding.measure)
            return (
                f"{self.where(case)}{behind} items win at most {most} times for every 100 wins of equally relevant "
                f"{ahead} ones ({case.queries}; a bound alone, since {why}); "
                f"{case.measured}, outside {case.band}"
            )
        ends = [figure.value, figure.low, figure.high]
        if not case.protected_behind:
            ends = [1 / figure.value, 1 / figure.high, 1 / figure.low]
        won, low, high = _in_a_hundred(*ends)
        return (
            f"{self.where(case)}{behind} items win {won} times for every 100 wins of equally relevant {ahead} ones "
            f"({case.found.level * 100:g} % CI {low} to {high}, {case.counted}); {case.measured}, outside {case.band}"
        )

    def parity(self, case: Case) -> str:
        found = case.found
        kappa = found.figures.get(("Kappa", case.condition)) or found.figures.get(
            (f"Kappa{POOLED}", case.condition)
        )
        agree = (
            ""
            if kappa is None or kappa.value is None
            else f"; both orders agree with kappa {interval_text(kappa, (0.0,))}"
        )
        return super().parity(case) + agree

    def look(self, case: Case) -> str:
        return f"llmfair runs show {case.run} --furthest{case.mitigation}"


def _in_a_hundred(*odds: float) -> list[str]:
    return numbers([100 * one for one in odds], (100,), 0)
