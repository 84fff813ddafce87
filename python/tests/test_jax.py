# SPDX-License-Identifier: MIT
"""rmsnorm.jax under jit, grad and vmap, against formulas in JAX and the NumPy functions."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmsnorm
import rmsnorm.jax as rj

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(4)
EPS = 1e-3


def randn(*shape, dtype=jnp.float32):
    return jnp.asarray(rng.standard_normal(shape)).astype(dtype)


def same(a, b):
    """To the bit, with the same type; also None and None."""
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---- the bits of the NumPy functions ----

NORMS = {
    "rms": (rj.rms_norm, rj.add_rms_norm, rmsnorm.rms_norm, rmsnorm.rms_norm_backward),
    "layer": (rj.layer_norm, rj.add_layer_norm, rmsnorm.layer_norm, rmsnorm.layer_norm_backward),
}
FORMS = [
    ("rms", {}), ("rms", dict(rounding="before_weight")), ("rms", dict(partial=0.25)), ("rms", dict(partial=3)), ("rms", dict(groups=4)),
    ("rms", dict(indices=[1, 5, 6, 39])), ("rms", dict(groups=2, indices=np.array([0, 19]))), ("rms", dict(weight_offset=1.0)),
    ("rms", dict(eps_place="outside")), ("rms", dict(eps_place="clamp")),
    ("rms", dict(weight_offset=1.0, gain_rounding="as_weight", rounding="before_weight")), ("rms", dict(steps="terms")),
    ("rms", dict(steps="rstd")), ("rms", dict(steps="all")), ("layer", {}), ("layer", dict(rounding="before_weight", groups=4)),
    ("layer", dict(weight_offset=1.0, gain_rounding="as_weight")), ("layer", dict(eps_place="outside")), ("layer", dict(steps="all")),
]  # fmt: skip
GATES = [dict(gate_place=p, activation=a) for p in ("after", "before") for a in ("silu", "sigmoid")]
DTYPES = ["float32", "float64", "bfloat16", "float16"]


def from_jax(kind, arrays, gradients, options):
    """Results and gradients (of x, residual, gate, weight, bias); with jit and without it they are the same."""
    norm, add_norm = NORMS[kind][:2]
    given = {name: a for name, a in arrays.items() if a is not None}

    def run(given):
        given = dict(given)
        x, residual = given.pop("x"), given.pop("residual", None)
        return norm(x, eps=EPS, **given, **options) if residual is None else add_norm(x, residual, eps=EPS, **given, **options)

    def run_and_back(given):
        results, back = jax.vjp(run, given)
        return results, back(gradients[0] if arrays["residual"] is None else gradients)[0]

    results, grads = run_and_back(given)
    assert jax.tree.all(jax.tree.map(same, (results, grads), jax.jit(run_and_back)(given)))
    assert jax.tree.all(jax.tree.map(same, results, run(given)))
    results = results if isinstance(results, tuple) else (results, None)
    return *results, *(grads.get(name) for name in ("x", "residual", "gate", "weight", "bias"))


def from_numpy(kind, arrays, gradients, options):
    """The same; the gradient of the residual is not of its own type."""
    forward, backward = NORMS[kind][2:]
    x, residual, gate, weight, bias = (None if a is None else np.asarray(a) for a in arrays.values())
    dy, dsum = map(np.asarray, gradients)
    own = options.get("out_dtype") is not None
    y = forward(x, weight, bias=bias, residual=residual, gate=gate, eps=EPS, **options)
    y, total = y if residual is not None else (y, None)
    options = {name: value for name, value in options.items() if name != "out_dtype"}
    found = backward(dy, x if total is None else total, weight, EPS, bias=False if bias is None else bias, gate=gate,
                     dresidual=None if total is None else dsum, own_dtype=own, **options)  # fmt: skip
    dgate = None if gate is None else found.dgate
    return y, total, found.dx, None if total is None else found.dx, dgate, found.dweight, found.dbias


def check_bits(kind, dtype, options, absent=(), weight_dtype=None, heads=(), shape=(3, 5, 40)):
    weight = weight_dtype or dtype
    arrays = {name: randn(*shape, dtype=dtype) for name in ("x", "residual", "gate")}
    arrays |= {name: randn(*heads, shape[-1], dtype=weight) for name in ("weight", "bias")}
    arrays |= dict.fromkeys(absent)
    gradients = randn(*shape, dtype=options.get("out_dtype", dtype)), randn(*shape, dtype=dtype)
    found, expected = from_jax(kind, arrays, gradients, options), from_numpy(kind, arrays, gradients, options)
    assert list(map(same, found, expected)) == [True] * 7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind, options", FORMS, ids=str)
def test_same_bits_as_numpy(kind, options, dtype):
    check_bits(kind, dtype, options, absent=("residual", "gate"))
    check_bits(kind, dtype, options, absent=("gate", "bias"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("kind", NORMS)
def test_gates_have_the_bits_of_numpy(kind, gate, dtype):
    check_bits(kind, dtype, gate, absent=("residual",))
    check_bits(kind, dtype, dict(gate, rounding="before_weight", weight_offset=1.0))
    check_bits(kind, dtype, dict(gate, groups=2), absent=("weight", "residual"))


@pytest.mark.parametrize("kind", NORMS)
def test_absent_and_wider_parameters(kind):
    for absent in (("weight",), ("weight", "bias"), ("residual", "gate", "weight"), ("residual", "gate", "weight", "bias")):
        check_bits(kind, "bfloat16", {}, absent)
        check_bits(kind, "bfloat16", dict(rounding="before_weight"), absent, weight_dtype="float32")
    check_bits(kind, "float16", {}, weight_dtype="float32", shape=(40,))


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_weight_for_each_head(kind, dtype):
    check_bits(kind, dtype, {}, heads=(5,))
    check_bits(kind, dtype, dict(rounding="before_weight"), ("gate", "weight"), heads=(5,))
    check_bits(kind, dtype, {}, ("gate", "residual", "bias"), heads=(1,), shape=(70, 1, 40))
    check_bits(kind, dtype, {}, ("gate", "residual"), heads=(130,), shape=(2, 130, 40))


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("dtype, out", [("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "bfloat16"), ("float64", "float64")])
def test_result_of_another_type(kind, dtype, out):
    check_bits(kind, dtype, dict(out_dtype=out), absent=("residual", "gate"))
    check_bits(kind, dtype, dict(out_dtype=out), absent=("gate",))
    assert rj.rms_norm(jnp.ones((2, 8), jnp.bfloat16), out_dtype=jnp.float32).dtype == jnp.float32


@pytest.mark.parametrize("gate", GATES, ids=str)
def test_gated_result_of_another_type(gate):
    """In float32 it is what the result in x's type is rounded from, and so are the gradients for the same dy."""
    x, z, dy, w = (randn(*shape, dtype="bfloat16") for shape in ((4, 40), (4, 40), (4, 40), (40,)))
    y, back = jax.vjp(lambda *a: rj.rms_norm(a[0], a[2], gate=a[1], **gate), x, z, w)
    wide, back_wide = jax.vjp(lambda *a: rj.rms_norm(a[0], a[2], gate=a[1], out_dtype="float32", **gate), x, z, w)
    assert wide.dtype == jnp.float32 and same(wide.astype(jnp.bfloat16), y)
    assert all(map(same, back_wide(dy.astype(jnp.float32)), back(dy)))


