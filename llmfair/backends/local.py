"""A transformers model in this process: batches of prompts to margins or to text.

Everything here is synchronous and runs on one thread; `hf.py` gathers requests and gives them to it. Margins are
computed in float32 from the last hidden state and the rows of the labels alone, as the training head does
(`lora.md` 5): logits rounded to bfloat16 tie labels that the model tells apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llmfair.backends.base import BackendOptions
from llmfair.backends.sampling import Constraint, Drawing, GrammarTokens
from llmfair.backends.templates import ChatTemplate
from llmfair.checkpoints import INSTALL, Checkpoint, Place, already_read
from llmfair.errors import BackendError, MissingExtra, line_of
from llmfair.io import files
from llmfair.nouns import Message

if TYPE_CHECKING:
    import torch

FEWEST_ROWS, FEWEST_SHARED = 4, 16
"""From so many prompts and common tokens on it pays to read what prompts begin with once."""
SMALLER = "use a smaller --backend-arg batch_tokens, --backend-arg dtype=bfloat16, or a smaller model"


@dataclass(frozen=True)
class LabelScores:
    """Natural log-probabilities of the labels' tokens after a prompt, and the likeliest token of all."""

    logprobs: Mapping[str, float]
    greedy: int


@dataclass(frozen=True)
class Draft:
    """How one prompt is to be continued: `grammar` (Lark) binds it, `seed` draws it where `temperature` is above 0."""

    ids: Sequence[int]
    seed: int = 0
    grammar: str | None = None


