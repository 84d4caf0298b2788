"""Verdicts: one status, one sentence, one next step; of a run by what is concluded, of a comparison by what changed.

That of a run speaks of the gravest condition and names the others that share its status. A kind says it in its own
words (`VerdictWords`); the words here do for any kind that concludes by a band around parity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from msgspec.structs import replace

from llmfair import registry
from llmfair.io.text import count, listed, p_text
from llmfair.metrics.base import Definition
from llmfair.metrics.names import in_words, parse_measure
from llmfair.nouns import OTHERS, Conclusion, Key
from llmfair.report.phrases import FEW_QUERIES, interval_text
from llmfair.results import (
    EQUAL_SCORES,
    OUTSIDE_ALONE,
    UNPARSEABLE,
    Conclusions,
    Figure,
    Finding,
    RunVerdict,
    absent_row,
    stratum_of,
)
from llmfair.stats.intervals import Estimate, queries_to_settle
from llmfair.stats.paired import away_from_parity
from llmfair.stats.sequential import FEW_INSIDE, FEWEST_INSIDE
from llmfair.stats.significance import named_groups

if TYPE_CHECKING:
    from llmfair.audits.documents import ChangeRow, Comparison

STATUSES: Mapping[Conclusion, str] = {
    Conclusion.OUTSIDE: "disparity",
    Conclusion.NOT_ASSESSABLE: "not assessable",
    Conclusion.INCONCLUSIVE: "inconclusive",
    Conclusion.WITHIN: "parity",
}
"""The statuses of a kind that concludes by a band, the gravest first."""
MOST_NAMED = 6
"""Pairs that are outside the band that a sentence names, with their odds, of a group or of all others."""
MOST_PAIRS = 3
"""Pairs of groups that a sentence names, of which the same is said."""
MOST_QUERIES = 10_000
"""Nobody asks more queries than this to settle a question."""
UNFINISHED = "the command that began the run asks what is missing, and then says more"
ANSWERED = "what it answered: llmfair runs show {run} --invalid"
LOOK = "what stands behind it: llmfair report {run}"
ADVICE: Mapping[str, str] = {
    "too_few_queries": "ask at least 5 queries (--limit takes some away)",
    FEW_INSIDE: f"leave --sequential out, or ask at least {FEWEST_INSIDE} queries",
    "order_not_random": "leave --initial out: random orders let a preference be told from the initial ranking",
    "no_common_grade": "judge items of both groups at the same grades, or draw such lists: --buckets equal",
    "few_common_grades": "more queries whose lists have items of both groups at the same grades",
    "no_better_than_input": "a more able model, or --input text, so that the ranking is of use",
    "no_better_than_random": "score a ranking that orders by relevance better, or judge more queries",
    "no_better_than_chance": "a more able model, or --input text, so that answers are more than chance",
    "chance_answers": "a more able model, or --input text, so that answers are more than chance",
    "one_sided": "single answers: llmfair runs show {run} --answers",
    "always_one_way": "more queries narrow the bound: {planned}",
    "separated": "more queries, which tell a preference from the slots: {planned}",
    "position_driven": "another model, or another --prompt: these answers follow the position, not the items",
    OUTSIDE_ALONE: "more queries, which tell a disparity from chance: {planned}",
    "no_encounter": "longer windows (--window), so that items of both groups are shown together",
    "few_encounters": "longer windows (--window), so that items of both groups are shown together, or more queries",
    "too_few_comparisons": "more queries, or longer lists: fewer than 20 comparisons say nothing",
    "tied": "scores that tell more items apart: a finer scale, or the mean of several grades of each item",
    "few_relevant": "more queries, or lists in which both groups have more relevant items",
    "few_items": "more items: lists that share fewer of them",
    "stratum_open": "more queries, which narrow the odds of relevant and of irrelevant items apart: {planned}",
    "narrow_range": "larger windows or more passes, whose rankings show what the answers prefer",
    "items_left_out": "a model, or longer answers, that name all items: more room with --max-tokens",
    "not_judged": "give judgements of relevance (qrels), which say whether the ranker does its job",
    EQUAL_SCORES: "another model, or this one set up otherwise, since one score for all items ranks none; the answers: "
    "llmfair runs show {run} --answers",
}
"""What to change where a conclusion is barred, by its reason."""
UNREADABLE = (UNPARSEABLE, "no_readable_answer")
"""The reasons for which answers cannot be read; PROBLEMS say what is wrong with most of them."""
PROBLEMS: Mapping[str, tuple[str, str]] = {
    "truncated": ("most of these break off at the limit of tokens", "longer answers with --max-tokens; "),
    "refused": ("most of these are refusals", "another model, or another --prompt; "),
    "filtered": ("a filter of the server keeps most of these back", "another model, or another --prompt; "),
    "empty": ("most of these are empty", ""),
}
"""What is wrong with answers that cannot be read, in words, and what to change."""
# The facts of a verdict in words: cases, and what to do.


def cases_of(facts: Conclusions) -> list[Case]:
    """What something is concluded of."""
    return [Case(facts, key, facts.findings[key]) for key in facts.keys if key in facts.findings]


def advice_of(facts: Conclusions, text: str) -> str:
    """Advice with the commands that it names."""
    return text.format(run=quote(facts.run or "RUN"), planned=facts.planned or f"llmfair plan {facts.task}")


def by_way(facts: Conclusions, advice: str, reason: str) -> str:
    """Advice with the command that follows it, where there is one."""
    return f"{advice} · {facts.ways[reason]}" if reason in facts.ways else advice


@dataclass(frozen=True)
class Case:
    """One key with what is concluded of it."""

    facts: Conclusions
    key: Key
    finding: Finding

    @property
    def figure(self) -> Figure | None:
        return self.facts.figures.get((self.finding.spoken_of, self.key))

    @property
    def definition(self) -> Definition:
        return parse_measure(self.finding.measure).definition

    @property
    def measured(self) -> str:
        """The headline in words with its interval: `odds of answers 0.17 [0.10, 0.21]`."""
        return f"{self.label} {self.interval}"

    @property
    def label(self) -> str:
        """What is spoken of: the measure, and of which items, unless of all."""
        return parse_measure(self.finding.spoken_of).label

    @property
    def stated(self) -> str:
        """The same as the beginning of a statement: `odds of answers are 0.17 [0.10, 0.21]`."""
        plural = self.definition.label.endswith("s")
        return f"{self.label} {'are' if plural else 'is'} {self.interval}"

    @property
    def interval(self) -> str:
        """The headline's figure, told so that its place in the band shows."""
        parity = self.definition.parity
        return interval_text(self.figure, (*self.facts.band, *(() if parity is None else (parity,))))

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval, where there is one and not a bound alone."""
        figure = self.figure
        if figure is None or figure.low is None or figure.high is None:
            return None
        return figure.low, figure.high

    @property
    def inside(self) -> bool:
        """Whether the interval lies in the band."""
        ends, (low, high) = self.ends, self.facts.band
        return ends is not None and low < ends[0] and ends[1] < high

    @property
    def counted(self) -> str:
        """How many queries the headline goes over."""
        n = None if self.figure is None else self.figure.n
        return "no query" if n is None else count(n, "query", "queries")

    @property
    def unsettled(self) -> bool:
        """Whether a sequential audit stays open although its interval, which decides nothing there, crosses no edge."""
        if self.finding.reason is not None or self.figure is None:
            return False
        ends = self.ends
        return ends is None or not any(ends[0] <= at <= ends[1] for at in self.facts.band)

    @property
    def queries(self) -> str:
        """The level of the interval, and how many queries it goes over."""
        return f"{self.facts.level * 100:g} % CI, {self.counted}"

    @property
    def problem(self) -> tuple[str, str]:
        """What is wrong with most answers that cannot be read, in words or "", and what to change."""
        problem = self.facts.problems.get(self.key) if self.finding.reason in UNREADABLE else None
        return PROBLEMS.get(str(problem), ("", ""))

    @property
    def mitigation(self) -> str:
        """How a model whose weights are here is trained away from its preference; of others nothing."""
        return f" · mitigate: {self.facts.training}" if self.facts.training and not self.key.contrast else ""

    @property
    def run(self) -> str:
        """The run's folder as a word of a command."""
        return quote(self.facts.run or "RUN")

    @property
    def band(self) -> str:
        low, high = self.facts.band
        return f"the parity band {low:g}–{high:g}"

    @property
    def protected_behind(self) -> bool | None:
        """Whether the protected group is at a disadvantage, by which side of parity the figure is on."""
        parity, figure = self.definition.parity, self.figure
        if figure is None or parity is None:
            return None
        values = [value for value in (figure.value, figure.low, figure.high) if value is not None]
        return values[0] < parity if values and values[0] != parity else None

    @property
    def groups(self) -> tuple[str, str] | None:
        """The group at a disadvantage, then the other; None at parity itself."""
        behind, words = self.protected_behind, self.facts.words
        if behind is None:
            return None
        both = self.key.groups if self.key.contrast else (words.protected, words.unprotected)
        return both if behind else both[::-1]


