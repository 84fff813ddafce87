# SPDX-License-Identifier: MIT
"""Every class of transformers with "norm" in its name: rmsnorm.patch serves it, or it is named here with the reason.

docs/python.md has the counts.
"""
import copy
import importlib
import inspect
import pathlib
import re

import pytest
import torch
import transformers
from operators import CountedOperators, few

import rmsnorm

WIDTH = 96

# Modules with such a name that are no norms of rows. Norms inside them are modules of their own.
NO_NORMS = {
    r"Batch[Nn]orm(2d|ConvLayer|Layer)?$": "a batch norm: its statistics are those of the batch, or fixed",
    r"(No|Layer|Group)NormConvLayer$|ConvNormLayer$|^ConvDropoutLayerNorm$": "a convolution with a norm behind it",
    r"Encoder(Layer)?StableLayerNorm$|^DbrxNormAttentionNorm$|^RobertaPreLayerNorm": "a part of a model that has norms inside",
    r"NormedEmbedding$": "an embedding with a norm behind it",
    r"Unnormed$": "not normed, as it says",
    r"^NoNorm$": "a weight and a bias without a norm",
    r"^VoxtralRealtimeTextAdaRmsNorm$": "two projections without a norm",
    r"MeanVarianceNormLayer$": "its mean and variance are fixed numbers",
}

# Norms that are left alone.
GROUPS = "a group norm: a row is that of several channels and all places of an image"
LEFT_ALONE = {
    "Emu3VQVAEGroupNorm": GROUPS, "Emu3VQVAESpatialNorm": GROUPS, "BitGroupNormActivation": GROUPS, "PoolFormerGroupNorm": GROUPS,
    "PeAudioMaskedGroupNorm": GROUPS, "PeAudioVideoMaskedGroupNorm": GROUPS, "PeVideoMaskedGroupNorm": GROUPS,
    "Gemma3nAudioCumulativeGroupNorm": "statistics of all tokens so far",
    "IntLayerNorm": "arithmetic of whole numbers",
    "EsmFold2AdaptiveLayerNorm": "a function call inside makes its norm, not a module; that of its condition is served",
}  # fmt: skip


def _config(name, **options):
    return lambda cls: cls(getattr(transformers, name)(**options))


