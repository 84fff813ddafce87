# SPDX-License-Identifier: MIT
"""The operators in two halves: with one shard they are the whole operators, with several they are added or merged."""
import itertools

import pytest
import torch

import rmsnorm.torch  # noqa: F401, defines the operators
from rmsnorm import _core

ops = torch.ops.rmsnorm
LAYER, EPS_OUTSIDE, BEFORE_WEIGHT = 1, 2, 4
ALL = 7  # dx, dweight and dbias


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def halves(x, w, b, dy, options):
    """y, dx, dweight, dbias by way of the halves."""
    stats = ops._split_stats(x, *options)
    sums = ops._split_backward_stats(dy, x, stats, w, *options)
    return ops._split_apply(x, stats, w, b, *options), *ops._split_backward_apply(dy, x, stats, sums, w, ALL, *options)


def whole(x, w, b, dy, options):
    y, stats = ops._norm_stats(x, w, b, *options)
    return y, *ops._norm_backward(dy, x, w, stats, ALL, *options)


@pytest.mark.parametrize("mode", range(8))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_one_shard_has_the_bits_of_the_whole(dtype, mode):
    members = (None, torch.tensor([1, 4, 5])) if not mode & LAYER else (None,)
    for groups, indices, partial, heads in itertools.product((1, 3), members, (0,) if mode & LAYER else (0, 4), (False, True)):
        if indices is not None and partial:
            continue
        options = (1e-3, 1.0, partial, groups, mode, indices)
        shape = (3, 18) if heads else (18,)
        x, dy = (torch.randn(5, 3, 18).to(dtype) for _ in range(2))
        w, b = (torch.randn(shape).to(dtype) for _ in range(2))
        for view in (x, x.transpose(0, 1).contiguous().transpose(0, 1), torch.randn(5, 3, 30).to(dtype)[..., 6:24]):
            got, expected = halves(view, w, b, dy, options), whole(view, w, b, dy, options)
            assert all(torch.equal(g, e) and g.stride() == e.stride() for g, e in zip(got, expected))


