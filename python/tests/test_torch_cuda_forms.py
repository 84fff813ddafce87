# SPDX-License-Identifier: MIT
"""Channels first, results of other types, a rounded gain, adaLN, statistics alone, options of sums, quantised results and norms
without a weight on CUDA tensors. Needs a GPU."""
import pytest
import torch

import rmsnorm
import rmsnorm.torch as rt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
DEVICE = "cuda"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LARGEST = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 57344}
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


@pytest.fixture(autouse=True)
def on_the_gpu():
    torch.manual_seed(1)
    with torch.device(DEVICE):
        yield


def _gradients(function, inputs, dy):
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


def _close(got, right):
    for a, b in zip(got, right, strict=True):
        assert a.dtype is b.dtype and a.device.type == DEVICE
        scale = float(b.float().abs().max()) + 1e-30
        assert float((a.float() - b.float()).abs().max()) <= TOLERANCE[a.dtype] * scale


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(2, 96, 14, 14), (1, 768, 7, 7), (3, 40, 9), (2, 3, 64, 64)], ids=str)
def test_channels_first(shape, dtype):
    x, dy = torch.randn(2, *shape).to(dtype)
    w, b = torch.randn(2, shape[1]).to(dtype)
    got = _gradients(lambda x, w, b: rt.layer_norm(x, w, b, channels_first=True), (x, w, b), dy)
    rows = _gradients(rt.layer_norm, (x.movedim(1, -1).contiguous(), w, b), dy.movedim(1, -1).contiguous())
    assert got[0].stride() == got[1].stride() == x.stride()
    rows = [rows[0].movedim(-1, 1), rows[1].movedim(-1, 1), *rows[2:]]
    if dtype is torch.float64:
        torch.testing.assert_close(got, rows)
    else:
        _close(got, rows)


@pytest.mark.parametrize("out_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [48, 4096])
def test_results_of_other_types(dtype, out_dtype, cols):
    x, dy, w = torch.randn(17, cols).to(dtype), torch.randn(17, cols).to(out_dtype), torch.randn(cols)
    for rounding in ("after_weight", "before_weight"):
        got = _gradients(lambda x, w: rt.rms_norm(x, w, out_dtype=out_dtype, rounding=rounding), (x, w), dy)
        wide = _gradients(rt.rms_norm, (x.float(), w), dy.float())
        assert got[0].dtype is out_dtype and got[1].dtype is dtype and got[2].dtype is torch.float32
        loose = max(TOLERANCE[dtype], TOLERANCE[out_dtype])
        for a, b in zip(got, wide):
            assert float((a.float() - b).abs().max()) <= loose * float(b.abs().max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rounded_gain(dtype):
    x, dy = torch.randn(2, 33, 256).to(dtype)
    w = torch.randn(256).to(dtype)
    got = _gradients(lambda x, w: rt.layer_norm(x, w, weight_offset=1.0, gain_rounding="as_weight"), (x, w), dy)
    _close(got, _gradients(lambda x, w: rt.layer_norm(x, w + 1), (x, w), dy))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_modulate(kind, dtype):
    x, dy = torch.randn(2, 3, 65, 128).to(dtype)
    parts = torch.randn(3, 6 * 128).to(dtype)
    norm = rt.layer_norm if kind == "layer" else rt.rms_norm

    def modulated(x, parts):
        shift, scale = parts.chunk(6, dim=-1)[2:4]
        return rt.modulate(x, scale, shift, kind=kind)

    def formula(x, parts):
        shift, scale = parts.chunk(6, dim=-1)[2:4]
        return norm(x, eps=1e-6) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)

    _close(_gradients(modulated, (x, parts), dy), _gradients(formula, (x, parts), dy))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", [{}, dict(partial=32), dict(groups=4), dict(eps_place="outside")], ids=str)
def test_statistics(options, dtype):
    x, dr = torch.randn(33, 256).to(dtype), torch.randn(33, options.get("groups", 1))

    def formula(x):
        rows = x.float().unflatten(-1, (options.get("groups", 1), -1))[..., : options.get("partial")]
        s = rows.square().mean(-1)
        return 1 / (s.sqrt() + 1e-2) if "eps_place" in options else (s + 1e-2).rsqrt()

    _close(_gradients(lambda x: rt.rms_norm_stats(x, 1e-2, **options), (x,), dr), _gradients(formula, (x,), dr))
    mean, r = rt.layer_norm_stats(x, 1e-2)
    _close([mean, r], [x.float().mean(-1, keepdim=True), (x.float().var(-1, correction=0, keepdim=True) + 1e-2).rsqrt()])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", [dict(gate_place="after"), dict(gate_place="before"), dict(steps="all"), dict(steps="rstd"),
                                     dict(out_dtype=torch.float32)], ids=str)  # fmt: skip