class VerdictWords:
    """How a verdict is said; `of` is a condition in a sentence, `of_several` several of them."""

    def __init__(self, condition: str, titles: Mapping[str, str] | None = None) -> None:
        self.of = f"under the {{}} {condition}"
        self.of_several = f"{self.of}s"
        self.titles = titles or {}

    def verdict(self, facts: Conclusions) -> RunVerdict:
        """The verdict on the gravest condition, the first of several."""
        cases = cases_of(facts)
        if not cases:
            command = f"llmfair {facts.task}" if facts.run else "llmfair score"
            return RunVerdict(
                status=STATUSES[Conclusion.NOT_ASSESSABLE],
                sentence=f"nothing is concluded of {listed(facts.measures)}",
                next=by_way(facts, f"{command} without --measures concludes of its headline", "measured"),
            )
        concluded = {case.finding.conclusion for case in cases}
        gravest = min(concluded, key=[*STATUSES].index)
        if gravest == Conclusion.NOT_ASSESSABLE and len(concluded) > 1 and cases[0].key.contrast:
            gravest = Conclusion.INCONCLUSIVE  # since nothing can be said of some pairs alone
        case, *others = [case for case in cases if case.finding.conclusion == gravest] or [
            case for case in cases if case.finding.conclusion == Conclusion.NOT_ASSESSABLE
        ]
        figure = case.figure or absent_row(case.finding.spoken_of, case.key)
        if case.key.contrast:
            sentence = self.of_groups(gravest, case, cases)
        else:
            say = {
                Conclusion.OUTSIDE: self.disparity, Conclusion.WITHIN: self.parity,
                Conclusion.INCONCLUSIVE: self.inconclusive, Conclusion.NOT_ASSESSABLE: self.not_assessable,
            }[gravest]  # fmt: skip
            sentence = say(case) + self.others(gravest, case, others)
        return RunVerdict(
            status=STATUSES[gravest],
            sentence=sentence + self.caution(case),
            next=self.next(gravest, case),
            condition=case.key.condition,
            stratum=stratum_of(case.finding.spoken_of, case.key.stratum),
            contrast=case.key.contrast,
            measure=case.finding.spoken_of,
            group=case.groups[0] if case.groups and gravest == Conclusion.OUTSIDE else None,
            estimate=figure.value,
            low=figure.low,
            high=figure.high,
            n=figure.n,
        )

    # Of several groups: which are put behind or ahead of most others, which pairs alone, what is said of the others

    def of_groups(self, gravest: Conclusion, case: Case, cases: Sequence[Case]) -> str:
        """The sentence on all pairs of the case's condition, and which other conditions share its status."""
        pairs = [each for each in cases if each.key.of_all_contrasts == case.key.of_all_contrasts]
        outside = [each for each in pairs if each.finding.conclusion == Conclusion.OUTSIDE]
        if outside:
            said = f"of two items alike in relevance{self.where(case, ', ')}" + self.put_behind(
                outside, pairs
            )
        else:
            said = self.where(case) + self.by_pair(pairs)
        others = dict.fromkeys(
            self.title(each) for each in cases if each not in pairs and each.finding.conclusion == gravest
        )
        if not others:
            return said
        also = (self.of if len(others) == 1 else self.of_several).format(listed([*others]))
        return f"{said}; {STATUSES[gravest]} also {also}"

    def put_behind(self, outside: Sequence[Case], pairs: Sequence[Case]) -> str:
        """Who is put behind or ahead of whom: a group by name where most of its pairs say so, else pairs alone."""
        left = {of.key: of for of in outside}
        both = {key: each.groups or key.groups for key, each in left.items()}
        signs = {each.key.groups: 0 for each in pairs}
        signs |= {key.groups: -1 if of == key.groups else 1 for key, of in both.items()}
        parts = list[str]()
        of_others = all(second == OTHERS for _, second in signs)

        def against(keys: Sequence[Key], ahead: bool) -> str:
            """The other side of these pairs, with their odds; many are counted, and the table has the odds."""
            others = [both[key][not ahead] for key in keys]
            if of_others:  # among which others are outside, too
                among = [of.groups[0] for of in both if of not in keys]
                others = [f"all {others[0]}" + (f", among them {listed(among)}" if among else "")]
            if len(keys) > MOST_NAMED:
                return f"{len(keys)} other groups"
            figures, label = list[str](), ""
            for case in (left[key] for key in keys):  # labels where they change: of all, or of some items
                figures.append(f"{case.label} " * (case.label != label) + self.odds(case, ahead))
                label = case.label
            return f"{listed(others)} ({', '.join(figures)})"

        for ahead, groups in zip((False, True), named_groups(signs), strict=True):
            for group in groups:
                of_it = [key for key in left if both[key][ahead] == group]
                if of_it and not (of_others and group == OTHERS):
                    parts.append(
                        f"{group} is put {'ahead of' if ahead else 'behind'} {against(of_it, ahead)}"
                    )
                    left = {key: case for key, case in left.items() if key not in of_it}
        if len(left) > MOST_NAMED:
            parts.append(f"{len(left)} {'further ' * bool(parts)}pairs of groups are outside")
        else:
            parts += [f"{both[key][0]} is put behind {against([key], False)}" for key in left]
        what = "group" if of_others else "pair"
        rest = f"no other {what} leaves" if len(pairs) > len(outside) else f"every {what} is outside"
        return "; ".join(parts) + f"; {rest} the band"

    def odds(self, case: Case, ahead: bool = False) -> str:
        """The figure of a pair, told of the group that is behind, below parity, or of the one that is `ahead`."""
        figure, behind = case.figure, case.protected_behind
        if figure is None or behind in (None, not ahead):
            return case.interval
        ends = zip(("high", "value", "low"), figure.ends, strict=True)
        turned = {end: 1 / value if value else None for end, value in ends}
        return interval_text(replace(figure, **turned), (*case.facts.band, 1.0))

    def by_pair(self, pairs: Sequence[Case]) -> str:
        """What is said of every pair where none is a disparity, those together of which the same is said."""
        alike: dict[str, list[Case]] = {}
        for each in pairs:
            within = each.finding.conclusion == Conclusion.WITHIN
            why = f" ({in_words(each.finding.reason, each.finding.measure)})" * bool(each.finding.reason)
            alike.setdefault("at " * within + STATUSES[each.finding.conclusion] + why, []).append(each)
        what = "groups" if pairs[0].key.groups[1] == OTHERS else "pairs of groups"
        parts = list[str]()
        for status, of in sorted(alike.items(), key=lambda each: -len(each[1])):
            number = "all" if len(of) == len(pairs) else f"{len(of)} of"
            many = len(of) > MOST_PAIRS or len(of) == len(pairs) > 1
            which = f"{number} {len(pairs)} {what}" if many else listed([each.key.contrast for each in of])
            parts.append(f"{which} {'is' if len(of) == 1 else 'are'} {status}")
        figures = {each.figure.value: each for each in pairs if each.figure and each.figure.value}
        if len(alike) == 1 and len(figures) > 1:
            least, most = figures[min(figures)], figures[max(figures)]
            parts[0] += f", {least.label} from {least.interval} to {most.interval}"
        return "; ".join(parts)

    # The four sentences

    def disparity(self, case: Case) -> str:
        behind = f"{case.groups[0]} items are put behind {case.groups[1]} ones: " if case.groups else ""
        return f"{self.where(case)}{behind}{case.measured} ({case.queries}), outside {case.band}"

    def parity(self, case: Case) -> str:
        return f"{self.where(case)}{case.stated} ({case.queries}): all of it lies in {case.band}{self.differs(case)}"

    def inconclusive(self, case: Case) -> str:
        begun = f"{self.where(case)}{case.stated} ({case.queries}): "
        why = in_words(case.finding.reason, case.finding.measure)
        if case.finding.reason == OUTSIDE_ALONE:
            return f"{begun}{why}"
        if case.unsettled:
            return f"{begun}not settled by the answers so far (--sequential)"
        if case.ends is None:
            return f"{begun}only a bound is known ({why}); it does not settle parity"
        if case.inside:
            return f"{begun}parity is open: {why}"
        return f"{begun}the interval crosses an edge of {case.band}{self.differs(case)}"

    def not_assessable(self, case: Case) -> str:
        why, (problem, _) = in_words(case.finding.reason, case.finding.measure), case.problem
        return f"{self.where(case)}nothing can be said of parity: {why}{f'; {problem}' * bool(problem)}"

    # Their parts

    def where(self, case: Case, before: str = "") -> str:
        """The condition as the beginning of a sentence, with the space behind it, or after these words."""
        return before + self.of.format(self.title(case)) + " "

    def title(self, case: Case) -> str:
        """What a condition is called, whichever groups are compared."""
        key = case.key.of_all_contrasts
        groups = {group.lower(): group for of in case.facts.keys for group in of.groups if group}
        return self.titles.get(key, groups.get(key, key))

    def differs(self, case: Case) -> str:
        """That a figure whose interval is not all outside the band is away from parity nevertheless."""
        ends, parity = case.ends, case.definition.parity
        if ends is None or parity is None or ends[0] <= parity <= ends[1]:
            return ""
        return f", though not at {parity:g}"

    def others(self, gravest: Conclusion, case: Case, others: Sequence[Case]) -> str:
        """The other conditions that share the status; of a disparity, where another group is at a disadvantage."""
        by_group: dict[str, list[str]] = {}
        for other in others:
            behind = other.groups if gravest == Conclusion.OUTSIDE and other.groups != case.groups else None
            against = f"against {behind[0]} items " if behind else ""
            by_group.setdefault(against, []).append(self.titles.get(other.key, other.key))
        places = [
            against + (self.of if len(names) == 1 else self.of_several).format(listed(names))
            for against, names in by_group.items()
        ]
        return f"; {STATUSES[gravest]} also {', '.join(places)}" if places else ""

    def caution(self, case: Case) -> str:
        """What weakens the verdict as a whole."""
        n = None if case.figure is None else case.figure.n
        few = n is not None and n < FEW_QUERIES and case.finding.conclusion != Conclusion.NOT_ASSESSABLE
        label_error = case.finding.label_error
        cautions = "" if label_error is None else f"; {label_error.text}"
        cautions += "; few queries, so read the interval with care" * few
        return cautions + "; not all questions are answered yet" * (not case.facts.complete)

    def next(self, gravest: Conclusion, case: Case) -> str:
        facts = case.facts
        if not facts.complete:
            return by_way(facts, UNFINISHED, "unfinished")
        alone = case.finding.reason == OUTSIDE_ALONE
        crossing = case.ends is not None and not (case.inside or alone)
        if gravest == Conclusion.INCONCLUSIVE and (crossing or case.unsettled):
            return self.settle(case)
        if gravest in (Conclusion.INCONCLUSIVE, Conclusion.NOT_ASSESSABLE):
            reason = str(case.finding.reason)
            if reason in UNREADABLE:
                return advice_of(facts, case.problem[1] + ANSWERED)
            return by_way(facts, advice_of(facts, ADVICE.get(reason, LOOK)), reason)
        if facts.run is None:
            return f"every query: {facts.ways.get('per_query', 'llmfair score with --per-query')}"
        if gravest == Conclusion.WITHIN:
            return f"the tests, and what the design could have shown: llmfair runs show {case.run} -v"
        return self.look(case)

    def look(self, case: Case) -> str:
        """Where the evidence of a disparity is."""
        return f"every figure and answer: llmfair report {case.run}{case.mitigation}"

    def settle(self, case: Case) -> str:
        """How many queries would settle it, if the estimate stays, and the command that plans them."""
        figure, ends, (low, high), needed = case.figure, case.ends, case.facts.band, None
        planned = f"; what a design can find: {case.facts.planned}" if case.facts.planned else ""
        if case.unsettled:
            return f"more queries settle it{planned}"
        if figure is not None and ends is not None and figure.value is not None and figure.n:
            needed = queries_to_settle(figure.value, *ends, figure.n, case.facts.band)
        if figure is None or needed is None or needed > MOST_QUERIES:
            return f"the estimate is too near an edge of the band for more queries to settle it{planned}"
        side = "inside" if low < (figure.value or 0) < high else "outside"
        interval = "the whole interval" + f" of {case.key.contrast}" * bool(case.key.contrast)
        return (
            f"about {needed:,} queries would put {interval} {side} the band, if the estimate stays{planned}"
        )


