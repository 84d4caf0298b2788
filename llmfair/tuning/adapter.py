"""The adapter itself: where it sits in a model, and its two files, which are peft's own."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.errors import UsageError
from llmfair.io.files import whole
from llmfair.tuning.head import language_model

if TYPE_CHECKING:
    from llmfair.backends.local import LocalModel
    from llmfair.tuning.recipe import Recipe

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
NAME = "default"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def attach(model: LocalModel, recipe: Recipe) -> list[str]:
    """Puts a new adapter of float32 weights over the model, in place; the modules' full names.

    Raises UsageError where the target modules are not what they should be.
    """
    from peft import LoraConfig, get_peft_model

    wanted = [name.strip() for name in recipe.target_modules.split(",") if name.strip()]
    names = target_modules(model, wanted)
    everywhere = [name for name, _ in model.model.named_modules() if name.rpartition(".")[2] in wanted]
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=int(recipe.alpha) if recipe.alpha.is_integer() else recipe.alpha,
        lora_dropout=recipe.dropout,
        bias="none",
        task_type="CAUSAL_LM",
        # Short names wherever they mean the same: servers read them.
        target_modules=wanted if len(everywhere) == len(names) else names,
    )
    with _quiet():
        model.model = get_peft_model(model.model, config)
    return names


def target_modules(model: LocalModel, wanted: Sequence[str]) -> list[str]:
    """The full names of the language model's modules with these last names.

    Raises UsageError for a name that none has, and where the attention's four are not found once in each layer.
    """
    inner = language_model(model.model)
    decoder = inner.get_decoder() if hasattr(inner, "get_decoder") else inner
    modules = {
        name: name.rpartition(".")[2]
        for part, within in inner.named_modules()
        if within is decoder
        for name in (f"{part}.{own}".strip(".") for own, module in within.named_modules() if _linear(module))
    }
    found = [name for name, last in modules.items() if last in wanted]
    known = ", ".join(sorted(set(modules.values())))
    for last in wanted:
        if last not in modules.values():
            raise UsageError(
                f"{model.checkpoint.name} has no module '{last}' to adapt.",
                f"name others with --target-modules; it has {known}",
            )
    layers = model.checkpoint.text_config.get("num_hidden_layers")
    if tuple(wanted) == ATTENTION and isinstance(layers, int) and len(found) != 4 * layers:
        raise UsageError(
            f"{model.checkpoint.name} has {len(found)} of these modules in {layers} layers, not four in each.",
            f"name others with --target-modules; it has {known}",
        )
    return found


def _linear(module: Any) -> bool:
    weight = getattr(module, "weight", None)
    return hasattr(module, "in_features") and weight is not None


@contextmanager
def inputs_cast(model: Any, enabled: bool) -> Iterator[None]:
    """Whether the adapter casts what enters it to float32 meanwhile.

    Under autocast that is two passes over the activations for nothing: the small matrices are cast instead, and the
    gradients are the same.
    """
    layers = [module for module in model.modules() if hasattr(module, "cast_input_dtype_enabled")]
    before = [layer.cast_input_dtype_enabled for layer in layers]
    for layer in layers:
        layer.cast_input_dtype_enabled = enabled
    try:
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer.cast_input_dtype_enabled = was


def save_adapter(model: Any, folder: Path) -> None:
    """Writes the adapter's weights and settings; nothing of the base, and no head."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    found = get_peft_model_state_dict(model, adapter_name=NAME, save_embedding_layers=False)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in found.items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    config = model.peft_config[NAME]
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)  # a set's order would be another each time
    config.inference_mode = True
    config.save_pretrained(str(folder))
    config.inference_mode = False


def load_weights(model: Any, folder: Path) -> None:
    """Gives the model's adapter the weights of a folder."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    with _quiet():
        set_peft_model_state_dict(model, load_file(folder / WEIGHTS), adapter_name=NAME)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # peft's own use
        yield


def publish(source: Path, folder: Path) -> None:
    """Copies an adapter's two files to where they are used, the weights last and each at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SETTINGS, WEIGHTS):
        with (source / name).open("rb") as made, whole(folder / name) as file:
            shutil.copyfileobj(made, file)
