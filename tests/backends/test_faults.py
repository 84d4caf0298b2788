"""Replies without an answer, as servers and the proxies before them write them: what each comes to and what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.backends.base import BackendOptions, RateLimited, Transient
from llmfair.backends.faults import Fault, refusal_of
from llmfair.backends.openai import OpenAI
from llmfair.backends.rerank import Rerank
from llmfair.errors import BackendError, ContextTooLong, LlmfairError, MissingKey, Rejected, UsageError
from llmfair.io.net import Reply
from llmfair.nouns import Chat, Completion, Finish, Message, Permutation, Request, Sampling, Scores

MESSAGES = (Message("system", "Rank."), Message("user", "[1] Ada"))
REQUEST = Request(Chat(MESSAGES, Permutation(1)), Sampling(max_tokens=24, extra={"min_p": 0.1}), "key", "q1")
BLOCKED, LIMITED, PASSING = "blocked", RateLimited, Transient
SPENT, KEY, ELSEWHERE = "quota or the account's credit", MissingKey, "--base-url"
LONG, FOLD, SETTING = ContextTooLong, "--system fold", UsageError


def error(message: Any, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def loc(*steps: str | int, msg: str = "Extra inputs are not permitted", type: str = "extra_forbidden") -> Any:
    return [{"type": type, "loc": list(steps), "msg": msg, "input": "do not quote"}]


def google(message: str, status: str, code: int, **detail: Any) -> Any:
    return [error(message, code=code, status=status, details=[detail] if detail else [])]


def per(period: str) -> dict[str, Any]:
    return {"violations": [{"quotaId": f"GenerateRequestsPer{period}PerProject"}], "retryDelay": "44s"}


def openrouter(raw: Any, code: int = 400, **metadata: Any) -> Any:
    raw = raw if isinstance(raw, str) else json.dumps(raw)
    return error(
        "Provider returned error", code=code, metadata={"raw": raw, "provider_name": "P", **metadata}
    )


def litellm(kind: str, words: str) -> Any:
    return error(f"litellm.{kind}: OpenAIException - {words}", type=None, param=None, code="400")


def ended(reason: str | None, **choice: Any) -> Any:
    return {"choices": [{"index": 0, "finish_reason": reason, **choice}], "usage": {"prompt_tokens": 7}}


AZURE = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}}
REPLIES: list[tuple[int, Any, Any, str]] = [
    # one prompt is blocked, or its answer
    (403, error("Your input was flagged", code=403, metadata={"reasons": ["violence"]}), BLOCKED, ""),
    (403, error("This model requires moderation", code=403, metadata={"reasons": ["x"]}), BLOCKED, ""),
    (400, {"code": "data_inspection_failed", "message": "Input data may be inappropriate."}, BLOCKED, ""),
    (400, {"code": "DataInspectionFailed", "message": "Output data may be inappropriate."}, BLOCKED, ""),
    (400, error("The response was filtered", code="content_filter", innererror=AZURE), BLOCKED, ""),
    (400, error("No.", code=None, innererror=AZURE), BLOCKED, ""),
    (400, error("Invalid prompt: it was flagged", code="invalid_prompt"), BLOCKED, ""),
    (400, error("Content Exists Risk", type="invalid_request_error"), BLOCKED, ""),
    (400, error("rejected as high risk", type="content_filter"), BLOCKED, ""),
    (400, error("系统检测到输入可能包含敏感内容", code="1301"), BLOCKED, ""),
    (400, litellm("ContentPolicyViolationError", "no"), BLOCKED, ""),
    (400, error({"error": "Violated guardrail policy", "guardrail": "g"}, code="400"), BLOCKED, ""),
    (403, {"code": "x", "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK"}, BLOCKED, ""),
    (451, openrouter({"error": {"code": "content_policy_violation"}}, 451), BLOCKED, ""),
    (200, ended("content_filter"), BLOCKED, ""),
    (200, ended("content_filter", message=None), BLOCKED, ""),
    (200, ended("content_filter: PROHIBITED_CONTENT", message={"role": "assistant"}), BLOCKED, ""),
    (200, ended("SAFETY", message={"content": "half an"}), BLOCKED, ""),
    (200, ended("error", error={"code": 403, "metadata": {"reasons": ["x"]}, "message": "No."}), BLOCKED, ""),
    (200, ended("error", error={"code": 403, "message": "The input was flagged"}), BLOCKED, ""),
    (200, {"choices": [], "prompt_filter_results": [{"content_filter_results": {"hate": {"filtered": True}}}]}, BLOCKED, ""),
    (200, {"choices": [], "prompt_filter_results": [{"content_filter_results": {"hate": {"filtered": False}}}]}, PASSING, ""),
    (200, {"choices": None, "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, BLOCKED, ""),
    (200, {"candidates": [], "prompt_feedback": {"block_reason": "OTHER"}}, BLOCKED, ""),
    (200, {"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}, "choices": None}, BLOCKED, ""),
    (200, error("Provider returned error", code=403, metadata={"reasons": ["moderation"]}), BLOCKED, ""),
    (400, error("Your account was flagged for the content of its prompts", code="x"), Rejected, "account"),
    (403, b"<html>Sorry, you have been blocked</html>", KEY, "may use"),
    (403, error("Country, region, or territory not supported"), KEY, "territory"),
    # quotas: for longer than anybody waits, and the rate
    (429, google("You exceeded your current quota.", "RESOURCE_EXHAUSTED", 429, **per("Day")), SPENT, "current quota"),
    (429, google("You exceeded your current quota.", "RESOURCE_EXHAUSTED", 429, **per("Minute")), LIMITED, "quota"),
    (429, error("Rate limit exceeded: free-models-per-day. Add 10 credits", code=429), SPENT, "free-models-per-day"),
    (429, error("Rate limit exceeded: free-models-per-min. ", code=429), LIMITED, "free-models-per-min"),
    (429, error("No.", type="insufficient_quota", code=None), SPENT, "No"),
    (429, error("No.", code="insufficient_quota"), SPENT, "No"),
    (429, error("No.", type="exceeded_current_quota_error"), SPENT, "No"),
    (429, error("Limit reached on tokens per day (TPD): Limit 1000", code="rate_limit_exceeded"), SPENT, "TPD"),
    (429, error("Limit reached on tokens per minute (TPM): Limit 1000"), LIMITED, "TPM"),
    (429, error("At most 20 requests per minute and 500 per day"), LIMITED, "minute"),
    (429, {"message": "limited to 1000 API calls / month"}, SPENT, "month"),
    (429, {"message": "limited to 40 API calls / minute, examine a minimum"}, LIMITED, "calls"),
    (429, error("Rate limit of 150 per 86400s exceeded for UserByModelByDay"), SPENT, "86400s"),
    (429, {"code": "exhausted", "error": "Your team has used all available credits"}, SPENT, "team"),
    (429, b"", LIMITED, ""),
    (429, [{"error": {"code": 429}}], LIMITED, ""),
    (402, error("Insufficient Balance"), SPENT, "Balance"),
    (400, error("Your credit balance is too low", type="invalid_request_error"), SPENT, "balance"),
    (403, error("no quota left", code="insufficient_user_quota"), SPENT, "quota"),
    (200, error("Rate limit exceeded", code=429), LIMITED, "exceeded"),
    (429, error("Request too large for m on tokens per min: Limit 3, Requested 9"), LONG, "window"),
    # the key, another address, another model
    (401, error("bad key sk-123"), KEY, "asks for a key"),
    (400, google("API key not valid.", "INVALID_ARGUMENT", 400, reason="API_KEY_INVALID"), KEY, "asks for a key"),
    (403, {"Message": "token expired"}, KEY, "token expired"),
    (404, error("The model `m` does not exist", code="model_not_found"), ELSEWHERE, "does not exist"),
    (400, error("m is not a valid model ID", code=400), ELSEWHERE, "valid model"),
    (400, {"object": "error", "message": "Invalid model: m", "type": "invalid_model"}, ELSEWHERE, "Invalid model"),
    (307, b"", ELSEWHERE, "redirect"),
    # the context
    (400, error("No.", code="context_length_exceeded"), LONG, "smaller window"),
    (400, error("No.", type="exceed_context_size_error"), LONG, "smaller window"),
    (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens."}, LONG, "4096"),
    (400, openrouter({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}), LONG, "9 tokens"),
    (400, litellm("ContextWindowExceededError", "maximum context length"), LONG, "litellm"),
    (400, google("The input token count exceeds the maximum number of tokens allowed", "INVALID_ARGUMENT", 400), LONG, "count"),
    (400, error("Range of input length should be [1, 30720]"), LONG, "30720"),
    (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096", "error_type": "validation"}, LONG, "4096"),
    (400, {"detail": "Input is too long for requested model"}, LONG, "requested"),
    (413, b"<html>413</html>", LONG, "answers 413"),
    (500, error("the request exceeds the available context size", code=500), LONG, "available"),
    # the system message
    (400, {"object": "error", "message": "System role not supported", "code": 400}, FOLD, "System role"),
    (500, error("Jinja Exception: System role not supported", type="server_error"), FOLD, "Jinja"),
    (400, google("Developer instruction is not enabled for models/gemma", "INVALID_ARGUMENT", 400), FOLD, "gemma"),
    (400, error("Conversation roles must alternate user/assistant", code=400), FOLD, "alternate"),
    (400, error("does not support 'system' with this model", param="messages[0].role", code="unsupported_value"), FOLD, "'system'"),
    (422, {"detail": loc("body", "messages", 0, "role", msg="Input should be 'user'")}, FOLD, "messages.0.role"),
    (400, openrouter("System messages are not supported"), FOLD, "System messages"),
    # a field of the request
    (422, {"detail": loc("body", "seed")}, SETTING, "m does not take --model-seed: x:80 answers 422: body.seed: Extra"),
    (422, {"message": {"detail": loc("body", "seed")}}, SETTING, "--extra seed=null"),
    (422, {"message": json.dumps({"detail": loc("body", "seed")})}, SETTING, "--extra seed=null"),
    (422, {"message": "seed: Extra inputs are not permitted"}, SETTING, "--extra seed=null"),
    (400, openrouter({"detail": loc("body", "seed")}), SETTING, "--extra seed=null"),
    (400, litellm("UnsupportedParamsError", "m does not support parameters: ['seed']"), SETTING, "--extra seed=null"),
    (400, error("`temperature` is deprecated for this model."), SETTING, "--extra temperature=null"),
    (400, error("No.", param="temperature", code="unsupported_value"), SETTING, "--temperature 1"),
    (400, google("Unknown name \"seed\" at 'generation_config'", "INVALID_ARGUMENT", 400), SETTING, "seed=null"),
    (400, error("No.", param="logprobs", code="unsupported_parameter"), SETTING, "--answers text"),
    (400, error("Invalid value for 'top_logprobs': must be less than or equal to 5"), SETTING, "--extra top_logprobs=5"),
    (422, {"detail": loc("body", "top_logprobs", msg="Input should be less than or equal to 8", type="x")}, SETTING, "top_logprobs=5"),
    (400, error("top_logprobs must be in the range [0, 5], not 20", param="top_logprobs"), SETTING, "top_logprobs=5"),
    (400, error("sample logprobs of 20 is greater than max allowed: 5", param="top_logprobs"), SETTING, "top_logprobs=5"),
    (400, {"detail": "sample logprobs of 20, which is greater than max allowed: 8"}, SETTING, "top_logprobs=5"),
    (400, error("max_tokens is too large: 90000. At most 16384"), SETTING, "smaller --max-tokens"),
    (422, {"detail": loc("body", "max_tokens")}, SETTING, "--extra max_tokens=null"),
    (422, {"detail": loc("body", "structured_outputs")}, SETTING, "--constrain"),
    (422, {"detail": loc("body", "min_p")}, SETTING, "--extra min_p"),
    # what may pass, and what is not known
    (503, {"detail": "Model is not loaded"}, PASSING, "answers 503: Model is not loaded"),
    (502, openrouter("upstream timed out", 502), PASSING, "Provider returned error; upstream timed out"),
    (529, error("Overloaded", type="overloaded_error"), PASSING, "Overloaded"),
    (200, error("overloaded"), PASSING, "without a completion: overloaded"),
    (200, b"<html></html>", PASSING, "HTML"),
    (200, b"\xff", PASSING, "without a completion"),
    (204, b"", PASSING, ""),
    (200, {"choices": []}, PASSING, "JSON of another form"),
    (200, {"choices": [{"finish_reason": "stop"}]}, PASSING, "JSON of another form"),
    (400, {"errors": [{"message": "first"}, {"message": "second"}]}, Rejected, "first; second"),
    (400, {"fault": {"faultstring": "policy failed"}}, Rejected, "policy failed"),
    (400, error("Unknown parameter: 'safety_settings'"), Rejected, "safety_settings"),
    (400, b"[" * 100_000, Rejected, "answers 400"),
]  # fmt: skip


def outcome(backend: OpenAI | Rerank, status: int, body: Any, request: Request) -> Any:
    """What a backend makes of a reply, and all that it says of it."""
    reply = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        completion = backend.read(Reply(status, {}, reply), request)
    except (LlmfairError, RateLimited, Transient) as failure:
        return failure, f"{getattr(failure, 'cause', failure)} {getattr(failure, 'hint', '')}"
    assert isinstance(completion, Completion)
    return completion, ""


@pytest.mark.parametrize(("status", "body", "expected", "words"), REPLIES)
def test_replies(status: int, body: Any, expected: Any, words: str) -> None:
    backend = OpenAI("m", BackendOptions(base_url="http://x/v1"))
    found, said = outcome(backend, status, body, REQUEST)
    if expected is BLOCKED:
        assert isinstance(found, Completion) and found.finish is Finish.FILTERED, said
    elif isinstance(expected, str):
        assert isinstance(found, BackendError) and expected in found.hint, said
        assert found.stops_run is (expected is not FOLD)
    else:
        assert isinstance(found, expected), said
    assert words in said and "do not quote" not in said


@pytest.mark.parametrize(
    ("status", "body", "expected", "words"),
    [
        (413, {"error": "batch size 64 > maximum allowed batch size 32", "error_type": "Validation"}, Rejected, "--candidates"),
        (400, {"message": "too many documents: at most 1000"}, Rejected, "--candidates"),
        (422, {"detail": loc("body", "top_n")}, UsageError, "top_n=null"),
        (413, {"error": "`inputs` must have less than 512 tokens"}, ContextTooLong, "512"),
        (429, {"message": "limited to 1000 API calls / month"}, BackendError, "month"),
        (403, {"message": "The query was flagged"}, Completion, ""),
        (200, {"detail": "loading"}, Transient, "without scores: loading"),
        (200, {"object": "list"}, Transient, "without scores"),
        (200, {"results": [{"relevance_score": 1.0}]}, Transient, "without scores"),
        (429, {}, RateLimited, ""),
        (302, b"", BackendError, "redirect"),
    ],
)  # fmt: skip
def test_replies_of_rerank_servers(status: int, body: Any, expected: Any, words: str) -> None:
    backend = Rerank("m", BackendOptions(base_url="http://x/v1"))
    request = replace(REQUEST, chat=Chat(MESSAGES, Scores(1)))
    found, said = outcome(backend, status, body, request)
    assert type(found) is expected and words in said, said


@pytest.mark.parametrize(
    ("status", "body", "renamed"),
    [
        (400, error("No.", param="max_tokens", code="unsupported_parameter"), True),
        (400, error("'max_tokens' is not supported. Use 'max_completion_tokens' instead."), True),
        (422, {"detail": loc("body", "max_tokens")}, True),
        (400, openrouter(error("Unsupported parameter: 'max_tokens'")), True),
        (400, error("max_tokens is too large: 90000"), False),
        (400, error("maximum context length is 8; max_tokens is 9, not supported"), False),
    ],
)
def test_the_limit_s_other_name(status: int, body: Any, renamed: bool) -> None:
    backend = OpenAI("m", BackendOptions(base_url="http://x/v1"))
    assert backend.adapts(status, json.dumps(body).encode()) is renamed
    assert (backend.limit_name == "max_completion_tokens") is renamed


def test_a_time_to_wait_stands_in_the_body_too() -> None:
    reply = json.dumps(google("No.", "RESOURCE_EXHAUSTED", 429, **per("Minute"))).encode()
    assert refusal_of(429, reply).wait == 44


@settings(max_examples=30)
@given(st.integers(200, 599), st.binary() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.sampled_from(["error", "code", "message", "detail", "loc", "msg"]), parts),
).map(lambda document: json.dumps(document).encode()))  # fmt: skip
def test_any_reply_has_one_fault(status: int, reply: bytes) -> None:
    assert refusal_of(status, reply).fault in Fault