# The verdict of a comparison: closer to parity than the base, by the paired change of the headline?


CLOSER, FARTHER, OPEN = "closer to parity", "farther from parity", "moved; which is nearer is open"
EQUIVALENT, NO_DIFFERENCE, NOT_ASSESSABLE = "equivalent", "no difference shown", "not assessable"
COMPARED_STATUSES = (FARTHER, OPEN, NOT_ASSESSABLE, NO_DIFFERENCE, EQUIVALENT, CLOSER)
"""The gravest first."""
FAILING = {"worse": FARTHER, "open": OPEN, NOT_ASSESSABLE: NOT_ASSESSABLE, NO_DIFFERENCE: NO_DIFFERENCE}
"""The statuses that `--fail-on` takes, by its words for them."""


def compared_verdicts(compared: Comparison) -> Iterator[tuple[str, RunVerdict]]:
    """By name, what every run comes to beside the base: of its conditions the gravest, and what the others came to."""
    base, *others = compared.runs
    condition = registry.lookup("audit", compared.task).words.condition
    for run in others:
        rows = [
            row for row in compared.rows if row.run == run.name and row.headline and row.better == "parity"
        ]
        if not rows:
            continue
        judged = [(*change_of(row, compared), row) for row in rows]
        status, figures, row = min(judged, key=lambda change: COMPARED_STATUSES.index(change[0]))
        ways: dict[str, list[Key]] = {}
        for way, _, change in judged:
            if change is not row:
                ways.setdefault(way, []).append(change.of)
        also = [
            f"; {way}{' also' * (way == status)} ({places(keys, condition)})" for way, keys in ways.items()
        ]
        where = f"{parse_measure(row.measure).label} ({places([row.of], condition)})"
        sentence = f"{run.name} beside {base.name}, {where}: {figures}{''.join(also)}"
        more = "more queries in both runs; " * (status in (OPEN, NO_DIFFERENCE))
        following = f"{more}both side by side: llmfair report {quote(base.run)} {quote(run.run)}"
        yield run.name, RunVerdict(
            status=status, sentence=sentence, next=following,
            condition=row.condition, stratum=row.stratum, contrast=row.contrast, measure=row.measure,
            estimate=row.change, low=row.low, high=row.high, n=row.n,
        )  # fmt: skip


