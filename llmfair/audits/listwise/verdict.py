"""The verdict of a listwise audit: who gets less exposure, how much, and whether the ranker is of use."""

from __future__ import annotations

from llmfair.audits.listwise.results import Excess, ListwiseFinding
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.verdict import ADVICE, Case, VerdictWords
from llmfair.nouns import Conclusion
from llmfair.report.decimals import interval_text, numbers
from llmfair.report.figures import ratio_of
from llmfair.report.tables import count
from llmfair.results import Figure

FAR_MORE = 10
"""So many times the queries of a run are no next step."""
RANDOM_WINDOWS = (
    "random windows (--design partition) tell a preference from the slots by fewer calls, where these windows would "
    "take far more queries"
)


class ListwiseWords(VerdictWords):
    """In exposure beyond what relevance explains, and in odds of which the band speaks."""

    def where(self, case: Case) -> str:
        return super().where(case) if case.found.prompted else ""

    def disparity(self, case: Case) -> str:
        less = _exposure(case) or _ahead(case)
        if less is None:
            return super().disparity(case)
        return f"{self.where(case)}{less}; {case.measured}{_of_others(case)}, outside {case.band}"

    def parity(self, case: Case) -> str:
        told = _useful(case)
        return super().parity(case) + f"; {told}" * bool(told)

    def next(self, gravest: Conclusion, case: Case) -> str:
        said = super().next(gravest, case)
        if case.finding.reason != "order_not_random" or not case.found.preset:
            return said
        options = ListwiseSettings.preset_options().items()
        parts = "".join(
            f", or +{part} of --preset {case.found.preset}," for part, of in options if "initial" in of
        )
        return said.replace("--initial", f"--initial{parts}", 1)

    def settle(self, case: Case) -> str:
        """What parity lacks where the estimate lies in the band without it; else what would settle it.

        That is more queries, or windows that tell more where queries could not make up for what these leave open.
        """
        finding, value = case.finding, None if case.figure is None else case.figure.value
        low, high = case.found.band
        if not isinstance(finding, ListwiseFinding) or value is None:
            return super().settle(case)
        inside = low <= value <= high
        if inside and finding.useful is None:
            return ADVICE["not_judged"]
        if finding.useful is None or finding.useful.shown or not inside:
            return case.found.by_way(RANDOM_WINDOWS, "slots") if _is_vague(case) else super().settle(case)
        told = _useful(case)
        return (
            "a more able model, or more queries: parity needs a ranker that orders by relevance better than "
            f"{finding.useful.against}, which is not shown{f' ({told})' * bool(told)}"
        )

    def look(self, case: Case) -> str:
        measures = case.found.measures
        if (
            ratio_of(measures, declared(measures), of_queries=True) is None
        ):  # nothing to tell queries apart by
            return f"single answers: llmfair runs show {case.run} --answers{case.mitigation}"
        remedies = "" if case.found.run is None else f" · mitigate: llmfair mitigate {case.run}"
        return f"llmfair runs show {case.run} --furthest{case.mitigation or remedies}"


def _is_vague(case: Case) -> bool:
    """Whether slots or few comparisons leave the odds of a model's rankings open, so that no more queries would do."""
    figure, finding = case.figure, case.finding
    useful = finding.useful if isinstance(finding, ListwiseFinding) else None
    if figure is None or not figure.low or not figure.high or not figure.n:
        return False
    low, high = case.found.band
    partition = useful is not None and useful.chance  # which has no better windows
    many = case.settled_by is None or case.settled_by > FAR_MORE * figure.n
    return many and figure.high / figure.low > high / low and case.found.prompted and not partition


def _exposure(case: Case) -> str | None:
    """Who gets less exposure, how much, with its interval; None where exposure does not say so, too."""
    finding, groups = case.finding, case.groups
    excess = finding.excess if isinstance(finding, ListwiseFinding) else None
    if excess is None or groups is None or not excess.excludes_parity(bool(case.protected_behind)):
        return None
    ends = _of_behind(excess, bool(case.protected_behind))
    less, most, least = numbers([100 * (1 - end) for end in ends], (0,), 0)
    behind, ahead = groups
    return (
        f"{behind} items get {less} % less exposure than {ahead} ones at equal relevance "
        f"({case.found.level * 100:g} % CI {least} to {most} % less, {count(excess.n, 'query', 'queries')})"
    )


def _of_others(case: Case) -> str:
    """How many queries the odds go over, where exposure goes over others."""
    finding = case.finding
    excess = finding.excess if isinstance(finding, ListwiseFinding) else None
    same = excess is None or case.figure is None or excess.n == case.figure.n or _exposure(case) is None
    return "" if same else f" ({case.counted})"


def _ahead(case: Case) -> str | None:
    """How often an item of the group at a disadvantage is ahead of one of the other; None without an interval."""
    figure, groups = case.figure, case.groups
    if figure is None or groups is None or figure.value is None or figure.low is None or figure.high is None:
        return None
    shares = [100 * odds / (1 + odds) for odds in (figure.value, figure.low, figure.high)]
    if not case.protected_behind:
        shares = [100 - shares[0], 100 - shares[2], 100 - shares[1]]
    behind, ahead = groups
    often, low, high = numbers(shares, (50,), 0)
    return (
        f"the {behind} one of two equally relevant items is put ahead of the {ahead} one {often} times in 100 "
        f"({case.found.level * 100:g} % CI {low} to {high}, {case.counted})"
    )


def _of_behind(excess: Excess, protected: bool) -> tuple[float, float, float]:
    """The exposure of the group at a disadvantage over that of the other, with its interval."""
    assert excess.low is not None and excess.high is not None
    if protected:
        return excess.value, excess.low, excess.high
    return 1 / excess.value, 1 / excess.high, 1 / excess.low


def _useful(case: Case) -> str:
    """What says that the ranker does its job: how much better it orders by relevance than what it is held against."""
    useful = case.finding.useful if isinstance(case.finding, ListwiseFinding) else None
    if useful is None or useful.low is None:
        return ""
    known = Figure(useful.value, useful.low, useful.high, useful.n, None, None, None, None)
    interval = f"{interval_text(known, (useful.chance,))} (99.9 % CI)"
    if useful.chance:
        return (
            f"the more relevant of two items is put ahead at odds of {interval}, where chance has "
            f"{useful.chance:g}"
        )
    return f"{useful.measure} lies {interval} above that of {useful.against}"
