"""What `llmfair finetune-lora` prints with `--json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from llmfair.results import Band, Count, Counts, Finding, Level, Row, Version, Words


class GateOnTest(TypedDict):
    """What parity may not be bought with, on queries never seen."""

    value: float | None
    limit: float | None
    met: bool


class Finetuned(TypedDict):
    """llmfair finetune-lora; results.json of the adapter's folder."""

    schema: Version
    status: Annotated[
        Literal["complete", "rejected", "failed"],
        Meta(description="rejected (failed on stdout): no checkpoint kept the gates."),
    ]
    task: Literal["finetune-lora"]
    run: str
    dataset: str
    attribute: str
    model: str
    words: Words
    level: Level
    band: Band
    design: dict[str, Any]
    rows: Annotated[
        list[Row], Meta(description="`model` says whose figure it is: base, adapter, free baseline.")
    ]
    findings: dict[str, dict[str, Finding]]
    cells: dict[str, dict[str, Counts]]
    gates_on_test: dict[str, GateOnTest]
    figure_4: dict[str, Any]
    training: dict[str, Any]


class PromptTokens(TypedDict):
    """Tokens of a prompt: on average, at most, and shared by a query."""

    mean: float
    most: Count
    shared: float
    prompts: Count


class PromptAsAsked(TypedDict):
    """A prompt of the training, as the model reads it."""

    pair_id: str
    text: str


class FinetunePlan(TypedDict):
    """llmfair finetune-lora --dry-run."""

    schema: Version
    status: Literal["planned"]
    task: Literal["finetune-lora"]
    run: str
    dataset: str
    attribute: str
    model: str
    words: Words
    doubts: NotRequired[Annotated[list[str], Meta(description="What the training cannot tell.")]]
    design: dict[str, Any]
    counts: dict[str, Any]
    steps: Count
    tokens: PromptTokens
    estimate: dict[str, Any] | None
    prompts: list[PromptAsAsked]


class Merged(TypedDict):
    """llmfair finetune-lora --merge."""

    schema: Version
    status: Literal["complete"]
    task: Literal["merge"]
    adapter: str
    base: str
    dtype: str
    output: str
    form: str