# How a module is made, where that is not cls(96) or cls().
MAKE = {
    "AXK2GatedRMSNorm": _config("AXK2Config", hidden_size=WIDTH),
    "AutoformerLayernorm": _config("AutoformerConfig", d_model=WIDTH),
    "ChameleonLayerNorm": lambda cls: cls((5, WIDTH)),
    "CpmAntLayerNorm": _config("CpmAntConfig", hidden_size=WIDTH),
    "PatchTSMixerNormLayer": _config("PatchTSMixerConfig", d_model=WIDTH, norm_mlp="LayerNorm"),
    "StableLmLayerNormPerHead": lambda cls: cls(WIDTH, 5),
    "VibeVoiceDiffusionHeadAdaLayerNorm": lambda cls: cls(transformers.VibeVoiceDiffusionHeadConfig(hidden_size=WIDTH, intermediate_size=64)),
    "Zamba2RMSNormGated": lambda cls: cls(WIDTH, group_size=32),
    "ZayaQKNorm": _config("ZayaConfig", head_dim=WIDTH, num_key_value_heads=2),
    "xLSTMMultiHeadLayerNorm": lambda cls: cls(4, WIDTH // 4),
}

# The shapes of the arguments, where they are not those of rows, images or rows with a gate.
ROWS, CONDITION = (4, 15, WIDTH), (4, WIDTH)
SHAPES = {
    "ChameleonLayerNorm": [(4, 3, 5, WIDTH)], "StableLmLayerNormPerHead": [(4, 5, 3, WIDTH)],
    "VibeVoiceDiffusionHeadAdaLayerNorm": [ROWS, ROWS], "ZayaQKNorm": [(2, 9, 4, WIDTH), (2, 9, 2, WIDTH)],
    "xLSTMMultiHeadLayerNorm": [(4, 15, 4, WIDTH // 4)],
}  # fmt: skip


def _classes():
    """Names and classes. Files are searched before they are imported: most have none."""
    root = pathlib.Path(transformers.__file__).parent
    for path in sorted(root.glob("models/**/*.py")):
        names = re.findall(r"^ *class (\w*norm\w*)\(", path.read_text(), re.MULTILINE | re.IGNORECASE)
        if not names or path.name.startswith(("modular_", "configuration_")):
            continue
        module = importlib.import_module(".".join(("transformers", *path.relative_to(root).with_suffix("").parts)))
        for name in names:
            cls = getattr(module, name)
            if issubclass(cls, torch.nn.Module) and not issubclass(cls, transformers.PreTrainedModel):
                yield name, cls


CLASSES = dict(_classes())
NORMS = {name: cls for name, cls in CLASSES.items() if not any(re.search(pattern, name) for pattern in NO_NORMS)}
SERVED = {name: cls for name, cls in NORMS.items() if name not in LEFT_ALONE}


def _modules(name, cls):
    """The class in each of its forms."""
    if name in MAKE:
        return [MAKE[name](cls)]
    options = inspect.signature(cls.__init__).parameters
    if list(options)[1] == "eps":
        return [cls()]
    forms = [cls(WIDTH)]
    if "data_format" in options:
        forms.append(cls(WIDTH, data_format="channels_first"))
    if "with_scale" in options:
        forms.append(cls(WIDTH, with_scale=False))
    return forms


def _shapes(name, spec):
    if name in SHAPES:
        return SHAPES[name]
    if spec.image_dims:
        return [(3, WIDTH, 5, 4)[: spec.image_dims]]
    return [ROWS] + [ROWS] * (spec.gate_place is not None) + [CONDITION] * (spec.parts is not None)


def _results(module, inputs):
    leaves = [t.clone().requires_grad_() for t in inputs]
    results = module(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    return [r.detach() for r in results], torch.autograd.grad(results, leaves, [r.detach().flip(0) for r in results])


def _check(name, own, dtype):
    """The bits of y where torch's order of sums is had, and nearly all of them otherwise. dx of 16 bits has nearly all of them, but for
    LayerNorm: F.layer_norm saves 16 bits for it. In float32 other orders of sums show in the last places."""
    generator = torch.Generator().manual_seed(6)
    for p in own.to(dtype).eval().parameters():
        p.data = torch.randn(p.shape, generator=generator).to(dtype) * (p.shape[-1] ** -0.5 if p.dim() > 1 and p.shape[0] > 8 else 1)
    model = torch.nn.ModuleDict({"norm": copy.deepcopy(own)})
    report = rmsnorm.patch(model)
    assert report.patched and not report.left_alone, str(report)
    specs = [e.spec for e in report.patched]
    dims = 4 if "channels_first" in vars(own).values() else specs[0].image_dims
    assert all(s.image_dims == dims for s in specs)
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in _shapes(name, specs[0])]
    with CountedOperators() as operators:
        found, gradients = _results(model["norm"], inputs)
    assert operators.count >= len(specs)
    right, right_gradients = _results(own, inputs)
    same = all(s.sums == "torch" for s in specs)
    layer, wide = any(s.kind == "layer" for s in specs), dtype is torch.float32
    for a, b in zip((*found, *gradients), (*right, *right_gradients)):
        across = 1 if dims else -1
        assert a.dtype is b.dtype and a.shape == b.shape
        assert ((a - b).abs() <= (24 if wide else 4) * torch.finfo(dtype).eps * b.abs().amax(across, keepdim=True)).all()
    for a, b in zip(found, right):
        assert torch.equal(a, b) if same else wide or (a != b).float().mean() <= few(dtype)
    for a, b in zip(gradients, right_gradients):
        assert wide or layer or (a != b).float().mean() <= few(dtype)


@pytest.mark.parametrize("name", SERVED)
def test_classes(name):
    for own in _modules(name, SERVED[name]):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            if not (name == "EsmFold2LayerNorm" and dtype is not torch.float32):  # its parameters must stay float32
                _check(name, own, dtype)


def test_every_name_on_the_lists_is_a_class():
    assert all(name in NORMS for name in (*LEFT_ALONE, *MAKE, *SHAPES))
    assert all(any(re.search(pattern, name) for name in CLASSES) for pattern in NO_NORMS)


@pytest.mark.parametrize("name", ["PoolFormerGroupNorm", "EsmFold2AdaptiveLayerNorm"])
def test_what_is_left_alone(name):
    model = torch.nn.ModuleDict({"norm": NORMS[name](WIDTH)})
    report = rmsnorm.patch(model)
    assert type(model["norm"]) is NORMS[name] and "norm" not in [e.name for e in report.patched]


def test_counts():
    """Those of docs/python.md."""
    assert (len(CLASSES), len(NORMS), len(SERVED)) == (338, 251, 241)