def test_a_wider_residual():
    """s is in float32; its gradient is what that of x is rounded from."""
    x, dy, w = (randn(*shape, dtype="bfloat16") for shape in ((6, 40), (6, 40), (40,)))
    r, ds = randn(6, 40), randn(6, 40)
    (y, s), back = jax.vjp(lambda *a: rj.add_rms_norm(*a, eps=EPS), x, r, w)
    expected = rmsnorm.rms_norm(np.asarray(x), np.asarray(w), EPS, residual=np.asarray(r))
    assert same(y, expected[0]) and same(s, expected[1])
    dx, dr, dw = back((dy, ds))
    expected = rmsnorm.rms_norm_backward(np.asarray(dy), np.asarray(s), np.asarray(w), EPS, dresidual=np.asarray(ds))
    assert same(dx, expected.dx) and same(dw, expected.dweight)
    assert dr.dtype == jnp.float32 and same(dr.astype(jnp.bfloat16), dx) and not same(dr, dx.astype(jnp.float32))


# ---- gradients of formulas in JAX ----


def rms(x, w, b, eps=EPS, groups=1):
    a = x.reshape(*x.shape[:-1], groups, -1)
    return (a * jax.lax.rsqrt(jnp.mean(a * a, -1, keepdims=True) + eps)).reshape(x.shape) * w + b


