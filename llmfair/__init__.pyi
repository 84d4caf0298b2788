"""The public names, each once: this list is what type checkers read, and what is loaded when a name is first used."""

from pathlib import Path
from typing import Any

from llmfair.api import Result as Result
from llmfair.api import compare as compare
from llmfair.api import finetune_lora as finetune_lora
from llmfair.api import mitigate as mitigate
from llmfair.api import open_run as open_run
from llmfair.api import parse_model as parse_model
from llmfair.api import rerank as rerank
from llmfair.api import schema as schema
from llmfair.api import score as score
from llmfair.api import write_report as write_report
from llmfair.datasets.base import load_dataset as load_dataset
from llmfair.errors import BackendError as BackendError
from llmfair.errors import ContextTooLong as ContextTooLong
from llmfair.errors import Incomplete as Incomplete
from llmfair.errors import LlmfairError as LlmfairError
from llmfair.errors import MissingExtra as MissingExtra
from llmfair.errors import MissingKey as MissingKey
from llmfair.errors import Rejected as Rejected
from llmfair.errors import RequirementFailed as RequirementFailed
from llmfair.errors import RunConflict as RunConflict
from llmfair.errors import Unavailable as Unavailable
from llmfair.errors import UsageError as UsageError
from llmfair.metrics.base import measure as measure
from llmfair.metrics.names import parse_measure as parse_measure
from llmfair.nouns import Attribute as Attribute
from llmfair.nouns import Candidates as Candidates
from llmfair.nouns import Cell as Cell
from llmfair.nouns import Chat as Chat
from llmfair.nouns import Completion as Completion
from llmfair.nouns import Document as Document
from llmfair.nouns import Failure as Failure
from llmfair.nouns import Finish as Finish
from llmfair.nouns import Labels as Labels
from llmfair.nouns import Measurement as Measurement
from llmfair.nouns import Message as Message
from llmfair.nouns import PairAnswer as PairAnswer
from llmfair.nouns import PairOutcome as PairOutcome
from llmfair.nouns import PairVerdict as PairVerdict
from llmfair.nouns import Permutation as Permutation
from llmfair.nouns import Probe as Probe
from llmfair.nouns import Qrels as Qrels
from llmfair.nouns import Query as Query
from llmfair.nouns import Ranking as Ranking
from llmfair.nouns import Request as Request
from llmfair.nouns import Run as Run
from llmfair.nouns import Sampling as Sampling
from llmfair.nouns import Side as Side
from llmfair.nouns import Steps as Steps
from llmfair.nouns import Text as Text
from llmfair.registry import register as register

__all__: list[str]
__version__: str

# Of every kind of audit that is registered and its studies, those of other packages too; here stand ours.

def audit_listwise(
    dataset: str | Path = ...,
    *,
    model: Any = ...,
    progress: bool = ...,
    preset: str | None = ...,
    **settings: Any,
) -> Result: ...
def plan_listwise(dataset: str | Path = ..., *, preset: str | None = ..., **settings: Any) -> Result: ...
def calibrate_listwise(dataset: str | Path = ..., *, preset: str | None = ..., **settings: Any) -> Result: ...
def audit_pairwise(
    dataset: str | Path = ...,
    *,
    model: Any = ...,
    progress: bool = ...,
    preset: str | None = ...,
    **settings: Any,
) -> Result: ...
def plan_pairwise(dataset: str | Path = ..., *, preset: str | None = ..., **settings: Any) -> Result: ...
def calibrate_pairwise(dataset: str | Path = ..., *, preset: str | None = ..., **settings: Any) -> Result: ...
def study_windows(
    dataset: str | Path = ..., *, progress: bool = ..., preset: str | None = ..., **settings: Any
) -> Result: ...
def audit_refine(
    dataset: str | Path = ...,
    *,
    model: Any = ...,
    progress: bool = ...,
    preset: str | None = ...,
    **settings: Any,
) -> Result: ...
def plan_refine(dataset: str | Path = ..., *, preset: str | None = ..., **settings: Any) -> Result: ...
