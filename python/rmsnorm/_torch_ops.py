# SPDX-License-Identifier: MIT
"""The operators of torch's dispatcher: schemas, fake kernels, batching rules, and how the kernels are registered.

The kernels are C++ functions of ``_core`` that reach torch through its stable C interface. Where that cannot be used (a torch
before 2.9, another loader, a kernel that fails its self-test) Python kernels with the same results take their place on the CPU.
``KERNELS`` says which ones run. On CUDA the same C++ functions call librmsnorm_cuda; ``CUDA_KERNELS`` says whether it was found.

Operators have underscores: they know no autograd. ``_weighted_norm`` is ``_norm`` with the fewest arguments, each of which costs
torch's dispatcher 0.1 microseconds. ``stats`` is one tensor of shape (1 or 2, leading dimensions, groups):
r and, for LayerNorm, the mean; its strides follow x's order of rows. ``_stats`` gives it alone. The operators ``_gated_...`` have a
gate, whose place and activation are in the mode, and those of a sum may have one; their backward needs the bias where the gate comes
after the norm.

``_quantised_norm`` gives the result quantised, as bytes of shape (leading dimensions, bytes of a row), its scales (leading dimensions,
blocks), the result itself if with_y, and the sum if there is a residual; what is not asked for has no elements.

The operators ``_split_...`` are the halves of the operations, for rows whose columns are spread over processes. Their ``stats`` and
``sums`` are float64 tensors of shape (leading dimensions, groups times 3 or 2): the structs of the library.
"""
from __future__ import annotations

import os
import warnings

import torch

from . import _core
from ._cuda import cuda_library
from ._options import BEFORE_WEIGHT, DEFAULTS, GATE_AFTER, GATE_BEFORE, LAYER, SIGMOID
from ._torch_fakes import FAKES, WANT_DBIAS, WANT_DGATE, WANT_DWEIGHT, WANT_DX, on_one_device
from ._torch_python import PYTHON_KERNELS