def layer(x, w, b, eps=EPS, groups=1):
    a = x.reshape(*x.shape[:-1], groups, -1)
    return rms(a - jnp.mean(a, -1, keepdims=True), 1.0, 0.0, eps).reshape(x.shape) * w + b


FORMULAS = {"rms": rms, "layer": layer}
KINDS = {
    "rms": (lambda x, w, b: rj.rms_norm(x, w, EPS, bias=b), rms),
    "layer": (lambda x, w, b: rj.layer_norm(x, w, b, EPS), layer),
}
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}


def check_gradients(ours, formula, arrays, dtype):
    """Of a loss that weighs every result.

    Both computations, the formula's in float64, take fewer than 4 n + 40 roundings for an element of a row, and rows + 10 for a sum
    over rows; terms that cancel are taken to be at most 16 times the largest gradient of their array.
    """
    arrays = [a.astype(dtype) for a in arrays]
    wide = [a.astype("float64") for a in arrays]
    n, rows = arrays[0].shape[-1], arrays[0].size // arrays[0].shape[-1]
    every = tuple(range(len(arrays)))

    def loss(f):
        return lambda *a: sum(jnp.sin((1 + i) * r.astype("float64")).sum() for i, r in enumerate(jax.tree.leaves(f(*a))))

    found, expected = jax.jit(jax.grad(loss(ours), every))(*arrays), jax.grad(loss(formula), every)(*wide)
    for g, e in zip(found, expected):
        assert g.dtype == dtype and g.shape == e.shape
        np.testing.assert_allclose(g, e, rtol=0, atol=16 * (4 * n + 40 + rows + 10) * UNIT[dtype] * float(jnp.abs(e).max()))


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", NORMS)
def test_gradients(kind, groups, dtype):
    norm, add_norm = NORMS[kind][:2]
    formula = FORMULAS[kind]
    x, r, w, b = randn(3, 5, 8), randn(3, 5, 8), randn(8), randn(8)
    options = dict(eps=EPS, groups=groups)
    check_gradients(lambda x, w, b: norm(x, w, bias=b, **options), lambda *a: formula(*a, EPS, groups), (x, w, b), dtype)
    check_gradients(lambda x: norm(x, **options), lambda x: formula(x, 1.0, 0.0, EPS, groups), (x,), dtype)
    check_gradients(lambda x, r, w, b: add_norm(x, r, w, bias=b, **options),
                    lambda x, r, w, b: (formula(x + r, w, b, EPS, groups), x + r), (x, r, w, b), dtype)  # fmt: skip
    check_gradients(lambda x, r: add_norm(x, r, **options)[1], lambda x, r: x + r, (x, r), dtype)  # the sum alone
    check_gradients(lambda x, r: add_norm(x, r, **options)[0], lambda x, r: formula(x + r, 1.0, 0.0, EPS, groups), (x, r), dtype)


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("kind", NORMS)
def test_gradients_of_gates(kind, gate, dtype):
    norm, add_norm = NORMS[kind][:2]
    formula = FORMULAS[kind]
    activation = {"silu": jax.nn.silu, "sigmoid": jax.nn.sigmoid}[gate["activation"]]

    def gated(x, z, w, b):
        a = activation(z)
        return formula(x, 1 + w, b) * a if gate["gate_place"] == "after" else formula(x * a, 1 + w, b)

    x, r, z, w, b = randn(3, 5, 8), randn(3, 5, 8), 2 * randn(3, 5, 8), randn(8), randn(8)
    options = dict(gate, weight_offset=1.0, eps=EPS)
    check_gradients(lambda x, z, w, b: norm(x, w, bias=b, gate=z, **options), gated, (x, z, w, b), dtype)
    check_gradients(lambda x, r, z, w, b: add_norm(x, r, w, bias=b, gate=z, **options),
                    lambda x, r, z, w, b: (gated(x + r, z, w, b), x + r), (x, r, z, w, b), dtype)  # fmt: skip


