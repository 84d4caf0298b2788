"""The bundled sample of questions with answers: notes and their labels, written for this project (CC0)."""

from __future__ import annotations

from llmfair.datasets.answers import answer_lines
from llmfair.datasets.attributes import data_folder
from llmfair.datasets.questions import QuestionSet
from llmfair.registry import register


@register("dataset", "rag-sample")
def rag_sample() -> QuestionSet:
    """Eight questions with twenty labelled items each, five to eight of them with the right label."""
    return answer_lines(data_folder() / "rag-sample" / "questions.jsonl", "rag-sample")