_OPTIONS = "float eps, float weight_offset=0., int partial=0, int groups=1, int mode=0, Tensor? indices=None"
_SCHEMAS = {
    "_norm": f"(Tensor x, Tensor? weight, Tensor? bias, {_OPTIONS}) -> Tensor",
    "_weighted_norm": "(Tensor x, Tensor weight, float eps) -> Tensor",
    "_norm_stats": f"(Tensor x, Tensor? weight, Tensor? bias, {_OPTIONS}) -> (Tensor, Tensor)",
    "_stats": f"(Tensor x, {_OPTIONS}) -> Tensor",
    "_add_norm": f"(Tensor x, Tensor residual, Tensor? gate, Tensor? weight, Tensor? bias, {_OPTIONS}) -> (Tensor, Tensor)",
    "_add_norm_stats": "(Tensor x, Tensor residual, Tensor? gate, Tensor? weight, Tensor? bias, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    "_gated_norm": f"(Tensor x, Tensor gate, Tensor? weight, Tensor? bias, {_OPTIONS}) -> Tensor",
    "_gated_norm_stats": f"(Tensor x, Tensor gate, Tensor? weight, Tensor? bias, {_OPTIONS}) -> (Tensor, Tensor)",
    "_gated_norm_backward": "(Tensor dy, Tensor x, Tensor gate, Tensor? bias, Tensor? weight, Tensor stats, int wanted, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)",
    "_norm_backward": f"(Tensor dy, Tensor x, Tensor? weight, Tensor stats, int wanted, {_OPTIONS})"
    " -> (Tensor, Tensor, Tensor)",
    "_add_norm_backward": "(Tensor dy, Tensor sum, Tensor? dsum, Tensor? gate, Tensor? bias, Tensor? weight, Tensor stats, int wanted, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "_quantised_norm": "(Tensor x, Tensor? residual, Tensor? gate, Tensor? scale, int dtype, int block, float scale_least, int with_y, "
    f"Tensor? weight, Tensor? bias, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)",
    "_split_stats": f"(Tensor x, {_OPTIONS}) -> Tensor",
    "_split_merge": "(Tensor a, Tensor b) -> Tensor",
    "_split_apply": f"(Tensor x, Tensor stats, Tensor? weight, Tensor? bias, {_OPTIONS}) -> Tensor",
    "_split_backward_stats": f"(Tensor dy, Tensor x, Tensor stats, Tensor? weight, {_OPTIONS}) -> Tensor",
    "_split_backward_apply": f"(Tensor dy, Tensor x, Tensor stats, Tensor sums, Tensor? weight, int wanted, {_OPTIONS})"
    " -> (Tensor, Tensor, Tensor)",
}

library = torch.library.Library("rmsnorm", "DEF")


def _define() -> None:
    tags = [getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_exact_strides") if hasattr(torch.Tag, name)]
    for name, schema in _SCHEMAS.items():
        library.define(name + schema, tags=tags)


def _completed(name, function):
    """The function with the options that the dispatcher leaves out because they have their defaults."""
    if _OPTIONS not in _SCHEMAS[name]:
        return function
    leading = _SCHEMAS[name].split("float eps")[0].count(",") + 1  # arguments up to eps

    def complete(*arguments):
        return function(*arguments, *DEFAULTS[len(arguments) - leading :])

    return complete


# ---- batching: a batch of x is more rows; a batch of weights is a loop ----


def _slices(batch, dims, tensors):
    """The arguments of each member of the batch."""
    for i in range(batch):
        yield [t if d is None or t is None else t.select(d, i) for t, d in zip(tensors, dims)]


def _stack(results):
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return tuple(torch.stack(r) for r in zip(*results))


def _rows_first(batch, tensor, dim):
    if tensor is None:
        return None
    return tensor.movedim(dim, 0) if dim is not None else tensor.expand(batch, *tensor.shape)


def _register_batching(name, rows, stats_at):
    """rows: how many of the first arguments have rows; stats_at: the place of stats among the results, or None."""
    op = getattr(torch.ops.rmsnorm, name).default

    def batched(info, in_dims, *arguments):
        tensors, options = arguments[: rows + 2], arguments[rows + 2 :]
        dims = in_dims[: rows + 2]
        if dims[rows] is not None or dims[rows + 1] is not None:
            results = [op(*member, *options) for member in _slices(info.batch_size, dims, tensors)]
            result = _stack(results)
            return result, (0,) * len(result) if isinstance(result, tuple) else 0
        data = [_rows_first(info.batch_size, t, d) for t, d in zip(tensors[:rows], dims)]
        result = op(*data, *tensors[rows:], *options)
        if not isinstance(result, tuple):
            return result, 0
        return result, tuple(1 if i == stats_at else 0 for i in range(len(result)))

    torch.library.register_vmap(f"rmsnorm::{name}", batched, lib=library)
    return batched


def _register_stats_batching():
    def batched(info, in_dims, x, *options):
        return torch.ops.rmsnorm._stats.default(x.movedim(in_dims[0], 0), *options), 1

    torch.library.register_vmap("rmsnorm::_stats", batched, lib=library)


def _register_weighted_batching(batched_norm):
    """That of _norm, which has a bias between the weight and eps."""

    def batched(info, in_dims, x, weight, eps):
        return batched_norm(info, (*in_dims[:2], None), x, weight, None, eps)

    torch.library.register_vmap("rmsnorm::_weighted_norm", batched, lib=library)


def _register_backward_batching(name, tensors):
    """Gradients of the weight belong to each member of the batch alone, hence the loop."""
    op = getattr(torch.ops.rmsnorm, name).default

    def batched(info, in_dims, *arguments):
        members = _slices(info.batch_size, in_dims[:tensors], arguments[:tensors])
        result = _stack([op(*member, *arguments[tensors:]) for member in members])
        return result, (0,) * len(result)

    torch.library.register_vmap(f"rmsnorm::{name}", batched, lib=library)


# ---- registration ----


def _loaded(part: str) -> list[str]:
    """Paths of the shared libraries in this process whose name starts with part."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
    return sorted(p for p in paths if os.path.basename(p).startswith(part))


def _use_openmp() -> None:
    """The OpenMP runtime that torch runs on; without one the kernels in Python have a single thread."""
    beside_torch = [p for p in _loaded("lib") if os.path.basename(p).startswith(("libgomp", "libiomp", "libomp"))]
    own = os.path.dirname(os.path.dirname(torch.__file__))
    for path in sorted(beside_torch, key=lambda p: not p.startswith(own)):
        if _core.set_openmp(path):
            return


def _try_all(kernels: dict, mode: int) -> list[torch.Tensor]:
    x = torch.arange(-6.0, 6.0).reshape(2, 6) / 7
    w, dy = torch.linspace(0.5, 1.5, 6), torch.linspace(-1, 1, 12).reshape(2, 6)
    options, wanted = (1e-5, 0.0, 0, 1, mode, None), WANT_DX | WANT_DWEIGHT | WANT_DBIAS
    y, stats = kernels["_norm_stats"](x, w, w, *options)
    both = kernels["_split_stats"](x, *options)
    sums = kernels["_split_backward_stats"](dy, x, both, w, *options)
    return [
        y,
        stats,
        kernels["_norm"](x, w, w, *options),
        kernels["_weighted_norm"](x, w, 1e-5),
        kernels["_stats"](x, *options),
        *kernels["_add_norm"](x, dy, None, w, None, *options),
        *kernels["_add_norm_stats"](x, dy, None, w, None, *options),
        *kernels["_norm_backward"](dy, x, w, stats, wanted, *options),
        *kernels["_add_norm_backward"](dy, x, dy, None, None, w, stats, wanted, *options),
        both,
        sums,
        kernels["_split_merge"](both, kernels["_split_stats"](dy, *options)),
        kernels["_split_apply"](x, both, w, w, *options),
        *kernels["_split_backward_apply"](dy, x, both, sums, w, wanted, *options),
    ]


def _try_gates(kernels: dict, mode: int) -> list[torch.Tensor]:
    x = torch.arange(-6.0, 6.0).reshape(2, 6) / 7
    w, z = torch.linspace(0.5, 1.5, 6), torch.linspace(-2, 3, 12).reshape(2, 6)
    options, wanted = (1e-5, 0.0, 0, 1, mode, None), WANT_DX | WANT_DGATE | WANT_DWEIGHT | WANT_DBIAS
    y, stats = kernels["_gated_norm_stats"](x, z, w, w, *options)
    gradients = kernels["_gated_norm_backward"](z, x, z, w, w, stats, wanted, *options)
    added = kernels["_add_norm_stats"](x, z, z, w, w, *options)
    gradients += kernels["_add_norm_backward"](z, added[1], z, z, w, w, added[2], wanted, *options)
    return [y, stats, kernels["_gated_norm"](x, z, w, w, *options), *kernels["_add_norm"](x, z, z, w, w, *options), *added, *gradients]


def _try_quantised(kernels: dict, mode: int) -> list[torch.Tensor]:
    x = torch.arange(-32.0, 32.0).reshape(2, 32) / 7
    w, options = torch.linspace(0.5, 1.5, 32), (1e-5, 0.0, 0, 1, mode, None)
    attempts = ((5, 16, None), (6, 32, None), (7, 0, torch.ones(1)), (8, 0, None))
    return [t for dtype, block, scale in attempts
            for t in kernels["_quantised_norm"](x, x, None, scale, dtype, block, 0.0, 1, w, w, *options)]  # fmt: skip


def _self_test() -> None:
    """A call of every kernel against the same call from Python; an exception tells what went wrong."""
    registered = {name: getattr(torch.ops.rmsnorm, name).default for name in _SCHEMAS}
    gates = (GATE_AFTER | BEFORE_WEIGHT, GATE_BEFORE | LAYER | SIGMOID)
    for attempt, mode in (*((_try_all, m) for m in (0, LAYER)), *((_try_gates, m) for m in gates), (_try_quantised, 0)):
        for got, right in zip(attempt(registered, mode), attempt(PYTHON_KERNELS, mode)):
            if got.shape != right.shape or got.stride() != right.stride() or not torch.equal(got, right):
                raise RuntimeError("a kernel gave a wrong result")


def _choice() -> str:
    wanted = os.environ.get("RMSNORM_TORCH_KERNELS", "auto")
    if wanted not in ("auto", "c++", "python"):
        raise RuntimeError(f"RMSNORM_TORCH_KERNELS is {wanted!r}; it must be auto, c++ or python")
    return wanted


def _register_kernels() -> str:
    """Which kernels run on the CPU: "c++" or "python"."""
    wanted = _choice()
    if wanted != "python":
        paths = _loaded("libtorch_cpu")
        missing = _core.register_torch(paths[0]) if len(paths) == 1 else "one libtorch_cpu"
        reason = f"this torch lacks {missing}"
        if missing is None:
            try:
                _self_test()
                return "c++"
            except Exception as error:  # whatever a foreign torch does, the kernels in Python remain
                reason = f"the self-test failed: {error}"
        _core.unregister_torch()
        if wanted == "c++":
            raise RuntimeError(f"the C++ kernels cannot be used: {reason}")
        warnings.warn(f"rmsnorm uses its slower kernels in Python: {reason}", RuntimeWarning, stacklevel=3)
    for name, kernel in PYTHON_KERNELS.items():
        library.impl(name, _completed(name, kernel), "CPU")
    return "python"


def _missing_cuda() -> str | None:
    """Registers the kernels for CUDA tensors, or says what they lack. No CUDA context is made."""
    paths = _loaded("libtorch_cuda.so")
    if torch.version.cuda is None or len(paths) != 1:
        return "this torch is not built for CUDA"
    if KERNELS != "c++":
        return "the kernels in Python serve the CPU alone"
    found = cuda_library()
    if found is None:
        return "librmsnorm_cuda was not found: install the package rmsnorm-cuda"
    missing = _core.register_torch_cuda(paths[0], found, "CUDA")
    return None if missing is None else f"{found} or this torch cannot be used: {missing}"


def _refuse_cuda(reason: str) -> None:
    """Kernels that say why there are none."""

    def refuse(*arguments):
        raise RuntimeError(f"rmsnorm: CUDA tensors cannot be served: {reason}")

    for name in _SCHEMAS:
        library.impl(name, refuse, "CUDA")


def _register_cuda() -> str:
    """ "c++", or "none: " and the reason."""
    reason = _missing_cuda()
    if reason is None:
        return "c++"
    _refuse_cuda(reason)
    return f"none: {reason}"


def _set_up() -> str:
    _define()
    for name, fake in FAKES.items():
        torch.library.register_fake(f"rmsnorm::{name}", _completed(name, on_one_device(fake)), lib=library)
    _register_weighted_batching(_register_batching("_norm", 1, None))
    _register_batching("_norm_stats", 1, 1)
    _register_stats_batching()
    _register_batching("_add_norm", 3, None)
    _register_batching("_add_norm_stats", 3, 2)
    _register_batching("_gated_norm", 2, None)
    _register_batching("_gated_norm_stats", 2, 1)
    _register_backward_batching("_norm_backward", 4)
    _register_backward_batching("_add_norm_backward", 7)
    _register_backward_batching("_gated_norm_backward", 6)
    _use_openmp()
    return _register_kernels()


KERNELS: str = _set_up()
CUDA_KERNELS: str = _register_cuda()