# ---- vmap ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [(0, None, None), (1, None, None), (0, 0, None), (None, 0, 0)], ids=str)
def test_vmap(kind, axes):
    ours, formula = KINDS[kind]
    x = randn(4, 4, 3, 8, dtype="float64") if axes[0] is not None else randn(3, 8, dtype="float64")
    w = randn(*(4, 8)[axes[1] is None :], dtype="float64")
    b = randn(*(4, 8)[axes[2] is None :], dtype="float64")
    np.testing.assert_allclose(jax.vmap(ours, axes)(x, w, b), jax.vmap(formula, axes)(x, w, b), rtol=1e-12)
    nested = jax.vmap(jax.vmap(ours, (0, None, None)), axes)(x, w, b)
    np.testing.assert_allclose(nested, jax.vmap(jax.vmap(formula, (0, None, None)), axes)(x, w, b), rtol=1e-12)
    grads = [jax.vmap(jax.grad(lambda *a, f=f: jnp.sin(f(*a)).sum(), (0, 1, 2)), axes)(x, w, b) for f in (ours, formula)]
    for g, e in zip(*grads):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)


def one_by_one(f, axes, arrays):
    """What vmap stands for."""
    each = [f(*(a if axis is None else jnp.take(a, i, axis) for a, axis in zip(arrays, axes))) for i in range(3)]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *each)


@pytest.mark.parametrize("heads", [(), (5,)])
@pytest.mark.parametrize("axes", [(0, 0, 0, 0), (1, None, 0, None), (None, 0, None, None), (None, None, None, 0)], ids=str)
def test_vmap_of_every_operand(axes, heads):
    """Results, gradients and quantised results have the bits of the parts."""
    shapes = [(4, 5, 32), (4, 5, 32), (4, 5, 32), (*heads, 32)]
    arrays = [randn(*s) if a is None else randn(*s[:a], 3, *s[a:]) for s, a in zip(shapes, axes)]

    def both(x, r, z, w):
        results, back = jax.vjp(lambda *a: rj.add_layer_norm(a[0], a[1], a[3], gate=a[2]), x, r, z, w)
        return results, back(results)

    def quantised(x, r, z, w):
        return rj.rms_norm_quantised(x, w, gate=z, residual=r, block=8, return_y=True), rj.layer_norm_quantised(x, w, scale=x[0, 0, 0] ** 2)

    for f in (both, quantised):
        assert jax.tree.all(jax.tree.map(same, jax.vmap(f, axes)(*arrays), one_by_one(f, axes, arrays)))


# ---- adaLN ----

