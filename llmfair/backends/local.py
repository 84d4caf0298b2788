"""A transformers model in this process: batches of prompts to margins or to text.

Everything here is synchronous and runs on one thread; `hf.py` gathers requests and gives them to it. Margins are
computed in float32 from the last hidden state and the rows of the labels alone, as the training head does:
logits rounded to bfloat16 tie labels that the model tells apart.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from llmfair.backends.base import BackendOptions, fold_system
from llmfair.checkpoints import INSTALL, Checkpoint, Place, already_read, batches, loading
from llmfair.control_tokens import without_control_tokens
from llmfair.errors import BackendError, MissingExtra, Rejected, UsageError
from llmfair.nouns import Completion, Expects, Labels, Message, Permutation, Sampling

if TYPE_CHECKING:
    import torch


# From a conversation to token ids: the one place where `hf:`, `vllm:` and training render a chat template. The text is
# encoded by us, without further special tokens, so that an audit and a training run see the same ids.


FOLD_HINT = "leave --system out, or fold the system text into the first user message with --system fold"
_PROBE = "WordsOfTheSystem"


class ChatTemplate:
    """A tokenizer's chat template, ready to render: `ids(messages)` is the prompt up to where the answer begins.

    `system`: `separate` keeps the role, `fold` puts the system text before the first user message, `auto` folds
    for templates that refuse the role or drop its text; `folded` says which it is. `template_kwargs` go to the
    template (`enable_thinking=False`). Raises UsageError for a tokenizer without a template, or one that cannot
    be rendered.
    """

    def __init__(
        self,
        tokenizer: Any,
        system: Literal["auto", "separate", "fold"] = "auto",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.template_kwargs = dict(template_kwargs or {})
        self.name = str(getattr(tokenizer, "name_or_path", "") or "the tokenizer")
        self.folded = False
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        self._control = tuple(token.content for token in added if token.special)
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"{self.name} has no chat template, so it is not a model one can talk to.",
                "choose its instruction-tuned version, often named Instruct or Chat",
            )
        probe = (Message("system", _PROBE), Message("user", "a"))
        try:
            takes_system = _PROBE in self.text(probe)
        except Rejected:
            takes_system = False
        self.folded = system == "fold" or not takes_system
        if self.folded and system == "separate":
            raise UsageError(f"the chat template of {self.name} takes no system message.", FOLD_HINT)
        # What a tokenizer puts before any text; models trained with it do badly without.
        bos = tokenizer.bos_token_id
        self._start = [bos] if bos is not None and list(tokenizer("a").input_ids)[:1] == [bos] else []
        try:
            self.ids(probe)
        except Rejected as error:
            raise UsageError(error.message, "repair chat_template in its tokenizer files") from None

    @property
    def sha256(self) -> str:
        """SHA-256 of the template's text: whether a prompt is rendered as it was when an adapter was trained."""
        return hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest()

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt as text, the head of the answer's turn included. Raises Rejected when the template refuses."""
        conversation = fold_system(tuple(messages)) if self.folded else messages
        # What a title says must not end a turn or begin one: the tokenizer would read these as its own.
        rows = [
            {"role": message.role, "content": without_control_tokens(message.content, self._control)}
            for message in conversation
        ]
        import jinja2

        try:
            return str(
                self.tokenizer.apply_chat_template(
                    rows, tokenize=False, add_generation_prompt=True, **self.template_kwargs
                )
            )
        except jinja2.TemplateError as error:
            raise Rejected(f"the chat template of {self.name} refuses this conversation: {error}.") from None

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """The prompt as token ids; a template that writes no BOS gets the tokenizer's, where that uses one."""
        return self._encode(self.text(messages))

    def label_ids(
        self, messages: Sequence[Message], answers: Mapping[str, str]
    ) -> tuple[list[int], dict[str, int]]:
        """The prompt up to where the answers part, and each label's token id there: `(ids, {label: id})`.

        `answers` are the answers' texts by label (`label_answers`). What they have in common, such as the `[` of
        `[1] > [2]`, is appended to the prompt: the model is made to say it. Raises UsageError for answers that one
        token cannot tell apart.
        """
        text = self.text(messages)
        # What follows the last control token is cut into tokens by itself.
        tail = text[max([0, *(text.rfind(token) for token in self._control)]) :]
        texts = [tail, *(tail + answer for answer in answers.values())]
        before, *encoded = self.tokenizer(texts, add_special_tokens=False).input_ids
        place = next((i for i, ids in enumerate(zip(*encoded, strict=False)) if len(set(ids)) > 1), None)
        # The answers may not change how the prompt itself is cut into tokens.
        tokens = [] if place is None else [ids[place] for ids in encoded]
        if len({*tokens}) < len(answers) or any(ids[: len(before)] != before for ids in encoded):
            listed = ", ".join(f"'{answer}'" for answer in answers.values())
            raise UsageError(
                f"{self.name} does not cut the answers {listed} into tokens that tell them apart.",
                "read the answers' text with --answers text",
            )
        common = encoded[0][len(before) : place]
        return [*self._encode(text), *common], dict(zip(answers, tokens, strict=True))

    def _encode(self, text: str) -> list[int]:
        ids = list(self.tokenizer(text, add_special_tokens=False).input_ids)
        return ids if ids[:1] == self._start else [*self._start, *ids]