def test_options_of_sums(options, dtype):
    x, r, z = torch.randn(3, 33, 256).to(dtype)
    w, dy = torch.randn(256).to(dtype), torch.randn(33, 256).to(options.get("out_dtype", dtype))

    def added(x, r, w, z):
        gate = dict(gate=z) if "gate_place" in options else {}
        return rt.add_rms_norm(x, r, w, **gate, **options)[0] + 0 * z

    def formula(x, r, w, z):
        gate = dict(gate=z) if "gate_place" in options else {}
        return rt.rms_norm(x + r, w, **gate, **options) + 0 * z

    _close(_gradients(added, (x, r, w, z), dy), _gradients(formula, (x, r, w, z), dy))


class UnweightedNorm(torch.nn.Module):
    eps = 1e-6

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def test_patch_serves_norms_without_a_weight():
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), UnweightedNorm()).bfloat16()
    x = torch.randn(33, 256).bfloat16()
    before = model(x)
    report = rmsnorm.patch(model)
    assert [e.module._rmsnorm_device for e in report.patched] == [DEVICE]
    with torch.profiler.profile() as profile:
        _close([model(x)], [before])
    assert any("rmsnorm::" in event.key for event in profile.key_averages())


def _quantised(dtype, y, width):
    """From y on, the arithmetic is that of the CPU."""
    blocks = y.float().cpu().unflatten(-1, (-1, width))
    scale = blocks.abs().amax(-1) / LARGEST[dtype]
    each = scale.unsqueeze(-1)
    t = (blocks * (1 / each) if dtype == "int8" else blocks / each).clamp(-LARGEST[dtype], LARGEST[dtype])
    q = t.round().to(torch.int8) if dtype == "int8" else t.to(getattr(torch, dtype))
    return q.flatten(-2).view(torch.uint8), scale


@pytest.mark.parametrize("x_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("block", [None, 128])
def test_quantised(dtype, block, x_dtype):
    for rows, cols in ((5, 128), (17, 4096)):
        x, r = torch.randn(2, rows, cols).to(x_dtype)
        w = torch.randn(cols).to(x_dtype)
        found = rt.rms_norm_quantised(x, w, dtype=dtype, block=block, residual=r, return_y=True)
        q, scale = _quantised(dtype, found.y, block or cols)
        assert torch.equal(found.scale.cpu(), scale) and torch.equal(found.q.view(torch.uint8).cpu(), q)
        y, total = rt.add_rms_norm(x, r, w)
        _close([found.y], [y])
        assert torch.equal(found.sum, total)
        alone = rt.rms_norm_quantised(x, w, dtype=dtype, block=block, residual=r)
        assert torch.equal(alone.q.view(torch.uint8), found.q.view(torch.uint8)) and alone.y is None


def test_quantised_with_a_given_scale_and_q8_0():
    x, w = torch.randn(17, 256).bfloat16(), torch.randn(256).bfloat16()
    given = torch.full((1,), 0.02)
    for scale in (given, 0.02):
        found = rt.layer_norm_quantised(x, w, scale=scale, return_y=True)
        assert torch.equal(found.q.cpu(), (found.y.float().cpu() / given.cpu()).clamp(-127, 127).round().to(torch.int8))
    found = rt.layer_norm_quantised(x, w, dtype="q8_0", return_y=True)
    blocks = found.y.float().cpu().unflatten(-1, (-1, 32))
    most = blocks.abs().amax(-1, keepdim=True)
    assert torch.equal(found.q[..., :2].cpu().contiguous().view(torch.float16), (most / 127).half())
    assert torch.equal(found.q[..., 2:].cpu().contiguous().view(torch.int8), (blocks * (torch.full_like(most, 127) / most)).round().to(torch.int8))


def test_quantised_under_compile_and_in_a_graph():
    x, w = torch.randn(17, 256).bfloat16(), torch.randn(256).bfloat16()

    def norm(x, w):
        return tuple(t for t in rt.rms_norm_quantised(x, w, dtype="float8_e4m3fn", block=64)[:2])

    right = norm(x, w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = norm(x, w)
    graph.replay()
    compiled = torch.compile(norm, fullgraph=True)(x, w)
    for got in (captured, compiled):
        assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(got, right))