OWN = dict(rounding="before_weight", weight_offset=1.0, gain_rounding="as_weight")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("tokens", [(17,), (10, 15)])
def test_modulate_has_the_bits_of_numpy(kind, dtype, tokens):
    _, _, forward, backward = NORMS[kind]
    x, dy = (randn(3, *tokens, 40, dtype=dtype) for _ in range(2))
    scale, shift = randn(3, 40, dtype=dtype), randn(3, 40, dtype=dtype)
    y, back = jax.vjp(lambda *a: rj.modulate(*a, eps=EPS, kind=kind), x, scale, shift)

    def heads(a):  # NumPy's weights belong to the last leading dimension
        return np.asarray(a).reshape(3, -1, 40).swapaxes(0, 1)

    def samples(a):
        return np.ascontiguousarray(a.swapaxes(0, 1)).reshape(x.shape)

    assert same(y, samples(forward(heads(x), np.asarray(scale), bias=np.asarray(shift), eps=EPS, **OWN)))
    dx, dweight, dbias = backward(heads(dy), heads(x), np.asarray(scale), EPS, bias=np.asarray(shift), **OWN)
    assert all(map(same, back(dy), (samples(dx), dweight, dbias)))
    expanded = [jnp.expand_dims(a, tuple(range(1, 1 + len(tokens)))) for a in (scale, shift)]
    assert same(jax.jit(lambda *a: rj.modulate(*a, eps=EPS, kind=kind))(x, *expanded), y)
    rows = [jnp.broadcast_to(a, x.shape) for a in expanded]  # one for each row
    by_rows, back = jax.vjp(lambda *a: rj.modulate(*a, eps=EPS, kind=kind), x, *rows)
    assert same(by_rows, y) and same(back(dy)[0], samples(dx)) and back(dy)[1].shape == x.shape


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("kind", NORMS)
def test_gradients_of_modulate(kind, dtype):
    formula = FORMULAS[kind]
    x, scale, shift = randn(3, 5, 8), randn(3, 8), randn(3, 8)
    options = dict(eps=EPS, kind=kind)
    check_gradients(lambda *a: rj.modulate(*a, **options), lambda x, s, t: formula(x, 1 + s[:, None], t[:, None]), (x, scale, shift), dtype)
    check_gradients(lambda *a: rj.modulate(*a, **options), lambda x, s: formula(x, 1 + s[:, None], 0.0), (x, scale), dtype)
    rows = randn(3, 5, 8), randn(3, 5, 8)
    check_gradients(lambda *a: rj.modulate(*a, **options), lambda x, s, t: formula(x, 1 + s, t), (x, *rows), dtype)
    stacked = jax.vmap(lambda x: rj.modulate(x, scale, shift, **options))(jnp.stack([x, 2 * x]))
    assert same(stacked[1], rj.modulate(2 * x, scale, shift, **options))


# ---- quantised results ----