def test_numbers_are_dense_whatever_the_strides():
    x = torch.randn(3, 4, 8).permute(1, 0, 2)
    stats = ops._split_stats(x, 1e-5, 0.0, 0, 2, LAYER)
    assert stats.shape == (4, 3, 6) and stats.is_contiguous() and stats.dtype == torch.float64
    assert torch.equal(stats, ops._split_stats(x.contiguous(), 1e-5, 0.0, 0, 2, LAYER))
    count, mean, m2 = stats.unflatten(-1, (2, 3)).unbind(-1)
    parts = x.double().unflatten(-1, (2, 4))
    assert torch.equal(count, torch.full_like(count, 4.0))
    torch.testing.assert_close(mean, parts.mean(-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(m2, parts.var(-1, correction=0) * 4, rtol=1e-5, atol=1e-6)


def test_shards_are_added_and_merged():
    x = torch.randn(7, 20)
    shards = x.split([5, 0, 15], -1)
    added = sum(ops._split_stats(s, 1e-5) for s in shards)
    torch.testing.assert_close(added, ops._split_stats(x, 1e-5), rtol=1e-6, atol=0)
    parts = [ops._split_stats(s, 1e-5, 0.0, 0, 1, LAYER) for s in shards]
    merged = ops._split_merge(ops._split_merge(parts[0], parts[1]), parts[2])
    torch.testing.assert_close(merged, ops._split_stats(x, 1e-5, 0.0, 0, 1, LAYER), rtol=1e-6, atol=1e-6)
    assert torch.equal(ops._split_merge(parts[1], parts[2]), parts[2])  # an empty shard changes nothing
    wide = torch.zeros(7, 6, dtype=torch.float64)[:, ::2].copy_(parts[2])
    assert torch.equal(ops._split_merge(wide, parts[0]), ops._split_merge(parts[2], parts[0]))


def test_a_shard_without_columns():
    x, w = torch.randn(2, 3, 0), torch.ones(0)
    stats = ops._split_stats(x, 1e-5)
    sums = ops._split_backward_stats(x, x, stats, w, 1e-5)
    assert torch.equal(stats, torch.zeros(2, 3, 3, dtype=torch.float64)) and torch.equal(sums, torch.zeros(2, 3, 2, dtype=torch.float64))
    assert ops._split_apply(x, stats, w, w, 1e-5).shape == x.shape
    dx, dweight, dbias = ops._split_backward_apply(x, x, stats, sums, w, ALL, 1e-5)
    assert dx.shape == x.shape and dweight.shape == dbias.shape == (0,)


def test_elements_that_do_not_count():
    """-1: a shard of which no element enters the statistic."""
    stats = ops._split_stats(torch.randn(4, 6), 1e-5, 0.0, -1)
    assert torch.equal(stats, torch.zeros(4, 3, dtype=torch.float64))


def test_opcheck():
    for dtype, mode in itertools.product((torch.float32, torch.bfloat16), (0, LAYER)):
        options = (1e-5, 0.0, 0, 2, mode, None)
        for x in (torch.randn(4, 3, 8).to(dtype), torch.randn(3, 4, 8).to(dtype).transpose(0, 1), torch.randn(4, 3, 0).to(dtype)):
            if x.shape[-1] == 0:
                options = (1e-5, 0.0, 0, 1, mode, None)
            w = torch.randn(x.shape[-1]).to(dtype)
            stats = ops._split_stats(x, *options)
            sums = ops._split_backward_stats(x, x, stats, w, *options)
            torch.library.opcheck(ops._split_stats.default, (x, *options))
            torch.library.opcheck(ops._split_apply.default, (x, stats, w, w, *options))
            torch.library.opcheck(ops._split_backward_stats.default, (x, x, stats, w, *options))
            torch.library.opcheck(ops._split_backward_apply.default, (x, x, stats, sums, w, ALL, *options))
            torch.library.opcheck(ops._split_backward_apply.default, (x, x, stats, sums, None, 1, *options))
    stats = ops._split_stats(x, *options)
    torch.library.opcheck(ops._split_merge.default, (stats, stats))


def test_errors():
    x, w = torch.randn(4, 8), torch.ones(8)
    stats = ops._split_stats(x, 1e-5)
    sums = ops._split_backward_stats(x, x, stats, w, 1e-5)
    bad = [
        lambda: ops._split_stats(x.int(), 1e-5),
        lambda: ops._split_stats(torch.tensor(1.0), 1e-5),
        lambda: ops._split_stats(x, -1.0),
        lambda: ops._split_apply(x, stats[:3], w, None, 1e-5),
        lambda: ops._split_apply(x, stats.float(), w, None, 1e-5),
        lambda: ops._split_apply(x, stats[:, :2], w, None, 1e-5),
        lambda: ops._split_apply(x, stats, w[:5], None, 1e-5),
        lambda: ops._split_backward_stats(x[:, :4], x, stats, w, 1e-5),
        lambda: ops._split_backward_apply(x, x, stats, stats, w, ALL, 1e-5),
        lambda: ops._split_backward_apply(x, x, sums, sums, w, ALL, 1e-5),
        lambda: ops._split_merge(stats, stats[:2]),
        lambda: ops._split_merge(stats.float(), stats),
    ]
    for call in bad:
        with pytest.raises(RuntimeError, match="rmsnorm"):
            call()


def test_errors_of_the_core():
    """What the kernels in Python call, from Python directly."""
    with pytest.raises(TypeError, match="arguments"):
        _core.split_forward(None)
    with pytest.raises(TypeError, match="arguments"):
        _core.split_backward(None)
    x = (torch.ones(2, 4).data_ptr(), 1, (2, 4), (4, 1))
    with pytest.raises(TypeError, match="stats must be an array"):
        _core.split_forward(x, None, None, None, None, 1e-5, 0.0, 0, 1, 0, None, 1)
    numbers = torch.zeros(2, 6, dtype=torch.float64)
    strided = (numbers.data_ptr(), 2, (2, 3), (6, 2))
    with pytest.raises(ValueError, match="dense"):
        _core.split_merge(strided, strided)
