"""What a model sees: in which words it is asked, and what it is shown of an item."""

from __future__ import annotations

from typing import Any

from llmfair.audits.design import Design
from llmfair.report.tables import count


def seen(design: Design[Any]) -> str:
    """The prompt and what is shown of an item, in words; "" where no model is asked, or by no prompt."""
    prompt, settings = design.prompt, design.settings
    if prompt is None or design.subject.ranks:
        return ""
    name = str(getattr(settings, "prompt", None) or prompt.id)
    if name.endswith(".toml"):  # which two prompts can be called
        name += f" {prompt.sha256[:8]}"
    return f"prompt {name}, {_shown(design)}"


def _shown(design: Design[Any]) -> str:
    settings = design.settings
    lists = (design.dataset.candidates(query).documents for query in design.queries)
    texts = {item.doc_id: bool(item.text.strip()) for items in lists for item in items}
    known = sum(texts.values())
    items = f"{count(known, 'item')} {'has' if known == 1 else 'have'} text"
    if settings.input == "title":
        return "titles only" + f" ({items}: --input text shows it)" * bool(known)
    all_known = known == len(texts)
    return f"titles and texts, {settings.words} words at most" + f" ({items}, of {len(texts):,})" * (
        not all_known
    )