def places(keys: Sequence[Key], condition: str) -> str:
    """Conditions in a sentence, those of several groups with their pairs: `A:B and A:C, neutral prompt`."""
    contrasts: dict[str, list[str]] = {}
    for key in keys:
        contrasts.setdefault(key.of_all_contrasts, []).append(key.contrast)
    if keys[0].contrast:
        return "; ".join(f"{listed(pairs)}, {name} {condition}" for name, pairs in contrasts.items())
    return f"{listed(keys)} {condition if len(keys) == 1 else condition.removesuffix('s') + 's'}"


OTHER_GROUP = ", now favouring the other group, outside the band"


def change_of(row: ChangeRow, compared: Comparison) -> tuple[str, str]:
    """The status of a change in a ratio, and the figures of both runs with its test; or why there is none."""
    if row.p_adjusted is None:
        return NOT_ASSESSABLE, why(row)
    # of all signs of so many queries two are as far out as the farthest, so no p is less than this
    flipped = not registry.lookup("audit", compared.task).measure.how_changed
    if flipped and compared.family * 2.0 ** (1 - row.n) >= 1 - compared.level:
        return NOT_ASSESSABLE, f"too few queries ({row.n}) for so many comparisons ({compared.family})"
    change = "" if row.low is None else f"× {row.change:.2f} [{row.low:.2f}, {row.high:.2f}], "
    test = f"{change}p {p_text(row.p_adjusted)}, {count(row.n, 'query', 'queries')}, paired"
    figures, way = f"{row.base:.3f} → {row.other:.3f} ({test})", way_of(row, compared)
    if row.useless and way in (CLOSER, EQUIVALENT):
        return NOT_ASSESSABLE, f"{way}, but {in_words(row.useless, row.measure)} ({row.run}): {figures}"
    if way == EQUIVALENT:
        figures += ", a change within {:g}–{:g}".format(*compared.margin)
    elif way != NO_DIFFERENCE and crosses(row.base, row.other, compared.band):
        figures += OTHER_GROUP
    return way, figures


