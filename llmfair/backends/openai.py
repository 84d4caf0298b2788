"""OpenAI and every server that speaks its chat completions: one POST a question.

Key, URL and headers come from the variables that the openai package reads. The package itself is not used: its import
takes longer than all else before the first question, and a request through it ten times the CPU time (`backends.md` 5).
What is wrong with a reply is told by `faults.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from llmfair.backends.base import BackendOptions, Transient, fold_system
from llmfair.backends.chat_completions import LIMITS, encode_body, read_completion
from llmfair.backends.faults import unknown_field
from llmfair.backends.server import Server
from llmfair.errors import Rejected, UsageError, warn
from llmfair.io.files import decode
from llmfair.io.net import KEY_VARIABLE, OPENAI_HOST
from llmfair.nouns import Completion, Request
from llmfair.registry import register

OPENAI_URL = f"https://{OPENAI_HOST}/v1"

_NAMED = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
_BROKEN_OFF = {"error", "abort"}


@register("backend", "openai")
def openai(name: str, options: BackendOptions) -> OpenAI:
    """A model on OpenAI or a compatible server. Raises UsageError for a base URL that cannot be used."""
    if not name:
        raise UsageError("openai: is not followed by a model.", "for example openai:gpt-5-mini")
    return OpenAI(name, options)


class OpenAI(Server):
    """A model behind chat completions, without streaming."""

    path = "chat/completions"
    answers = "a completion"
    key_variables = (KEY_VARIABLE,)

    def __init__(self, name: str, options: BackendOptions) -> None:
        source = "--base-url" if options.base_url else "OPENAI_BASE_URL"
        base_url = options.base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL
        super().__init__(name, options, base_url, source)
        self.capabilities = frozenset({"adaptive", "seed", "system_role", "margins", "batch"})
        if self.server != OPENAI_HOST:
            self.capabilities |= {"constrain"}  # vLLM's own field; other servers refuse or ignore it
        self.limit_name = "max_completion_tokens" if self.server == OPENAI_HOST else "max_tokens"
        self.server_name = options.server_name or (self.server if self.server != OPENAI_HOST else "")
        parts = ["openai", name, options.server_name or self.server]
        if options.system == "fold":
            parts.append("fold")
        self.identity = " ".join(parts)
        self._broken_off: set[str] = set()

    def _named_headers(self) -> Mapping[str, str]:
        headers = {name: value for name, variable in _NAMED.items() if (value := os.environ.get(variable))}
        for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n"):
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        return headers

    def body(self, request: Request) -> bytes:
        """What is sent for a request: one line of JSON."""
        messages = request.chat.messages
        if self.options.system == "fold":
            messages = fold_system(messages)
        return encode_body(self.name, messages, request.sampling, self.limit_name, request.chat.expects)

    def adapts(self, status: int, reply: bytes) -> bool:
        """Whether a server does not know the name of the limit on tokens; the next body has the other."""
        if not (refused := unknown_field(status, reply, LIMITS)):
            return False
        # By what was sent, not by what is remembered: many requests may learn of it at once.
        (self.limit_name,) = LIMITS - {refused}
        warn(f"{self.server} does not know {refused}: --max-tokens is sent as {self.limit_name}.")
        return True

    def completion(self, reply: bytes, request: Request, seconds: float) -> Completion:
        """The answer in a reply. Raises Transient when it breaks off, Rejected when it does so twice."""
        document = decode(reply)
        choice = document["choices"][0]
        if choice.get("error"):
            raise ValueError("an error in its stead")
        if str(choice.get("finish_reason")) not in _BROKEN_OFF:
            margins = request.sampling.margins
            completion = read_completion(document, request.chat.expects, seconds, margins)
            if margins and completion.logprobs is None and completion.text:
                raise UsageError(
                    f"{self.server} sends no log-probabilities, which --answers margin reads.",
                    "compare the answers' text with --answers text",
                )
            return completion
        if request.key in self._broken_off:
            raise Rejected(f"{self.server} broke the answer off twice.", "see the server's log")
        self._broken_off.add(request.key)
        raise Transient(f"{self.server} broke the answer off")
