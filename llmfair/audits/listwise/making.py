"""Makes the design of a listwise audit from what the user set: data loaded, orders drawn, measures read.

The data's way: dataset -> probes -> one program per chain -> dispatch -> rankings -> measures -> intervals ->
run folder. Nothing goes back up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from llmfair.audits.design import NOBODY, Outcome
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import load_lists, selected_queries, with_prompt
from llmfair.audits.listwise.design import INITIAL, ListwiseDesign
from llmfair.audits.listwise.outcome import outcome_of
from llmfair.audits.listwise.plan import findable_of, known_reach, plan_of, tokens_of
from llmfair.audits.listwise.settings import ListwiseSettings, PlanSettings
from llmfair.audits.subject import Subject, backend_args
from llmfair.backends.python import SCORES
from llmfair.errors import UsageError, did_you_mean
from llmfair.metrics.base import CONTROLLED, Judged, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Attribute, Candidates, Failure, Ranking
from llmfair.probes import conditions_of, initial_orders
from llmfair.rankers.base import Ranker, remarks
from llmfair.rankers.bm25 import Bm25
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.strategies import Partition, Ranked, Strategy, strategy_of
from llmfair.settings import default_of

SHOWN_QUERIES = 5
SHOWN = "P@20,ExpRatio{control},{odds}"
"""The columns of a table unless --measures names others."""
MEASURED = f"{SHOWN},SlotOdds,RelevanceOdds,ExpRatio,RelevanceRatio,overlap@20,nDCG@20,RBO,Tau"
CONCLUDED = "{odds},ExcessRatio{control}"
"""What conclusions are made of, whatever --measures names."""
OF_ANSWERS, OF_RANKINGS = "PreferenceOdds", "PreferenceOdds(of=ranking)"
OF_WINDOWS = ("PreferenceOdds", "SlotOdds", "RelevanceOdds")
OF_PARTITION = ",".join(OF_WINDOWS)
"""What is shown, measured and concluded from where nothing is ranked."""
SCORED = f"P@20,nDCG@20,ExpRatio,{OF_RANKINGS}"
"""What is measured of rankings that exist."""


@dataclass(frozen=True, kw_only=True)
class ListwiseAudit(ListwiseDesign):
    """A listwise audit made but not begun: what it asks, what that costs and can find, what the answers come to."""

    def planned(self) -> dict[str, Any]:
        return {**super().planned(), "reach": known_reach(self)}

    def plan(self, models: int) -> dict[str, Any]:
        return plan_of(self, models)

    def tokens(self) -> tuple[int, int]:
        return tokens_of(self)

    def findable(self, settings: PlanSettings) -> dict[str, Any]:
        return asdict(findable_of(self, settings))

    def unparseable(self, result: Ranked) -> int:
        return sum(window.unparseable for window in result.windows)

    def outcome(self, run: str, results: Mapping[str, Ranked], failures: Sequence[Failure]) -> Outcome:
        stopped = {
            condition.name: self.stopping(condition) for condition in self.prompts if self.settings.sequential
        }
        for one in stopped.values():
            for probe in one.undecided():
                if probe.probe_id in results:
                    one.note(probe, self.met(probe, results[probe.probe_id]))
        probes = self.probes() if not stopped else (p for one in stopped.values() for p in one.counted())
        chains = [(p, results[p.probe_id]) for p in probes if p.probe_id in results]
        return outcome_of(self, run, chains, failures, stopped)


def make_design(settings: ListwiseSettings, subject: Subject = NOBODY) -> ListwiseAudit:
    """Loads what the settings name and fixes all that is drawn. Raises UsageError.

    A subject that is a ranker orders the lists itself: once each, without prompts.
    """
    dataset, attribute = load_lists(settings)
    ranker, partition = None, settings.design == "partition" and not subject.ranks
    if subject.ranks:
        of_engine = backend_args(settings.backend_arg)
        ranker = subject.ranker(dataset, attribute, passages=settings.passages, backend_args=of_engine)
        settings = _without_prompts(settings, subject.spec, ranker.worded)
    settings = _scored(settings, subject)
    strategy = _strategy(settings, partition)
    if ranker is None:
        settings = _as_asked(settings, strategy, subject)
    settings, prompt = with_prompt(settings, dataset, strategy.question.prompt)
    queries = selected_queries(dataset, settings)
    prompts = tuple(
        conditions_of(_conditions(attribute, settings.conditions), settings.repeats, settings.repeat)
    )
    gates = read_gates(settings.require, [*(condition.name for condition in prompts), INITIAL], Judged)
    told = {"control": _control(settings), "odds": OF_RANKINGS if ranker else OF_ANSWERS}
    names = [OF_PARTITION] * 3 if partition else [SHOWN, MEASURED, CONCLUDED]
    shown, measured, concluded = (one.format_map(told) for one in names)
    if settings.measures is not None:
        shown = measured = settings.measures
    asked = [gate.measure for gate in gates]
    candidates = [dataset.candidates(query) for query in queries]
    first_stage = Subject("bm25").ranker(dataset, attribute) if settings.initial == "bm25" else None
    design = ListwiseAudit(
        settings=settings,
        subject=subject,
        dataset=dataset,
        attribute=attribute,
        prompt=prompt,
        measures=parse_measures(",".join((measured, *asked, concluded)), Judged),
        shown=parse_measures(shown, Judged),
        gates=gates,
        queries=tuple(queries),
        prompts=prompts,
        ranker=ranker
        or ListwiseRanker(
            prompt=prompt,
            attribute=attribute,
            strategy=strategy,
            reader=settings.read,
            on_bad_answer=settings.on_bad_answer,
            input=settings.input,
            words=settings.words,
        ),
        first_stage=first_stage,
        orders={
            listed.query.query_id: _orders(listed, attribute, settings, first_stage) for listed in candidates
        },
        warnings=(
            *_unfound(first_stage or ranker, candidates),
            *_without_texts(ranker, candidates),
            *_not_kept(ranker, candidates),
            *(ranker.warnings if ranker else ()),
        ),
    )
    for measure in design.measures if partition else ():
        if measure.name not in OF_WINDOWS:
            raise UsageError(
                f"--design partition makes no ranking, so it has no {measure}.",
                f"it has {', '.join(OF_WINDOWS)}; --design ranking has the others",
            )
    for measure in design.measures:
        if measure.arguments.get("control") == "order" and settings.initial != "random":
            raise UsageError(
                f"{measure} needs random initial orders, but --initial is {settings.initial}.",
                f"measure {measure.name} without control=order",
            )
    # what a measure cannot do with these data must be said before anything is asked
    as_given = Ranking(queries[0].query_id, candidates[0].doc_ids)
    measure_all(design.measures, {INITIAL: [design.judged(candidates[0], [as_given])]})
    return design


def _scored(settings: ListwiseSettings, subject: Subject) -> ListwiseSettings:
    """With the one strategy that asks a backend which scores lists, and answers no questions. Raises UsageError.

    Such a ranker takes no instruction, so that only who wants it puts the words of sensitive prompts into queries.
    """
    if not subject.scores_lists:
        return settings
    if settings.design == "partition":
        raise UsageError(f"{subject.spec} scores whole lists.", "leave --design partition out")
    if settings.strategy not in (ListwiseSettings().strategy, (SCORES,)):
        raise UsageError(
            f"{subject.spec} scores lists; it answers no questions of --strategy {settings.ordering}.",
            "leave --strategy out",
        )
    return replace(settings, strategy=(SCORES,), conditions=settings.conditions or "neutral")


def _strategy(settings: ListwiseSettings, partition: bool) -> Strategy:
    return Partition(settings.window) if partition else strategy_of(settings.ordering, vars(settings))


def _as_asked(settings: ListwiseSettings, strategy: Strategy, subject: Subject) -> ListwiseSettings:
    """The settings as far as a strategy has a use for them: no others must name the run.

    Raises UsageError for a model that lacks the log-probabilities which it needs.
    """
    usual = ListwiseSettings()
    unused = {name: getattr(usual, name) for name, value in strategy.facts().items() if value is None}
    once = {"orders": 1} if strategy.orderless else {}
    margins, answers = strategy.question.margins, settings.answers
    if margins == "none" and answers == "margin":
        hint = "leave it out; pointwise, setwise and first can"
        raise UsageError(f"--strategy {settings.ordering} reads no log-probabilities.", hint)
    if margins == "needed" and answers == "text":
        hint = "leave it out"
        raise UsageError(f"--strategy {settings.ordering} reads no text of answers.", hint)
    if margins == "needed" and subject.spec and not _has_margins(subject, settings):
        raise UsageError(
            f"{subject.spec} has no log-probabilities of labels, which --strategy {settings.ordering} reads.",
            "a model in this process (hf:, vllm:), OpenAI and vLLM servers have them",
        )
    read = answers
    if answers == "auto" and margins != "none":
        able = margins == "needed" or (subject.spec and _has_margins(subject, settings))
        read = "margin" if able else "text"
    if margins == "needed" and settings.max_tokens is None:
        once["max_tokens"] = 1  # all that is read is where the answer begins
    return replace(settings, **unused | once, answers="auto" if margins == "none" else read)


def _has_margins(subject: Subject, settings: ListwiseSettings) -> bool:
    return "margins" in subject.backend(replace(settings, answers="text")).capabilities


def _without_prompts(settings: ListwiseSettings, model: str, worded: bool) -> ListwiseSettings:
    """The settings of a ranker that reads no prompt: one order, once.

    Raises UsageError for other conditions than neutral, unless their words are put into the query (`worded`).
    """
    if not worded and settings.conditions not in (None, "neutral"):
        raise UsageError(
            f"{model} reads no prompt, so it cannot rank under --conditions {settings.conditions}.",
            "leave --conditions out",
        )
    # What only a model is told must not name the run; the prompt that none reads is the same for all data.
    unread = {item.name: default_of(item) for item in fields(settings) if item.name in settings.of_asking()}
    conditions = settings.conditions if worded else "neutral"
    once = {"conditions": conditions, "orders": 1, "repeats": 1, "repeat": False, "control_variate": False}
    return replace(settings, **unread | {"prompt": "wikiproject"} | once)


def _control(settings: ListwiseSettings) -> str:
    """The parameter of headline measures: whether what random initial orders explain is taken out."""
    return CONTROLLED if settings.control_variate and settings.initial == "random" else ""


def _orders(
    candidates: Candidates,
    attribute: Attribute,
    settings: ListwiseSettings,
    first_stage: Ranker | None,
) -> list[Candidates]:
    """The orders in which a list is first shown."""
    if settings.initial != "bm25":
        return initial_orders(candidates, attribute, settings.initial, settings.orders, settings.seed)
    assert first_stage is not None
    # Ties come in a random order: the dataset's own may tell what is relevant.
    (shuffled,) = initial_orders(candidates, attribute, "random", 1, settings.seed)
    return [first_stage.ordered(shuffled)[0]]


def _unfound(ranker: Ranker | None, lists: Sequence[Candidates]) -> Iterator[str]:
    """How many queries share no word with any candidate, where BM25 orders those. Raises UsageError when all do."""
    if not isinstance(ranker, Bm25):
        return
    empty = [listed.query.query_id for listed in lists if not any(ranker.scores(listed))]
    if len(empty) == len(lists):
        raise UsageError(
            "bm25 finds nothing: no query shares a word with any of its candidates.",
            "it compares the words of queries with those of titles and texts, as English ones",
        )
    if empty:
        named = ", ".join(empty[:SHOWN_QUERIES]) + ", …" * (len(empty) > SHOWN_QUERIES)
        yield (
            f"bm25 finds nothing in {len(empty)} of {len(lists)} queries ({named}): no word of theirs stands in any "
            "candidate, so their lists are in random order"
        )


def _not_kept(ranker: Ranker | None, lists: Sequence[Candidates]) -> list[str]:
    """What a ranker that goes by groups cannot do with some lists."""
    if ranker is None or not ranker.reads_groups:
        return []
    name = ranker.identity.partition(" ")[0]
    return [f"{name}: {said}" for said in remarks(ranker, [ranker.ordered(one)[0] for one in lists])]


def _without_texts(ranker: Ranker | None, lists: Sequence[Candidates]) -> Iterator[str]:
    """That a ranker made for passages of text finds none, or how many items are without."""
    if ranker is None or not ranker.made_for_texts:
        return
    texts = {item.doc_id: bool(item.text.strip()) for listed in lists for item in listed.documents}
    if (lacking := len(texts) - sum(texts.values())) == 0:
        return
    read = (
        "titles only: no item has text" if lacking == len(texts) else "the title alone where there is no text"
    )
    yield (
        f"{ranker.identity.partition(' ')[0]} was made for passages of text and reads {read} ({lacking:,} of "
        f"{len(texts):,} items); `text` in docs.jsonl, or llmfair datasets fetch --text-words 300, gives it some"
    )


def _conditions(attribute: Attribute, text: str | None) -> list[str]:
    known = attribute.variants
    if text is None:
        return list(known)
    wanted = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for condition in wanted:
        if condition not in known:
            raise UsageError(
                f"{attribute.name} has no prompt '{condition}'.{did_you_mean(condition, known)}",
                f"known: {', '.join(known)}"
                + (
                    "" if attribute.worded else "; `words` in attributes.toml give it those that name a group"
                ),
            )
    if not wanted:
        raise UsageError("--conditions names none.", f"known: {', '.join(known)}")
    return wanted