def label_answers(expects: Expects) -> dict[str, str]:
    """The answers whose first difference a margin is about, by label. Raises UsageError for another shape."""
    match expects:
        case Permutation(2, None):
            return {"1": "[1] > [2]", "2": "[2] > [1]"}
        case Labels(labels) if len(labels) > 1:
            return {label: label for label in labels}
        case _:
            raise UsageError(
                "only answers that choose between labels have margins.", "leave --answers margin out"
            )


# Grammars of the answers that may be given, for engines that can hold a model to them (`--constrain`).


MOST_ITEMS = 64
"""The bits of an llguidance parameter: one for each item already named."""


def grammar_of(expects: Expects) -> str:
    """A Lark grammar, as llguidance reads it, of all answers of this shape: one of the labels, or an order.

    Orders are `[2] > [1] > …` of `best` of 1..n (None: all), each item once: a parameter of the rules holds a bit for
    each item already named. Raises UsageError for free text, and for n outside 2..64.
    """
    if isinstance(expects, Labels):
        return f"start: {' | '.join(json.dumps(label) for label in expects.labels)}\n"
    if not isinstance(expects, Permutation):
        raise UsageError("--constrain needs an answer of a known shape.", "leave it out")
    n, best = expects.n, expects.best or expects.n
    if not 2 <= n <= MOST_ITEMS:
        raise UsageError(
            f"--constrain takes windows of 2 to {MOST_ITEMS} items, not {n}.",
            f"choose --window {MOST_ITEMS} or less",
        )
    complete = f"is_ones([0:{n}])" if best == n else f"bit_count_eq([0:{n}], {best})"
    more = "bit_clear({0})" if best == n else f"and(bit_clear({{0}}), bit_count_lt([0:{n}], {best}))"
    first = " | ".join(f'"[{item + 1}]" rest::set_bit({item})' for item in range(n))
    rest = (f'" > [{item + 1}]" rest::set_bit({item}) %if {more.format(item)}' for item in range(n))
    rules = " | ".join([f'"" %if {complete}', *rest])
    return f"start: p0::0x0\np0::_ : {first}\nrest::_ : {rules}\n"


# What stands between a local model's logits and the token it says: a grammar, and a seeded draw. Both work row by
# row, so that an answer does not depend on the other answers of its batch.


