"""What a model sees: in which words it is asked, what it is shown of an item, and of which items nothing is said."""

from __future__ import annotations

from collections import Counter
from typing import Any

from llmfair import registry
from llmfair.audits.design import Design
from llmfair.nouns import Document
from llmfair.report.tables import count

SHOWN_GROUPS = 3


def seen(design: Design[Any]) -> str:
    """The prompt and what is shown of an item, as far as there is a prompt, and which items are not compared."""
    return "; ".join(filter(None, (_asked(design), _not_compared(design))))


def _asked(design: Design[Any]) -> str:
    """The prompt and what is shown of an item; "" where no model is asked, or by no prompt."""
    prompt, settings = design.prompt, design.settings
    if prompt is None or design.subject.ranks:
        return ""
    name = str(getattr(settings, "prompt", None) or prompt.id)
    if name.endswith(".toml"):  # which two prompts can be called
        name += f" {prompt.sha256[:8]}"
    # a kind whose prompts say themselves what they show of an item has no use for --input
    return f"prompt {name}" if "input" in settings.idle() else f"prompt {name}, {_shown(design)}"


def _not_compared(design: Design[Any]) -> str:
    """How many items are of neither group, and of which others; "" where there are none, and where no groups are."""
    if not design.attribute.protected or not design.two_groups:
        return ""
    lists = (design.dataset.candidates(query).documents for query in design.queries)
    items = {item.doc_id: item for documents in lists for item in documents}
    others = [item for item in items.values() if design.attribute.side(item) is None]
    if not others:
        return ""
    groups = Counter(_group(design, item) for item in others).most_common()
    named = [f"{group} {n:,}" for group, n in groups[:SHOWN_GROUPS]] + ["…"] * (len(groups) > SHOWN_GROUPS)
    ranked = "ranked, but " * registry.lookup("audit", design.task).ranks
    return f"{len(others):,} of {count(len(items), 'item')} {ranked}not compared ({', '.join(named)})"


def _group(design: Design[Any], item: Document) -> str:
    return " and ".join(item.groups.get(design.attribute.name, ())) or "of no known group"


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
