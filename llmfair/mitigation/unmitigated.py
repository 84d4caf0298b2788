"""The run that remedies are held against: its rankings under one prompt, and all that judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from llmfair.audits.commands import command_of
from llmfair.audits.kind import kind_of
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.audits.listwise.score import Rankings, of_folder
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.subject import Subject
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import secrets
from llmfair.metrics.base import Judged
from llmfair.nouns import Attribute, Candidates, Ranking
from llmfair.prompts import wordings
from llmfair.rundir import ONE_OF_SEVERAL, Manifest, RunDir
from llmfair.settings import MitigateSettings, ScoreSettings

NEUTRAL, REPEAT = "neutral", "repeat"
TASK = "listwise"
SECRET = ("extra", "base_url")
"""Settings that a manifest keeps without what is secret in them."""
Orders = Mapping[str, Sequence[Ranking]]
"""The rankings of each query, one for each initial order and repeat."""


@dataclass(frozen=True)
class Unmitigated:
    """A complete listwise run under one of its prompts; `chosen` are the settings of the command that mitigates it."""

    run: RunDir
    manifest: Manifest
    settings: ListwiseSettings
    found: Rankings
    condition: str
    chosen: MitigateSettings

    @property
    def results(self) -> ListwiseResults:
        assert self.found.found is not None
        return self.found.found

    @property
    def attribute(self) -> Attribute:
        return self.found.against.attribute

    @property
    def model(self) -> str:
        """Whose rankings they are, as results name it."""
        return self.manifest.model

    @property
    def simulated(self) -> bool:
        """Whether a simulated model answered, which reads what a question is about, and none of its words."""
        return bool(self.manifest.simulated)

    @property
    def subject(self) -> Subject:
        """Who answered, to be asked again."""
        spec, _, adapter = self.model.partition(" + ")
        return Subject(spec, self.settings.adapter, bool(adapter))

    @property
    def prompted(self) -> bool:
        """Whether a model was asked, and not a ranker that reads no prompt."""
        return self.results.design.prompted

    @cached_property
    def orders(self) -> Orders:
        """The whole rankings of every query under this prompt."""
        return self.orders_of(self.condition)

    def orders_of(self, condition: str) -> Orders:
        """Those under any of the run's prompts. Raises UsageError for one that it did not ask under."""
        if condition not in self.found.conditions:
            raise UsageError(f"{self.run.path} has no rankings under the {condition} prompt.")
        return self.completed(
            {
                query_id: [file.rankings[query_id] for file in self.found.conditions[condition]]
                for query_id in sorted(self.found.conditions[condition][0].rankings)
            }
        )

    def completed(self, orders: Orders) -> Orders:
        """Rankings of the run's lists with what they leave out behind them."""
        return {
            query_id: [
                Ranking(query_id, tuple(judged.doc_ids[place] for place in order)) for order in judged.orders
            ]
            for query_id, rankings in orders.items()
            for judged in [self.judged(query_id, rankings)]
        }

    def judged(self, query_id: str, rankings: Sequence[Ranking]) -> Judged:
        """What measures read of rankings of one of the run's lists."""
        return self.found.against.judged(query_id, rankings)

    def all_judged(self, orders: Orders) -> list[Judged]:
        return [self.judged(query_id, rankings) for query_id, rankings in orders.items()]

    def candidates(self, ranking: Ranking) -> Candidates:
        """A ranking as rerankers take it; all that is known of its scores is that they fall."""
        listed = self.judged(ranking.query_id, [ranking]).candidates
        places = {doc_id: place for place, doc_id in enumerate(listed.doc_ids)}
        ordered = listed.at([places[doc_id] for doc_id in ranking.doc_ids])
        n = len(ranking.doc_ids)
        return replace(ordered, scores=tuple(float(n - rank) for rank in range(n)))

    @property
    def wording(self) -> str | None:
        """The name of its prompt among those of the task; None of a file of one's own."""
        name = "" if self.manifest.prompt is None else self.manifest.prompt.file
        return name if name in wordings(TASK) else None

    def again(self, **differs: object) -> str:
        """The command of the run with other settings."""
        return command_of(TASK, replace(self.settings, **differs), self.model)  # type: ignore[arg-type]


def unmitigated(run: RunDir, chosen: MitigateSettings) -> Unmitigated:
    """Reads a run. Raises UsageError for what is no complete listwise run, and for a prompt that it lacks."""
    manifest = run.read_manifest()
    if manifest.task != TASK:
        raise UsageError(
            f"{run.path} is a run of {manifest.task}: remedies are for rankings.",
            "llmfair listwise makes a run of rankings",
        )
    if manifest.status != "complete":
        raise UsageError(f"{run.path} is incomplete.", "the command that began the run completes it")
    if chosen.adapter is not None and not (chosen.adapter / "adapter_config.json").is_file():
        raise UsageError(
            f"--adapter {chosen.adapter} holds no adapter.",
            "name a folder with adapter_config.json and its weights",
        )
    settings = kind_of(TASK).settings.from_flags(manifest.flags, run.manifest)
    assert isinstance(settings, ListwiseSettings)
    for name in SECRET:
        given = {secrets.written(secret): secret for secret in getattr(chosen, name)}
        values = tuple(given.get(value, value) for value in getattr(settings, name))
        settings = replace(settings, **{name: values})  # type: ignore[arg-type]
    found = of_folder(run, ScoreSettings(), lambda path: None)
    known = [name for name in found.conditions if not ONE_OF_SEVERAL.search(name) and name != REPEAT]
    condition = chosen.condition or (NEUTRAL if NEUTRAL in known else known[0])
    if condition not in known:
        raise UsageError(
            f"--condition {condition}: the run has no such prompt.{did_you_mean(condition, known)}",
            f"it has {', '.join(known)}",
        )
    return Unmitigated(run, manifest, settings, found, condition, chosen)
