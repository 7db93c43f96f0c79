"""The model in full: presets and configs become sizes, sizes get their defaults, modules are a chain into the last of them.

After this a model is either one `transformer`, or `modules` of which each is a `transformer` or `layers`; the last is the
language model that is planned, the others feed it.
"""

from __future__ import annotations

from typing import Any

from solver import catalog
from solver.errors import InvalidProblem
from solver.importers.hf_config import import_hf_config
from solver.problem.findings import Findings
from solver.problem.model import Block, LinearAttention, Model, Module, SoftmaxAttention, Transformer
from solver.problem.pointers import Path


def complete_model(model: Model, findings: Findings) -> Model:
    """The model with every gap filled; a form that could not be read stays as it is."""
    if model.modules is not None:
        return _complete_modules(model.modules, ("model", "modules"), findings)
    if model.layers is not None:
        return model
    content = _content(model, ("model",), findings)
    if content is None:
        return model
    if content.modules is not None:
        return _complete_modules(content.modules, ("model",), findings)
    assert content.transformer is not None
    return Model(transformer=_complete_transformer(content.transformer, ("model", "transformer"), findings))


def _content(model: Model | Module, path: Path, findings: Findings) -> Model | None:
    """What a preset or a config stands for; explicit sizes as they are."""
    if model.preset is not None:
        try:
            return Model.model_validate(catalog.find_model(model.preset).model)
        except catalog.UnknownName as error:
            code = "ambiguous_name" if error.ambiguous else "unknown_name"
            findings.add((*path, "preset"), code, str(error), error.candidates)
            return None
    if model.hf_config is not None:
        return _imported(model.hf_config, (*path, "hf_config"), findings)
    return Model(transformer=model.transformer)


def _imported(config: dict[str, Any], path: Path, findings: Findings) -> Model | None:
    try:
        return Model.model_validate(import_hf_config(config).model)
    except InvalidProblem as error:
        for item in error.errors:
            parts = tuple(p.replace("~1", "/").replace("~0", "~") for p in item.pointer.split("/")[1:])
            findings.take((*path, *parts), item)
        return None


# --------------------------------------------------------------------------------------------------------------------- modules
def _complete_modules(modules: tuple[Module, ...], path: Path, findings: Findings) -> Model:
    """Every module by its sizes, and the edges between them checked."""
    found = []
    for index, module in enumerate(modules):
        at = (*path, index) if path[-1] == "modules" else path
        found.append(_complete_module(module, at, findings))
    _check_edges(tuple(found), path, findings)
    return Model(modules=tuple(found))


def _complete_module(module: Module, path: Path, findings: Findings) -> Module:
    if module.layers is not None:
        return module
    content = _content(module, path, findings)
    if content is None:
        return module
    if content.transformer is None:
        findings.add(path, "not_supported", "a module that is itself of several modules is not supported; give its parts")
        return module
    transformer = _complete_transformer(content.transformer, (*path, "transformer"), findings)
    return Module(name=module.name, trainable=module.trainable, inputs=module.inputs, transformer=transformer)


def _check_edges(modules: tuple[Module, ...], path: Path, findings: Findings) -> None:
    """Names once, edges backward, everything feeds the last module, which is a language model."""
    names = [module.name for module in modules]
    for index, module in enumerate(modules):
        at = (*path, index) if path[-1] == "modules" else path
        if names.index(module.name) != index:
            findings.add((*at, "name"), "conflict", f"two modules are called {module.name[:80]!r}")
        for edge, source in enumerate(module.inputs):
            if source.source not in names[:index]:
                message = f"no module before this one is called {source.source[:80]!r}"
                findings.add((*at, "inputs", edge, "from"), "unknown_name", message, tuple(names[:index]))
        used = any(source.source == module.name for later in modules[index + 1 :] for source in later.inputs)
        if index < len(modules) - 1:
            _check_encoder(module, at, findings, used=used)
    last = modules[-1]
    at = (*path, len(modules) - 1) if path[-1] == "modules" else path
    if last.transformer is None or not last.transformer.vocab_size:
        findings.add(at, "not_supported", "the last module must be a language model by its sizes: it is the one that is planned")
    if not last.trainable:
        findings.add((*at, "trainable"), "not_supported", "the last module is the one that is trained", (True,))


def _check_encoder(module: Module, path: Path, findings: Findings, *, used: bool) -> None:
    """A module before the last feeds a later one, has no vocabulary, and is priced by formulas."""
    if not used:
        findings.add((*path, "name"), "conflict", f"nothing takes the output of {module.name[:80]!r}")
    if module.transformer is not None and module.transformer.vocab_size:
        findings.add(path, "not_supported", "a module before the last is an encoder of features: vocab_size 0")
    if module.layers is not None and module.layers.cost_formula != "native":
        message = "only the native cost formula is supported for a module"
        findings.add((*path, "layers", "cost_formula"), "not_supported", message, ("native",))
    for index, operator in enumerate(module.layers.operators if module.layers is not None else ()):
        if operator.costs or operator.inputs is not None:
            key = "costs" if operator.costs else "inputs"
            message = "a module's operators are a chain priced by formulas in this version"
            findings.add((*path, "layers", "operators", index, key), "not_supported", message)


# ----------------------------------------------------------------------------------------------------------------------- sizes
def _complete_transformer(transformer: Transformer, path: Path, findings: Findings) -> Transformer:
    blocks = tuple(
        _complete_block(block, transformer, (*path, "blocks", index), findings) for index, block in enumerate(transformer.blocks)
    )
    return transformer.model_copy(update={"blocks": blocks})


def _complete_block(block: Block, transformer: Transformer, path: Path, findings: Findings) -> Block:
    """Key/value heads default to the heads, the head width to hidden_size / heads, keys to the width of values."""
    block = block.model_copy(update={"norms": block.norm_count})
    attention = block.attention
    if not isinstance(attention, SoftmaxAttention | LinearAttention):
        return block
    kv_heads = attention.kv_heads or attention.heads
    if attention.heads % kv_heads:
        findings.add((*path, "attention", "kv_heads"), "conflict", f"kv_heads must divide heads ({attention.heads})")
    if not attention.head_dim and transformer.hidden_size % attention.heads:
        findings.add((*path, "attention", "heads"), "conflict", "heads does not divide hidden_size; give head_dim")
    head_dim = attention.head_dim or max(1, transformer.hidden_size // attention.heads)
    filled: dict[str, int | bool] = {"kv_heads": kv_heads, "head_dim": head_dim}
    if isinstance(attention, LinearAttention):
        filled["key_head_dim"] = attention.key_head_dim or head_dim
    else:
        filled["output_bias"] = attention.has_output_bias
    return block.model_copy(update={"attention": attention.model_copy(update=filled)})