def constraint(matchers: Sequence[Any], start: int) -> Callable[..., torch.Tensor]:
    """Allows each row the tokens of its grammar only; `start` is where answers begin. A row may be free (None)."""

    def allow(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        mask, spoken = allocate_token_bitmask(*scores.shape), ids[:, start:].tolist()
        for row, matcher in enumerate(matchers):
            if matcher is not None:
                if spoken[row] and not matcher.is_stopped():
                    matcher.consume_token(spoken[row][-1])
                fill_next_token_bitmask(matcher, mask, row)  # once it stopped, the end alone
        allowed = np.unpackbits(mask.view(np.uint8), axis=1, count=scores.shape[1], bitorder="little")
        return scores.masked_fill(torch.from_numpy(allowed == 0).to(scores.device), -torch.inf)

    return allow


def drawing(seeds: Sequence[int], temperature: float, top_p: float | None) -> Callable[..., torch.Tensor]:
    """Draws from softmax(scores / temperature) cut at `top_p`, each row with its own seed.

    Gumbel noise makes the likeliest token a draw [Gumbel 1954; Maddison et al. 2014], so that `generate` can stay
    greedy and rows need no common generator.
    """
    generators: list[torch.Generator] = []

    def draw(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch

        if not generators:
            generators.extend(torch.Generator(scores.device).manual_seed(seed) for seed in seeds)
        scores = scores.float() / temperature
        if top_p is not None and top_p < 1:  # the one that reaches it is included
            ordered, places = scores.sort(descending=True, dim=-1)
            shares = ordered.softmax(-1)
            dropped = shares.cumsum(-1) - shares >= top_p
            scores = scores.masked_fill(torch.zeros_like(dropped).scatter(-1, places, dropped), -torch.inf)
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise.log()

    return draw


FEWEST_ROWS, FEWEST_SHARED = 4, 16
"""From so many prompts and common tokens on it pays to read what prompts begin with once."""


def common_prefix(prompts: Sequence[Any]) -> int:
    """How many tokens all prompts begin with; at least one token of each is left over."""
    least = min(map(len, prompts)) - 1
    rows = np.array([ids[:least] for ids in prompts])
    differs = (rows != rows[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else least


@dataclass
class LocalModel:
    """A loaded model with its tokenizer, and an adapter over it if there is one.

    An encoder–decoder has no chat template and reads plain text. `cancelled` ends what is being generated.
    """

    model: Any
    tokenizer: Any
    template: ChatTemplate | None
    checkpoint: Checkpoint
    place: Place
    cancelled: Callable[[], bool] = lambda: False

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        if self.template is not None:
            return self.template.ids(messages)
        return list(self.tokenizer("\n\n".join(message.content for message in messages)).input_ids)

    # Margins

    def margins(
        self, questions: Sequence[tuple[Sequence[int], Mapping[str, int]]]
    ) -> list[tuple[dict[str, float], int]]:
        """Of each prompt and its labels' tokens their natural log-probabilities after it, and the likeliest token.

        Over the whole vocabulary, in one forward pass. Every prompt has as many labels. Raises BackendError for a model
        whose output is not known here.
        """
        import torch

        prompts, labels = zip(*questions, strict=True)
        shared = self._shared(prompts)
        ids, mask = self._pad([prompt[shared:] for prompt in prompts])
        past = None
        if shared:
            past = self._read(prompts[0][:shared]).past_key_values
            past.batch_repeat_interleave(len(prompts))
        mask = torch.cat([mask.new_ones(len(prompts), shared), mask], dim=-1)
        states = []  # what enters the output matrix: (rows, positions kept, width)
        watch = self._head.register_forward_pre_hook(lambda _, arguments: states.append(arguments[0]))
        with torch.inference_mode(), watch:
            computed = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0)[:, shared:],
                use_cache=past is not None,
                logits_to_keep=1,
                **already_read(past),
            ).logits
            assert computed.shape[1] == 1, "logits_to_keep is not honoured"
            computed, hidden = computed[:, -1].float(), states[0][:, -1].float()
            tokens = torch.tensor([list(of_prompt.values()) for of_prompt in labels], device=computed.device)
            exact = torch.einsum("rw,rlw->rl", hidden, self._head.weight[tokens].float())
            # What models do to their logits after the output matrix, in float32.
            if (bias := getattr(self._head, "bias", None)) is not None:
                exact = exact + bias[tokens].float()
            config = self.checkpoint.text_config
            exact = exact * (config.get("logit_scale") or 1.0) / (config.get("logits_scaling") or 1.0)
            if cap := config.get("final_logit_softcapping"):
                exact = (exact / cap).tanh() * cap
            # Where the model's own logits are, but for rounding, not those calculated here, it does more to them.
            rounding = 1e-3 if self.place.dtype == "float32" else 0.02
            rounded = computed.gather(-1, tokens)
            allowed = rounding * rounded.abs().amax(-1, keepdim=True).clamp(min=1.0) + 1e-3
            if not bool(((exact - rounded).abs() <= allowed).all()):
                raise BackendError(
                    f"{self.checkpoint.name} changes its logits in a way that is not known here.",
                    "read the answers' text with --answers text",
                )
            logits = computed.scatter(-1, tokens, exact)
            logprobs = (exact - logits.logsumexp(-1, keepdim=True)).tolist()
            greedy = logits.argmax(-1).tolist()
        return [
            (dict(zip(of_prompt, values, strict=True)), token)
            for of_prompt, values, token in zip(labels, logprobs, greedy, strict=True)
        ]

    def _shared(self, prompts: Sequence[Sequence[int]]) -> int:
        """How many tokens all prompts begin with, where it pays to read them once; else 0."""
        if len(prompts) < FEWEST_ROWS or self.place.dtype == "float32":  # in which nothing hangs on the batch
            return 0
        longest = max(map(len, prompts))
        if longest > (self.checkpoint.text_config.get("sliding_window") or longest):
            return 0
        alike = common_prefix(prompts)
        return alike if alike >= FEWEST_SHARED and self._plain_cache else 0

    @cached_property
    def _plain_cache(self) -> bool:
        """Whether the model keeps nothing of what it has read but keys and values, which can be repeated."""
        from transformers import DynamicCache

        return type(self._read([0]).past_key_values) is DynamicCache

    def _read(self, ids: Sequence[int]) -> Any:
        import torch

        tokens = torch.tensor([list(ids)], device=self.model.device)
        with torch.inference_mode():
            return self.model(input_ids=tokens, use_cache=True, logits_to_keep=1)

    @cached_property
    def _head(self) -> Any:
        return self.model.get_output_embeddings()

    # Text

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        grammars: Sequence[str | None],
        sampling: Sampling,
        num_beams: int,
    ) -> list[tuple[list[int], bool]]:
        """What follows each prompt, at most so many tokens, and whether the model itself ended it.

        Greedily, or where the temperature is above 0 drawn with each one's own seed; a grammar (Lark) binds it.
        """
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        def given_up(ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            """Ends a batch that nobody waits for any more."""
            return torch.full((ids.shape[0],), self.cancelled(), device=ids.device, dtype=torch.bool)

        ids, mask = self._pad(prompts)
        start = 1 if self.checkpoint.encoder_decoder else ids.shape[1]
        processors = list[Any]()
        if any(grammars):
            matchers = [self._matcher(grammar) if grammar else None for grammar in grammars]
            processors.append(constraint(matchers, start))
        if sampling.temperature > 0:
            processors.append(drawing(seeds, sampling.temperature, sampling.top_p))
        config = GenerationConfig(
            max_new_tokens=sampling.max_tokens,
            do_sample=False,
            num_beams=num_beams,
            eos_token_id=sorted(self._ends),
            pad_token_id=self._pad_id,
        )
        with torch.inference_mode():
            rows = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList(processors),
                stopping_criteria=StoppingCriteriaList([given_up]),
            )
        answers = []
        for tokens in rows[:, start:].tolist():
            end = next((place for place, token in enumerate(tokens) if token in self._ends), None)
            answers.append((tokens[:end], end is not None))
        return answers

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @cached_property
    def _ends(self) -> frozenset[int]:
        """The tokens that end an answer: those of the checkpoint, which may name several, and the tokenizer's."""
        ends = self.model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        return frozenset(token for token in (*listed, self.tokenizer.eos_token_id) if token is not None)

    @cached_property
    def _pad_id(self) -> int:
        token = self.tokenizer.pad_token_id
        return int(token if token is not None else min(self._ends, default=0))

    @cached_property
    def _matcher(self) -> Callable[[str], Any]:
        """Makes matchers of grammars, each at the start of an answer; a grammar is compiled once.

        Raises MissingExtra, and UsageError for a tokenizer that cannot be read.
        """
        try:
            import llguidance.hf
        except ImportError:
            raise MissingExtra("--constrain needs llguidance.", INSTALL) from None
        width = self._head.weight.shape[0]  # of the logits, which may be more than the tokenizer has tokens
        try:
            tokens = llguidance.hf.from_tokenizer(self.tokenizer, n_vocab=width, eos_token=sorted(self._ends))
        except ValueError as error:
            raise UsageError(
                f"the tokenizer cannot be held to a grammar: {error}.", "leave --constrain out"
            ) from None
        matcher = llguidance.LLMatcher
        compiled = lru_cache(None)(lambda grammar: matcher(tokens, matcher.grammar_from_lark(grammar)))
        return lambda grammar: compiled(grammar).deep_copy()

    # Both

    def _pad(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Prompts on one rectangle and where they stand on it: padded left, or right for an encoder."""
        import torch

        side = "right" if self.checkpoint.encoder_decoder else "left"
        pad, rows = torch.nn.utils.rnn.pad_sequence, [torch.tensor(prompt) for prompt in prompts]
        ids = pad(rows, batch_first=True, padding_value=self._pad_id, padding_side=side)
        mask = pad([*map(torch.ones_like, rows)], batch_first=True, padding_side=side)
        return ids.to(self.model.device), mask.to(self.model.device)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warning of what peft uses itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        yield


def load_model(
    checkpoint: Checkpoint, place: Place, options: BackendOptions, attention: str, **more: Any
) -> LocalModel:
    """Loads weights, tokenizer and adapter; `more` goes to `from_pretrained`. Raises BackendError, UsageError."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    causal = not checkpoint.encoder_decoder
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForSeq2SeqLM
    where = {} if place.device == "cpu" else {"device_map": place.device}
    settings = {"dtype": getattr(torch, place.dtype), "attn_implementation": attention, **more}
    source, revision = checkpoint.source, checkpoint.revision
    with loading(checkpoint.name, place.device):
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, revision=revision)
        model = kind.from_pretrained(source, revision=revision, **settings, **where)
    # Only where an answer starts and ends is taken from it: `generate` would add a checkpoint's penalties to ours.
    config = model.generation_config
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=config.eos_token_id, decoder_start_token_id=config.decoder_start_token_id
    )
    template = ChatTemplate(tokenizer, options.system, options.template_args) if causal else None
    if options.adapter is not None:
        try:
            from peft import PeftModel
        except ImportError:
            raise MissingExtra("adapters need peft.", INSTALL) from None
        with loading(f"the adapter {options.adapter}", place.device), quiet():
            model = PeftModel.from_pretrained(model, str(options.adapter))
    return LocalModel(model.eval(), tokenizer, template, checkpoint, place)