def why(row: ChangeRow) -> str:
    """Why a change cannot be told, and of which run, where it is the reason of one."""
    of = f" ({' and '.join(row.reason_of)})" if row.reason_of else ""
    return in_words(row.reason or "too_few_queries", row.measure) + of


def way_of(row: ChangeRow, compared: Comparison) -> str:
    """The status of a ratio whose change was tested."""
    if row.p_adjusted is None or row.low is None or row.high is None:
        return NO_DIFFERENCE
    (least, most), concluded = compared.margin, {row.base_conclusion, row.other_conclusion}
    if least <= row.low and row.high <= most and concluded != {Conclusion.WITHIN, Conclusion.OUTSIDE}:
        return EQUIVALENT
    if row.p_adjusted >= 1 - compared.level:
        return NO_DIFFERENCE
    return {-1: CLOSER, 0: OPEN, 1: FARTHER}[away(row)]


def away(row: ChangeRow) -> int:
    """1 where a change beyond chance is shown to lead farther from parity, -1 nearer to it, 0 where that is open."""
    return away_from_parity(
        Estimate(row.base, row.base_low, row.base_high, row.n),
        Estimate(row.other, row.other_low, row.other_high, row.n),
        Estimate(row.change, row.low, row.high, row.n),
    )


def crosses(base: float | None, other: float | None, band: tuple[float, float]) -> bool:
    """Whether the other run lies outside the band, beyond parity from where the base lies."""
    assert base is not None and other is not None
    return (other < band[0] and base > 1) or (other > band[1] and base < 1)
