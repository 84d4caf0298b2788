"""OpenAI and every server that speaks its chat completions: one POST a question, and what its reply says.

Key, URL and headers come from the variables that the openai package reads. The package itself is not used: its import
takes longer than all else before the first question, and a request through it ten times the CPU time.
What is wrong with a reply is told by `faults.py`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from llmfair.backends.base import BROKEN_OFF, BackendOptions, broken_off, fold_system
from llmfair.backends.faults import BLOCKED, LIMITS, UNPARSEABLE, unknown_field
from llmfair.backends.local import grammar_of
from llmfair.backends.server import Server, count, table, without_nulls
from llmfair.control_tokens import answer_of
from llmfair.errors import UsageError, warn
from llmfair.io.files import decode, encode
from llmfair.io.net import KEY_VARIABLE, OPENAI_HOST
from llmfair.nouns import Completion, Expects, Finish, Labels, Request
from llmfair.registry import register

OPENAI_URL = f"https://{OPENAI_HOST}/v1"

ALTERNATIVES = 20  # the most that chat completions send
_LENGTH = {"length", "max_tokens", "max_output_tokens", "model_length"}
_VERSION = re.compile(r"([-@:](preview|exp|v?\d{1,8}(\.\d+)*|v\d\S*))*")
_SPACES = str.maketrans("▁ĠĊĉč", "  \n\t\r")
"""White space as vocabularies spell it: SentencePiece, and BPE of bytes."""


def structured(expects: Expects) -> dict[str, Any]:
    """vLLM's field for an answer of this shape only. Raises UsageError for free text, or too large a window."""
    if isinstance(expects, Labels):
        return {"choice": list(expects.labels)}
    return {"grammar": grammar_of(expects)}


def label_logprobs(choice: Mapping[str, Any], labels: Sequence[str]) -> Mapping[str, float] | None:
    """Log-probability of each label as the first token, with and without spaces around; None where none are sent.

    A label outside the alternatives that were sent is absent, and so is one whose log-probability is no number or
    stands for −∞, as -9999 does; all are where the label that is the answer has none, since the others' say nothing
    then. Raises ValueError where none of them is a number.
    """
    tokens = (choice.get("logprobs") or {}).get("content")
    if not tokens:
        return None
    alternatives = tokens[0].get("top_logprobs") or [tokens[0]]
    rows = [*dict.fromkeys((row["token"], row["logprob"]) for row in alternatives)]
    numbers = [(token, float(value)) for token, value in rows if type(value) in (int, float)]
    if not numbers:
        raise ValueError("no log-probability is a number")
    answer = _content(table(choice.get("message")).get("content")).strip()
    if answer in labels and answer in {_label(token) for token, value in rows if value is None}:
        return {}
    spellings = dict[str, list[float]]()
    for token, value in numbers:
        if (label := _label(token)) in labels and math.isfinite(value) and math.exp(min(value, 0.0)):
            spellings.setdefault(label, []).append(value)
    return {
        label: max(values) + math.log(math.fsum(math.exp(value - max(values)) for value in values))
        for label, values in spellings.items()
    }


def _label(token: object) -> str:
    return token.translate(_SPACES).strip() if isinstance(token, str) else ""


def _content(value: object) -> str:
    """The text of a message: itself, or its parts joined; what is neither holds none."""
    parts = value if isinstance(value, list) else [value]
    return "".join(_text(part.get("text") if isinstance(part, dict) else part) or "" for part in parts)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def finish_of(reason: str | None, text: str, expects: Expects) -> Finish:
    """How an answer ended. A reason that is not known is one of the many words for stop."""
    reason = (reason or "").lower()
    if BLOCKED.search(reason):
        return Finish.FILTERED
    if not text.strip():  # at the limit it is thoughts that took all of it
        return Finish.LENGTH if reason in _LENGTH else Finish.EMPTY
    if answer_of(text) is None:
        return Finish.UNFINISHED_THINKING
    # A constrained label can fill the limit and be whole.
    is_label = isinstance(expects, Labels) and text.strip() in expects.labels
    return Finish.LENGTH if reason in _LENGTH and not is_label else Finish.STOP


def is_alias(wanted: str, named: str) -> bool:
    """Whether a reply may name the model that was asked so: without its owner or tag, or with a date or version."""
    short = [
        re.sub(r"^.*/|([-:](latest|free|beta))+$|\.gguf$", "", name.strip().lower())
        for name in (wanted, named)
    ]
    first, second = sorted(short, key=len)
    return second.startswith(first) and _VERSION.fullmatch(second[len(first) :]) is not None