QUANTISED = {
    "rms": (rj.rms_norm_quantised, rmsnorm.rms_norm_quantised), "layer": (rj.layer_norm_quantised, rmsnorm.layer_norm_quantised),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("options", [
    {}, dict(dtype="float8_e4m3fn", block=32), dict(dtype="float8_e5m2"), dict(dtype="q8_0"), dict(scale=0.0123), dict(scale_least=0.5),
    dict(dtype="float8_e4m3fn", scale=0.5), dict(groups=2, eps_place="clamp"), dict(rounding="before_weight", weight_offset=1.0, block=16),
    dict(out_dtype="float32"), dict(gain_rounding="as_weight", weight_offset=1.0, dtype="q8_0"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_bits_of_numpy(kind, options, dtype):
    ours, theirs = QUANTISED[kind]
    x, r, z = (randn(2, 5, 96, dtype=dtype) for _ in range(3))
    w, b = randn(96, dtype=dtype), randn(96, dtype=dtype)
    gate = dict(gate_place="before", activation="sigmoid")
    for arrays, more in (({}, {}), (dict(residual=r), dict(return_y=True)), (dict(gate=z, bias=b), gate)):
        run = functools.partial(ours, weight=w, **more, **options)
        expected = theirs(np.asarray(x), np.asarray(w), **{name: np.asarray(a) for name, a in arrays.items()}, **more, **options)
        for found in (run(x, **arrays), jax.jit(run)(x, **arrays)):
            assert isinstance(found, rj.Quantised) and list(map(same, found, expected)) == [True] * 4


def test_quantised_forms():
    x, w = randn(4, 64, dtype="bfloat16"), randn(4, 64, dtype="bfloat16")
    heads = rj.rms_norm_quantised(x, w, dtype="q8_0")
    assert same(heads.q, rmsnorm.rms_norm_quantised(np.asarray(x), np.asarray(w), dtype="q8_0").q)
    chosen = rj.rms_norm_quantised(x, indices=[1, 9], scale=jnp.float32(0.25))
    assert same(chosen.q, rmsnorm.rms_norm_quantised(np.asarray(x), indices=[1, 9], scale=0.25).q) and chosen.scale == 0.25
    for steps in ("rstd", "all"):
        found = rj.rms_norm_quantised(x, w[0], steps=steps, return_y=True)
        y = rj.rms_norm(x, w[0], steps=steps).astype(jnp.float32)
        assert same(found.y.astype(jnp.float32), y)
        assert same(found.scale, jnp.abs(y).max(-1, keepdims=True) / np.float32(127))
        # y over its scale, rounded to nearest: half a step, and 2 roundings of numbers up to 127.
        assert jnp.abs(found.q - y / found.scale).max() <= 0.5 + 127 * 2 * 2.0**-24
    with pytest.raises(ValueError, match="differentiated"):
        jax.grad(lambda x: rj.rms_norm_quantised(x).scale.sum())(x)


# ---- no rows, and what is refused ----


def test_no_rows():
    x, w = jnp.zeros((0, 5, 32)), jnp.ones(32)
    assert rj.rms_norm(x).shape == (0, 5, 32)
    for function in (rj.rms_norm, rj.layer_norm):
        assert jax.grad(lambda w: function(x, w, gate=x).sum())(w).tolist() == [0.0] * 32
        heads = jax.grad(lambda w, b: function(x, w, bias=b).sum(), (0, 1))(jnp.ones((5, 32)), jnp.ones((5, 32)))
        assert [h.shape for h in heads] == [(5, 32)] * 2 and not any(h.any() for h in heads)
        assert jax.grad(lambda w: function(x[:, :0], w).sum())(jnp.ones((0, 32))).shape == (0, 32)
    assert jax.vmap(rj.rms_norm)(x).shape == (0, 5, 32)
    assert [a.shape for a in rj.add_rms_norm(x, x)] == [(0, 5, 32)] * 2
    found = rj.rms_norm_quantised(x.astype("float32"), dtype="float8_e5m2", block=8)
    assert found.q.shape == (0, 5, 32) and found.scale.shape == (0, 5, 4)
    assert rj.rms_norm_quantised(x.astype("float32"), dtype="q8_0").q.shape == (0, 5, 1, 34)
    assert rj.modulate(x, jnp.ones((0, 32))).shape == (0, 5, 32)
    dscale = jax.grad(lambda s: rj.modulate(jnp.zeros((3, 0, 32)), s, s).sum())(jnp.ones((3, 32)))
    assert dscale.shape == (3, 32) and not dscale.any()


X, W = jnp.ones((2, 8), "float32"), jnp.ones(8, "float32")


@pytest.mark.parametrize("call, error, message", [
    (lambda x, w: rj.rms_norm(x.astype(int)), TypeError, "x has dtype int64; float32"),
    (lambda x, w: rj.rms_norm(x, w.astype(int)), TypeError, "weight has dtype int64"),
    (lambda x, w: rj.rms_norm(x[0, 0]), ValueError, "x needs a last dimension"),
    (lambda x, w: rj.rms_norm(x[:, :0]), ValueError, "x needs a last dimension"),
    (lambda x, w: rj.rms_norm(x, w[:3]), ValueError, "weight must have the shape"),
    (lambda x, w: rj.rms_norm(x[0], x), ValueError, "weight must have the shape"),
    (lambda x, w: rj.rms_norm(x, x, bias=w), ValueError, "weight and bias must have the same shape"),
    (lambda x, w: rj.rms_norm(x, w.astype("float64")), TypeError, "weight has dtype float64; float32 is wanted"),
    (lambda x, w: rj.rms_norm(x, w, bias=w.astype("float64")), TypeError, "bias has dtype float64"),
    (lambda x, w: rj.rms_norm(x.astype("float16"), w, bias=w.astype("float16")), TypeError, "they must be the same"),
    (lambda x, w: rj.rms_norm(x, eps=-1.0), ValueError, "eps"),
    (lambda x, w: rj.rms_norm(x, eps=float("nan")), ValueError, "eps"),
    (lambda x, w: rj.rms_norm(x, eps=w[0]), TypeError, "eps must be a number"),
    (lambda x, w: rj.rms_norm(x, weight_offset="1"), TypeError, "weight_offset must be a number"),
    (lambda x, w: rj.rms_norm(x, rounding="no"), ValueError, "rounding is 'no'"),
    (lambda x, w: rj.rms_norm(x, groups=3), ValueError, "groups"),
    (lambda x, w: rj.rms_norm(x, groups=1.5), TypeError, "groups must be an int"),
    (lambda x, w: rj.rms_norm(x, partial=9), ValueError, "partial"),
    (lambda x, w: rj.rms_norm(x, partial=1, indices=[1]), ValueError, "exclude each other"),
    (lambda x, w: rj.rms_norm(x, indices=[3, 1]), ValueError, "indices"),
    (lambda x, w: rj.rms_norm(x, indices=[8]), ValueError, "indices"),
    (lambda x, w: rj.rms_norm(x, indices=[]), ValueError, "indices is empty"),
    (lambda x, w: rj.rms_norm(x, gate=w), ValueError, "gate has the shape"),
    (lambda x, w: rj.rms_norm(x, gate=x.astype("float16")), TypeError, "gate has dtype float16"),
    (lambda x, w: rj.rms_norm(x, gate_place="before"), ValueError, "there is no gate"),
    (lambda x, w: rj.rms_norm(x, gate=x, activation="relu"), ValueError, "activation is 'relu'"),
    (lambda x, w: rj.rms_norm(x, gate=x, steps="all"), ValueError, "not supported"),
    (lambda x, w: rj.layer_norm(x, steps="terms"), ValueError, "not supported"),
    (lambda x, w: rj.rms_norm(x, steps="some"), ValueError, "steps is 'some'"),
    (lambda x, w: rj.rms_norm(x, out_dtype="float64"), ValueError, "out_dtype is float64"),
    (lambda x, w: rj.add_rms_norm(x, None), TypeError, "residual must be an array"),
    (lambda x, w: rj.add_rms_norm(x, w), ValueError, "residual has the shape"),
    (lambda x, w: rj.add_layer_norm(x, x.astype("float16")), TypeError, "residual has dtype float16"),
    (lambda x, w: rj.add_layer_norm(x.astype("float16"), x, out_dtype="float32"), TypeError, "out_dtype needs a residual"),
    (lambda x, w: rj.modulate(x, x[:, :3]), ValueError, "scale has the shape"),
    (lambda x, w: rj.modulate(x[None], x[:1], x), ValueError, "shift has the shape"),
    (lambda x, w: rj.modulate(x[None], x[:1], x[None]), ValueError, "both"),
    (lambda x, w: rj.modulate(x, x, kind="group"), ValueError, "kind is 'group'"),
    (lambda x, w: rj.modulate(x[:, :0], x[:, :0]), ValueError, "x needs a last dimension"),
    (lambda x, w: rj.modulate(w, w), ValueError, "dimension of samples"),
    (lambda x, w: rj.rms_norm_quantised(x, dtype="int4"), ValueError, "dtype is 'int4'"),
    (lambda x, w: rj.rms_norm_quantised(x, dtype="q8_0"), ValueError, "multiple of 32"),
    (lambda x, w: rj.rms_norm_quantised(x, block=3), ValueError, "block is 3"),
    (lambda x, w: rj.rms_norm_quantised(x, scale=w), ValueError, "one number of float32"),
    (lambda x, w: rj.rms_norm_quantised(x, scale_least=-1.0), ValueError, "scale_least"),
    (lambda x, w: rj.rms_norm_quantised(x.astype("float64")), TypeError, "combination of types"),
    (lambda x, w: rj.rms_norm_quantised(x, gate=x, steps="all"), ValueError, "not supported"),
])  # fmt: skip
def test_errors(call, error, message):
    """They come while a call is traced, and so also from jit."""
    for function in (call, jax.jit(call)):
        with pytest.raises(error, match=message):
            function(X, W)
