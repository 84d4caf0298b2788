"""Rerank endpoints: `POST /rerank` with a query and its documents, as Cohere, Jina, Voyage, vLLM, Infinity, LiteLLM and
TEI (Text Embeddings Inference) have it. What comes back is journalled as it came: indices twice or missing are counted.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from llmfair.backends.base import BackendOptions
from llmfair.backends.python import SCORES, answer, rows_of, shown
from llmfair.backends.server import Server, count, table, without_nulls
from llmfair.errors import UsageError
from llmfair.io.files import decode, encode
from llmfair.nouns import Completion, Request
from llmfair.registry import register

KEY_VARIABLE = "RERANK_API_KEY"
BASE_VARIABLE = "RERANK_BASE_URL"
VENDORS = {
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "jina": ("JINA_API_KEY",),
    "voyage": ("VOYAGE_API_KEY",),
}
"""Variables in which a vendor's users keep their key, by a word of its host."""


@register("backend", "rerank")
class Rerank(Server):
    """A model behind a rerank endpoint, which scores lists; `wire` is the form of what is sent."""

    path = "rerank"
    answers = "scores"
    lists_models = False

    def __init__(self, name: str, options: BackendOptions) -> None:
        """Raises UsageError without an address, or with one that cannot be used."""
        base_url = options.base_url or os.environ.get(BASE_VARIABLE)
        if not base_url:
            raise UsageError(
                f"rerank:{name} needs the address of its server.",
                "--base-url https://api.cohere.com/v2, or a server of your own such as http://127.0.0.1:8000/v1",
            )
        host = urlsplit(base_url).hostname or ""
        of_vendor = next((of for vendor, of in VENDORS.items() if vendor in host), ())
        self.key_variables = (KEY_VARIABLE, *of_vendor)
        super().__init__(name, options, base_url, "--base-url" if options.base_url else BASE_VARIABLE)
        self.capabilities = frozenset({"adaptive", SCORES})
        self.identity = f"rerank {name} {self.server_name}"
        if options.wire != "cohere":
            self.identity += f" {options.wire}"

    def body(self, request: Request) -> bytes:
        query, documents = shown(request, f"rerank:{self.name}")
        if self.options.wire == "tei":
            sent: dict[str, Any] = {"query": query, "texts": documents}
        else:
            sent = {"model": self.name, "query": query, "documents": documents}
            sent["top_k" if self.options.wire == "voyage" else "top_n"] = len(documents)
        return encode(without_nulls({**sent, **request.sampling.extra}))

    def completion(self, reply: bytes, request: Request, seconds: float) -> Completion:
        document = decode(reply)
        rows, usage = document, None
        if isinstance(document, dict):
            rows = document["results"] if "results" in document else document["data"]
            usage = table(document.get("usage")).get("total_tokens")
        return answer(rows_of(rows), count(usage), seconds)