# A model on a server


@register("backend", "openai")
class OpenAI(Server):
    """A model behind chat completions, without streaming: of OpenAI or a compatible server."""

    path = "chat/completions"
    answers = "a completion"
    key_variables = (KEY_VARIABLE,)
    header_variables = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
    custom_headers = "OPENAI_CUSTOM_HEADERS"

    def __init__(self, name: str, options: BackendOptions) -> None:
        """Raises UsageError for a base URL that cannot be used."""
        source = "--base-url" if options.base_url else "OPENAI_BASE_URL"
        base_url = options.base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL
        super().__init__(name, options, base_url, source)
        self.capabilities = frozenset({"adaptive", "seed", "system_role", "margins", "batch"})
        self.limit_name, self.identity = "max_completion_tokens", f"openai {name} {self.server_name}"
        if self.server != OPENAI_HOST:
            self.capabilities |= {"constrain"}  # vLLM's own field; other servers refuse or ignore it
            self.limit_name = "max_tokens"
        elif not options.server_name:
            self.server_name = ""
        if options.system == "fold":
            self.identity += " fold"
        self._broken_off = set[str]()

    def body(self, request: Request) -> bytes:
        messages, sampling = request.chat.messages, request.sampling
        body: dict[str, Any] = {
            "model": self.name,
            "temperature": sampling.temperature,
            self.limit_name: sampling.max_tokens,
            "seed": sampling.seed,
        }
        if sampling.top_p is not None:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = sampling.stop
        if sampling.margins:
            body |= {"logprobs": True, "top_logprobs": ALTERNATIVES}
        if sampling.constrain:
            body["structured_outputs"] = structured(request.chat.expects)
        if LIMITS & sampling.extra.keys():  # under whichever name
            del body[self.limit_name]
        body = without_nulls({**body, **sampling.extra})
        if self.options.system == "fold":
            messages = fold_system(messages)
        body["messages"] = [{"role": role, "content": content} for role, content in messages]
        return encode(body)

    def adapts(self, status: int, reply: bytes) -> bool:
        """Whether a server does not know the name of the limit on tokens; the next body has the other."""
        if not (refused := unknown_field(status, reply, LIMITS)):
            return False
        # By what was sent, not by what is remembered: many requests may learn of it at once.
        (self.limit_name,) = LIMITS - {refused}
        warn(f"{self.server} does not know {refused}: --max-tokens is sent as {self.limit_name}.")
        return True

    def completion(self, reply: bytes, request: Request, seconds: float) -> Completion:
        """The first choice in a reply; what is beside it counts where it is what it should be.

        Raises Transient when the answer breaks off, Rejected when it does so twice, UsageError without
        log-probabilities that are to be read, and what is UNPARSEABLE for those that are none.
        """
        document, expects, margins = decode(reply), request.chat.expects, request.sampling.margins
        choice = document["choices"][0]
        if choice.get("error"):
            raise ValueError("an error in its stead")
        reason = _text(choice.get("finish_reason"))
        if reason in BROKEN_OFF:
            raise broken_off(request.key, self._broken_off, self.server, "see the server's log")
        message = table(choice.get("message")) if BLOCKED.search(reason or "") else choice["message"]
        labels = expects.labels if isinstance(expects, Labels) else ()
        text = _content(message.get("content"))
        refusal = _text(message.get("refusal")) or ""
        usage = table(document.get("usage"))
        logprobs = None
        with nullcontext() if margins else suppress(*UNPARSEABLE):
            logprobs = label_logprobs(choice, labels)
        if margins and logprobs is None and (text or refusal):
            raise UsageError(
                f"{self.server} sends no log-probabilities, which --answers margin reads.",
                "compare the answers' text with --answers text",
            )
        return Completion(
            text=text or refusal,
            finish=Finish.REFUSED if refusal else finish_of(reason, text, expects),
            prompt_tokens=count(usage.get("prompt_tokens")),
            completion_tokens=count(usage.get("completion_tokens")),
            reasoning_tokens=count(table(usage.get("completion_tokens_details")).get("reasoning_tokens")),
            cached_tokens=count(table(usage.get("prompt_tokens_details")).get("cached_tokens")),
            reasoning=_text(message.get("reasoning")) or _text(message.get("reasoning_content")),
            logprobs=logprobs,
            model=_text(document.get("model")),
            fingerprint=_text(document.get("system_fingerprint")),
            seconds=seconds,
        )
