"""What `llmfair mitigate` finds: a row for each remedy, with its changes beside the unmitigated rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from llmfair.audits.documents import ChangeRow
from llmfair.nouns import Conclusion
from llmfair.results import (
    Band,
    Count,
    ErrorDocument,
    Figure,
    JsonDocument,
    JsonObject,
    Level,
    Row,
    RunVerdict,
    Sha256,
    Share,
    Words,
)


class RemedyRow(JsonObject, frozen=True, kw_only=True):
    """One remedy, or the unmitigated rankings (`none`); `error` says why there are no figures, and the way out.

    `changes`: other/unmitigated on a log scale, else the difference, paired by query. `distance`: |ln| of the
    preference odds of the rankings. `front`: whether no other is nearer to parity at no less nDCG@20.
    """

    name: str
    remedy: Annotated[str, Meta(description="As --remedy takes it.")]
    title: str
    does: str
    available: bool
    error: ErrorDocument | None = None
    calls: Annotated[int, Meta(ge=0, description="Beside those of the unmitigated rankings.")] | None = None
    cost: Annotated[float, Meta(ge=0, description="At the prices given; null without them.")] | None = None
    run: Annotated[str, Meta(description="The folder of what was asked.")] | None = None
    rankings: Annotated[Sequence[str], Meta(description="Run files below the output folder.")] = ()
    figures: Mapping[str, Figure] = {}
    changes: Mapping[str, ChangeRow] = {}
    distance: Annotated[float, Meta(ge=0)] | None = None
    p_inside: (
        Annotated[Share, Meta(description="Of odds inside the band, one-sided; of remedies, Holm.")] | None
    ) = None
    lists_needed: Annotated[int, Meta(ge=1, description="Would settle whether they lie in it.")] | None = None
    front: bool = False
    remarks: Sequence[str] = ()


class MitigationResults(JsonDocument, frozen=True, kw_only=True):
    """llmfair mitigate; results.json of its folder."""

    status: Literal["complete", "incomplete"]
    verdict: RunVerdict | None = None
    task: Literal["mitigate"]
    run: Annotated[str, Meta(description="The folder that is mitigated.")]
    dataset: str
    attribute: str
    model: str
    words: Words
    condition: Annotated[str, Meta(description="The prompt whose rankings are mitigated.")]
    conclusion: Annotated[Conclusion | None, Meta(description="Of the audit, under this prompt.")]
    level: Level
    band: Band
    margin: Share
    seed: Count
    queries: Count
    orders: Annotated[int, Meta(ge=1, description="Rankings of each list, by initial order and repeat.")]
    prompted: bool
    measures: Sequence[str]
    labels: Mapping[str, str]
    measure_notes: Mapping[str, str]
    family: Annotated[int, Meta(ge=0, description="Tests over which p of changes is adjusted (Holm).")]
    remedies: Annotated[
        Sequence[RemedyRow], Meta(min_length=1, description="The unmitigated rankings first.")
    ]
    rows: Sequence[Row]
    files: Annotated[Mapping[str, Sha256], Meta(description="SHA-256 of all that is written beside.")] = {}

    @property
    def base(self) -> RemedyRow:
        return self.remedies[0]

    @property
    def tried(self) -> Sequence[RemedyRow]:
        """The remedies that have figures."""
        return [row for row in self.remedies[1:] if row.available]

    @property
    def missing(self) -> Sequence[RemedyRow]:
        return [row for row in self.remedies[1:] if not row.available]


class RemedyPlanned(JsonObject, frozen=True, kw_only=True):
    """What a remedy would ask; `error` where it cannot be had."""

    remedy: str
    title: str
    calls: Count | None
    answered: Annotated[Count | None, Meta(description="Answers that are on disk already.")]
    folder: str | None
    error: ErrorDocument | None


class MitigationPlan(JsonDocument, frozen=True, kw_only=True):
    """llmfair mitigate --dry-run."""

    task: Literal["mitigate"]
    run: str
    calls: Count
    remedies: list[RemedyPlanned]