@dataclass(frozen=True)
class Continuation:
    """What followed a prompt; `ended` says that the model itself ended it."""

    ids: list[int]
    text: str
    ended: bool


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
        """A conversation as token ids, up to where the answer begins."""
        if self.template is not None:
            return self.template.ids(messages)
        return list(self.tokenizer("\n\n".join(message.content for message in messages)).input_ids)

    # Margins

    def margins(
        self, prompts: Sequence[Sequence[int]], labels: Sequence[Mapping[str, int]]
    ) -> list[LabelScores]:
        """Each prompt's log-probabilities of its labels' tokens, over the whole vocabulary, in one forward pass.

        Every prompt has as many labels. Raises BackendError for a model whose output is not known here.
        """
        import torch

        shared = self._shared(prompts)
        ids, mask = self._pad([prompt[shared:] for prompt in prompts])
        past = self._once(prompts[0][:shared], len(prompts)) if shared else None
        mask = torch.cat([mask.new_ones(len(prompts), shared), mask], dim=-1)
        with torch.inference_mode(), self._last_hidden() as kept:
            own = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0)[:, shared:],
                use_cache=past is not None,
                logits_to_keep=1,
                **already_read(past),
            ).logits
            assert own.shape[1] == 1, "logits_to_keep is not honoured"
            own, hidden = own[:, -1].float(), kept[0][:, -1].float()
            tokens = torch.tensor([list(of_prompt.values()) for of_prompt in labels], device=own.device)
            exact = torch.einsum("rw,rlw->rl", hidden, self._head.weight[tokens].float())
            exact = self._transform(exact, tokens)
            self._require_known(exact, own.gather(-1, tokens))
            logits = own.scatter(-1, tokens, exact)
            logprobs = (exact - logits.logsumexp(-1, keepdim=True)).tolist()
            greedy = logits.argmax(-1).tolist()
        return [
            LabelScores(dict(zip(of_prompt, found, strict=True)), token)
            for of_prompt, found, token in zip(labels, logprobs, greedy, strict=True)
        ]

    def _shared(self, prompts: Sequence[Sequence[int]]) -> int:
        """How many tokens all prompts begin with, where it pays to read them once; else 0."""
        if (
            len(prompts) < FEWEST_ROWS or self.place.dtype == "float32"
        ):  # there, nothing may hang on the batch
            return 0
        longest = max(map(len, prompts))
        if longest > (self.checkpoint.text_config.get("sliding_window") or longest):
            return 0
        columns = enumerate(zip(*prompts, strict=False))
        alike = next((place for place, tokens in columns if len({*tokens}) > 1), longest)
        alike = min(alike, *(len(prompt) - 1 for prompt in prompts))  # something of each is left to ask
        return alike if alike >= FEWEST_SHARED and self._plain_cache else 0

    @cached_property
    def _plain_cache(self) -> bool:
        """Whether the model keeps nothing of what it has read but keys and values, which can be repeated."""
        from transformers import DynamicCache

        return type(self._read([0]).past_key_values) is DynamicCache

    def _once(self, ids: Sequence[int], rows: int) -> Any:
        """Keys and values of a prefix, read once, for so many rows."""
        past = self._read(ids).past_key_values
        past.batch_repeat_interleave(rows)
        return past

    def _read(self, ids: Sequence[int]) -> Any:
        import torch

        tokens = torch.tensor([list(ids)], device=self.model.device)
        with torch.inference_mode():
            return self.model(input_ids=tokens, use_cache=True, logits_to_keep=1)

    def _transform(self, logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """What the model does to the logits of these tokens after the output matrix, in float32; (rows, labels)."""
        bias = getattr(self._head, "bias", None)
        config = self.checkpoint.text_config
        if bias is not None:
            logits = logits + bias[tokens].float()
        logits = logits * (config.get("logit_scale") or 1.0) / (config.get("logits_scaling") or 1.0)
        if cap := config.get("final_logit_softcapping"):
            logits = (logits / cap).tanh() * cap
        return logits

    def _require_known(self, exact: torch.Tensor, own: torch.Tensor) -> None:
        """Raises BackendError where the model's own logits are not, but for rounding, those calculated here."""
        rounding = 1e-3 if self.place.dtype == "float32" else 0.02
        allowed = rounding * own.abs().amax(-1, keepdim=True).clamp(min=1.0) + 1e-3
        if not bool(((exact - own).abs() <= allowed).all()):
            raise BackendError(
                f"{self.checkpoint.name} changes its logits in a way that is not known here.",
                "read the answers' text with --answers text",
            )

    @cached_property
    def _head(self) -> Any:
        return self.model.get_output_embeddings()

    @contextmanager
    def _last_hidden(self) -> Iterator[list[torch.Tensor]]:
        """Gathers what enters the output matrix meanwhile: (rows, positions kept, width)."""
        kept: list[torch.Tensor] = []
        hook = self._head.register_forward_pre_hook(lambda module, arguments: kept.append(arguments[0]))
        try:
            yield kept
        finally:
            hook.remove()

    # Text

    def generate(
        self,
        drafts: Sequence[Draft],
        max_tokens: int,
        temperature: float = 0.0,
        top_p: float | None = None,
        num_beams: int = 1,
    ) -> list[Continuation]:
        """Continues every prompt by at most `max_tokens` tokens: greedily, or drawn with each draft's own seed."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        ids, mask = self._pad([draft.ids for draft in drafts])
        start = 1 if self.checkpoint.encoder_decoder else ids.shape[1]
        processors: list[Any] = []
        if any(draft.grammar for draft in drafts):
            grammars = [draft.grammar for draft in drafts]
            processors.append(Constraint(self._grammar_tokens, grammars, start))
        if temperature > 0:
            processors.append(Drawing([draft.seed for draft in drafts], temperature, top_p))
        config = GenerationConfig(
            max_new_tokens=max_tokens,
            do_sample=False,
            num_beams=num_beams,
            eos_token_id=sorted(self._ends),
            pad_token_id=self._pad_id,
        )
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList(processors),
                stopping_criteria=StoppingCriteriaList([self._give_up]),
            )
        return [self._continuation(row.tolist()) for row in found[:, start:]]

    def _continuation(self, ids: list[int]) -> Continuation:
        end = next((place for place, token in enumerate(ids) if token in self._ends), None)
        ids = ids[:end]
        return Continuation(ids, self.decode(ids), end is not None)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _give_up(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Ends a batch that nobody waits for any more."""
        import torch

        return torch.full((ids.shape[0],), self.cancelled(), device=ids.device, dtype=torch.bool)

    @cached_property
    def _ends(self) -> frozenset[int]:
        """The tokens that end an answer: those of the checkpoint, which may name several, and the tokenizer's."""
        found = self.model.generation_config.eos_token_id
        listed = found if isinstance(found, list) else [found]
        return frozenset(token for token in (*listed, self.tokenizer.eos_token_id) if token is not None)

    @cached_property
    def _pad_id(self) -> int:
        own = self.tokenizer.pad_token_id
        return int(own if own is not None else min(self._ends, default=0))

    @cached_property
    def _grammar_tokens(self) -> GrammarTokens:
        return GrammarTokens(self.tokenizer, self._head.weight.shape[0], sorted(self._ends))

    # Both

    def _pad(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Prompts on one rectangle and where they stand on it: padded left, or right for an encoder."""
        import torch

        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self._pad_id, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            place = (
                slice(len(prompt)) if self.checkpoint.encoder_decoder else slice(longest - len(prompt), None)
            )
            ids[row, place] = torch.tensor(prompt)
            mask[row, place] = 1
        device = self.model.device
        return ids.to(device), mask.to(device)

    def without_adapter(self) -> Any:
        """The base model's own answers: `with model.without_adapter():`."""
        return self.model.disable_adapter() if hasattr(self.model, "disable_adapter") else nullcontext()


@files.usual()
def load_model(
    checkpoint: Checkpoint, place: Place, options: BackendOptions, attention: str, **more: Any
) -> LocalModel:
    """Loads weights, tokenizer and adapter; `more` goes to `from_pretrained` (a quantization).

    Raises BackendError for weights that are missing, broken or too large, and UsageError for a chat template that
    cannot be used.
    """
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    causal = not checkpoint.encoder_decoder
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForSeq2SeqLM
    revision = {"revision": checkpoint.revision} if checkpoint.revision else {}
    where = {} if place.device == "cpu" else {"device_map": place.device}
    settings = {"dtype": getattr(torch, place.dtype), "attn_implementation": attention, **more}
    with _said(checkpoint.name, place):
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.source, **revision)
        model = kind.from_pretrained(checkpoint.source, **settings, **revision, **where)
    # Only where an answer starts and ends is taken from it: `generate` would add a checkpoint's penalties to ours.
    own = model.generation_config
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=own.eos_token_id, decoder_start_token_id=own.decoder_start_token_id
    )
    template = ChatTemplate(tokenizer, options.system, options.template_args) if causal else None
    if options.adapter is not None:
        try:
            from peft import PeftModel
        except ImportError:
            raise MissingExtra("adapters need peft.", INSTALL) from None
        with _said(f"the adapter {options.adapter}", place), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # peft's own use
            model = PeftModel.from_pretrained(model, str(options.adapter))
    return LocalModel(model.eval(), tokenizer, template, checkpoint, place)


@contextmanager
def _said(what: str, place: Place) -> Iterator[None]:
    """Loading failures in one sentence."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise BackendError(f"{what} does not fit the memory of {place.device}.", SMALLER) from None
    except Exception as error:  # each library has its own for files that are missing or broken
        raise BackendError(f"{what} cannot be loaded: {line_of(error)}.", "-v shows where") from error