J = TypeVar("J")
Turn = tuple[asyncio.Future[list[Completion]], int]
"""A batch that is under way, and a job's place in it."""

GATHER_SECONDS = 0.008
LOOKS = 8


class InProcess(ABC, Generic[J]):
    """A model in this process. It is loaded for the first question, so that a finished run loads none.

    It takes hardly longer for thirty prompts than for one, so jobs gather for a few milliseconds, and while it is busy
    the next batch gathers by itself. One thread runs it, which sees one batch at a time: jobs of one kind, the longest
    first, and at most `batch_tokens` positions, rows × longest. An error of a batch is each of its jobs'.
    """

    gpus = 1
    reads_about = False

    def __init__(self, batch_tokens: int) -> None:
        self.batch_tokens = batch_tokens
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llmfair-model")
        self.closing = threading.Event()
        self._waiting: list[tuple[J, Hashable, int, asyncio.Future[Turn]]] = []
        self._arrived = asyncio.Event()
        self._loading: asyncio.Future[None] | None = None
        self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Takes no more batches; one that is under way is not waited for."""
        if self._serving is not None:
            self.closing.set()
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving
            self._thread.shutdown(wait=False)
        self._serving = None
        self.__dict__.pop("_model", None)  # a further stage may need its memory

    async def answer(self, job: Callable[[], tuple[J, Hashable, int]]) -> Completion:
        """The answer to a job, its kind and the positions it takes, made once the model is there.

        Raises what loading does.
        """
        loop = asyncio.get_running_loop()
        if self._loading is None:
            self._loading = loop.run_in_executor(self._thread, self._load)
        await asyncio.shield(self._loading)
        turn: asyncio.Future[Turn] = loop.create_future()
        started = time.perf_counter()
        self._waiting.append((*job(), turn))
        self._arrived.set()
        running, place = await turn
        return replace((await asyncio.shield(running))[place], seconds=time.perf_counter() - started)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            # Company is waited for while more keeps coming, a few milliseconds at most, until a batch is full.
            for _ in range(LOOKS):
                before = len(self._waiting)
                if sum(length for _, _, length, _ in self._waiting) >= self.batch_tokens:
                    break
                await asyncio.sleep(GATHER_SECONDS / LOOKS)
                if len(self._waiting) == before:
                    break
            # Jobs that nobody waits for any more are dropped.
            self._waiting = [item for item in self._waiting if not item[3].done()]
            if not self._waiting:
                self._arrived.clear()
                continue
            alike = [item for item in self._waiting if item[1] == self._waiting[0][1]]
            rows = next(batches([length for _, _, length, _ in alike], self.batch_tokens))
            running = loop.run_in_executor(self._thread, self._run, [alike[row][0] for row in rows])
            for place, row in enumerate(rows):
                alike[row][3].set_result((running, place))
            self._waiting = [item for item in self._waiting if not item[3].done()]
            await asyncio.gather(running, return_exceptions=True)

    # On the model's thread

    @abstractmethod
    def _load(self) -> None:
        """Loads the model."""

    @abstractmethod
    def _run(self, batch: Sequence[J]) -> list[Completion]:
        """The answers of one batch."""
