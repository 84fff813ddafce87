# SPDX-License-Identifier: MIT
"""What the processes of a group do in the tests of spread rows: ``python rank_cases.py RANK SIZE STORE CASE...``.

The reference is the same function on the whole row in one process.
"""
import copy
import datetime
import itertools
import pickle
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode

import rmsnorm.nn
import rmsnorm.torch as rt
from rmsnorm import sharded

COLS = 24


def splits(size):
    """Where the columns are cut: evenly, unevenly, with empty shards at the start, inside and at the end."""
    yield [COLS * i // size for i in range(size + 1)]
    yield [0, *(5 + i for i in range(size - 1)), COLS]
    yield [0, *(0 for _ in range(size - 1)), COLS]
    yield [0, *(COLS for _ in range(size - 1)), COLS]
    if size > 2:
        yield [0, 7, 7, *(8 + i for i in range(size - 3)), COLS]


def own(t, cuts):
    """This process's columns of the last dimension."""
    rank = dist.get_rank()
    return None if t is None else t.detach()[..., cuts[rank] : cuts[rank + 1]].clone()


def gradients(function, tensors, dy):
    tensors = [None if t is None else t.detach().requires_grad_() for t in tensors]
    y = function(*tensors)
    return y, *torch.autograd.grad(y, [t for t in tensors if t is not None], dy)


def close(got, expected, cuts=None):
    assert len(got) == len(expected)
    for g, e in zip(got, expected):
        e = e if cuts is None else own(e, cuts)
        assert g.dtype == e.dtype and g.shape == e.shape, (g.dtype, e.dtype, g.shape, e.shape)
        torch.testing.assert_close(g, e)


def both(layer, **options):
    """The function on whole rows, and on spread ones."""
    if layer:
        return lambda x, w, b: rt.layer_norm(x, w, b, **options), lambda x, w, b: sharded.layer_norm(x, w, b, **options)
    return lambda x, w, b: rt.rms_norm(x, w, bias=b, **options), lambda x, w, b: sharded.rms_norm(x, w, bias=b, **options)


def values(rank, size):
    option_sets = [{}, dict(eps=0.1, eps_place="outside"), dict(weight_offset=1.0), dict(rounding="before_weight")]
    types = [(torch.float32, torch.float32), (torch.float64, torch.float64), (torch.bfloat16, torch.bfloat16),
             (torch.bfloat16, torch.float32), (torch.float16, torch.float16)]  # fmt: skip
    for cuts, (dtype, wide), layer, options in itertools.product(splits(size), types, (False, True), option_sets):
        x, dy = (torch.randn(4, 3, COLS).to(dtype) for _ in range(2))
        w, b = (torch.randn(COLS).to(wide) for _ in range(2))
        whole, spread = both(layer, **options)
        for tensors in ((x, w, b), (x, w, None), (x, None, b), (x, None, None)):
            expected = gradients(whole, tensors, dy)
            local = [own(t, cuts) for t in tensors]
            got = gradients(spread, local, own(dy, cuts))
            close(got, expected, cuts)
            with torch.no_grad():
                assert torch.equal(spread(*local), got[0])
    for shape in ((0, COLS), (COLS,), (2, 0, COLS)):
        x = torch.randn(shape)
        for layer in (False, True):
            whole, spread = both(layer)
            close([spread(own(x, cuts), None, None)], [whole(x, None, None)], cuts)


def one_shard_has_the_bits_of_the_whole_call(rank, size):
    alone = [dist.new_group([r]) for r in range(size)][rank]
    for dtype, layer in itertools.product((torch.float32, torch.float64, torch.bfloat16, torch.float16), (False, True)):
        x, dy, w, b = (torch.randn(shape).to(dtype) for shape in ((5, 3, 100), (5, 3, 100), (100,), (100,)))
        whole, spread = both(layer)
        got = gradients(lambda *t: both(layer, process_group=alone)[1](*t), (x, w, b), dy)
        assert all(torch.equal(g, e) for g, e in zip(got, gradients(whole, (x, w, b), dy)))


def strides(rank, size):
    """Processes may have their rows in memory in different orders."""
    cuts = next(splits(size))
    x, dy, w = torch.randn(4, 3, 5, COLS), torch.randn(4, 3, 5, COLS), torch.randn(COLS)
    for layer in (False, True):
        whole, spread = both(layer)
        expected = gradients(whole, (x, w, None), dy)
        for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
            order = (*order, 3) if rank % 2 else (0, 1, 2, 3)
            back = [order.index(d) for d in range(4)]
            local = own(x, cuts).permute(order).contiguous().permute(back)
            got = gradients(spread, (local, own(w, cuts), None), own(dy, cuts))
            assert got[0].stride() == torch.empty_like(local).stride() == got[1].stride()
            close(got, expected, cuts)


def second_derivatives(rank, size):
    for cuts, layer, outside in itertools.product(splits(size), (False, True), (False, True)):
        options = dict(eps=0.1, eps_place="outside" if outside else "inside")
        x, dy, v = (torch.randn(4, COLS, dtype=torch.float64) for _ in range(3))
        w = torch.randn(COLS, dtype=torch.float64)

        def twice(function, x, w, dy, v):
            x, w, dy = (t.detach().requires_grad_() for t in (x, w, dy))
            dx, dw = torch.autograd.grad(function(x, w, None), (x, w), dy, create_graph=True)
            return dx, dw, *torch.autograd.grad((dx, dw), (x, w, dy), (v, 2 * w.detach()))

        whole, spread = both(layer, **options)
        close(twice(spread, *(own(t, cuts) for t in (x, w, dy, v))), twice(whole, x, w, dy, v), cuts)


def partial(rank, size):
    for cuts, k in itertools.product(splits(size), (1, 5, 6, COLS)):
        x, dy, w = torch.randn(4, COLS), torch.randn(4, COLS), torch.randn(COLS)
        expected = gradients(lambda x, w: rt.rms_norm(x, w, partial=k), (x, w), dy)
        mine = max(0, min(k, cuts[rank + 1]) - cuts[rank])
        got = gradients(lambda x, w: sharded.rms_norm(x, w, partial=mine), (own(x, cuts), own(w, cuts)), own(dy, cuts))
        close(got, expected, cuts)
    for bad in (-1, True, 0.5, COLS + 1):
        try:
            sharded.rms_norm(own(x, cuts), partial=bad)
        except ValueError as error:
            assert "partial" in str(error)
        else:
            raise AssertionError(bad)


def collectives(rank, size):
    """One in each direction, whatever the gradients; LayerNorm's forward gathers."""
    x = torch.randn(4, 8, requires_grad=True)
    for module, forward in ((rmsnorm.nn.ShardedRMSNorm(8), "all_reduce"), (rmsnorm.nn.ShardedLayerNorm(8), "all_gather_into_tensor")):
        with CommDebugMode() as there:
            y = module(x)
        with CommDebugMode() as back:
            y.sum().backward()
        for mode, name in ((there, forward), (back, "all_reduce")):
            assert [(op.__name__, n) for op, n in mode.get_comm_counts().items()] == [(name, 1)], mode.get_comm_counts()
    with CommDebugMode() as none:
        module = rmsnorm.nn.LocalRMSNorm(8, p=0.25)
        module(x).sum().backward()
        rmsnorm.nn.LocalRMSNorm(8, p=1.0)(x).sum().backward()
    assert none.get_total_counts() == 0, none.get_comm_counts()


def modules(rank, size):
    groups = [dist.new_group(list(range(start, start + 2))) for start in range(0, size, 2)]
    pair = groups[rank // 2]
    x, w = torch.randn(3, 2 * 16), torch.randn(2 * 16)
    half = slice(16 * (rank % 2), 16 * (rank % 2) + 16)
    for module, whole in ((rmsnorm.nn.ShardedRMSNorm(16, process_group=pair), rmsnorm.nn.RMSNorm(32)),
                          (rmsnorm.nn.ShardedRMSNorm((4, 4), eps=0.1, process_group=pair), rmsnorm.nn.RMSNorm(32, eps=0.1)),
                          (rmsnorm.nn.ShardedLayerNorm(16, process_group=pair), rmsnorm.nn.LayerNorm(32)),
                          (rmsnorm.nn.ShardedLayerNorm(16, bias=False, process_group=pair), rmsnorm.nn.LayerNorm(32, bias=False))):  # fmt: skip
        with torch.no_grad():
            whole.weight.copy_(w)
            module.weight.copy_(w[half].reshape(module.weight.shape))
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            data = (x * 1e-3).to(dtype)
            expected = whole(data)[..., half]
            mine = data[..., half].reshape(3, *module.normalized_shape)
            for twin in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
                close([twin(mine).reshape(expected.shape)], [expected])
        assert pair.group_name in repr(module)
        assert list(module.state_dict()) == list(whole.state_dict())
        try:
            module(torch.randn(3, 5))
        except RuntimeError as error:
            assert "expected" in str(error)
        else:
            raise AssertionError("a wrong shape was taken")
    others = [dist.new_group([r]) for r in range(size)][rank - 1]
    for wrong in (others, "world", 3):
        try:
            rmsnorm.nn.ShardedRMSNorm(16, process_group=wrong)
        except TypeError as error:
            assert "process_group" in str(error)
        else:
            raise AssertionError(wrong)
    assert "process_group=default" in repr(rmsnorm.nn.ShardedRMSNorm(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        data = torch.randn(2, 32).bfloat16()
        module, whole = rmsnorm.nn.ShardedLayerNorm(16, process_group=pair), rmsnorm.nn.LayerNorm(32)
        close([module(data[..., half])], [whole(data)[..., half]])


def local(rank, size):
    """The same bits as groups in one process, forward and backward."""
    width = 16
    mine = slice(width * rank, width * (rank + 1))
    for p, dtype in itertools.product((0.0625, 0.25, 1.0), (torch.float32, torch.bfloat16)):
        x, dy, w = (torch.randn(shape).to(dtype) for shape in ((5, width * size), (5, width * size), (width * size,)))
        expected = gradients(lambda x, w: rt.rms_norm(x, w, 1e-6, groups=size, partial=p), (x, w), dy)
        module = rmsnorm.nn.LocalRMSNorm(width, p=p, eps=1e-6, dtype=dtype)
        module.weight = torch.nn.Parameter(w[mine])
        part = x[:, mine].clone().requires_grad_()
        y = module(part)
        got = (y, *torch.autograd.grad(y, (part, module.weight), dy[:, mine]))
        assert all(torch.equal(g, e[..., mine]) for g, e in zip(got, expected))


def olmo2(rank, size):
    """The q norm over all heads behind a projection whose rows are spread, as OLMo2 has it, in a step of training."""
    heads, width, hidden = 4, 6, 32
    x, proj, w = torch.randn(2, 5, hidden), torch.randn(heads * width, hidden), torch.randn(heads * width)
    cuts = [heads * width * i // size for i in range(size + 1)]
    mine = slice(cuts[rank], cuts[rank + 1])

    def loss(norm, x, proj):
        return norm(x @ proj.T).unflatten(-1, (-1, width)).sin().sum()

    whole = [t.clone().requires_grad_() for t in (x, proj, w)]
    expected = torch.autograd.grad(loss(lambda q: rt.rms_norm(q, whole[2], 1e-6), *whole[:2]), whole)
    module = rmsnorm.nn.ShardedRMSNorm(heads * width // size, eps=1e-6)
    module.weight = torch.nn.Parameter(w[mine])
    part = [x.clone().requires_grad_(), proj[mine].clone().requires_grad_()]
    dx, dproj, dw = torch.autograd.grad(loss(module, *part), (*part, module.weight))
    dist.all_reduce(dx)
    torch.testing.assert_close(dx, expected[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dproj, expected[1][mine], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dw, expected[2][mine])


def compiled(rank, size):
    cuts = list(splits(size))[-1]
    everyone = dist.new_group(list(range(size)))
    by_name = torch.compile(lambda x: sharded.rms_norm(x, process_group=everyone), fullgraph=True, backend="aot_eager")
    assert torch.equal(by_name(torch.ones(2, 3)), sharded.rms_norm(torch.ones(2, 3)))
    for layer, module in ((False, rmsnorm.nn.ShardedRMSNorm), (True, rmsnorm.nn.ShardedLayerNorm)):
        module = module(cuts[rank + 1] - cuts[rank], eps=1e-5)
        function = torch.compile(module, fullgraph=True, dynamic=True)
        for rows in (3, 6):
            x = torch.randn(rows, 2, COLS)
            mine = own(x, cuts).requires_grad_()
            y, eager = function(mine), module(mine)
            assert torch.equal(y, eager)
            (dx,), (expected,) = (torch.autograd.grad(t.square().sum(), mine) for t in (y, eager))
            torch.testing.assert_close(dx, expected)
            with torch.no_grad():
                assert torch.equal(function(mine), y)


def one_raises(rank, size):
    """Rank 1 passes a bad argument and ends; the others must get an error instead of waiting."""
    sharded.rms_norm(torch.ones(4, 8))
    if rank == 1:
        sharded.rms_norm(torch.ones(4, 8, dtype=torch.int32))
    sharded.rms_norm(torch.ones(4, 8))


def case_of(name):
    if not name.startswith("dtensor_"):
        return globals()[name]
    import dtensor_cases  # it registers the rules, which the other cases do without

    return getattr(dtensor_cases, name.removeprefix("dtensor_"))


def main():
    rank, size, store, cases = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=300)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=limit)
    for case in cases:
        print(case, flush=True)
        torch.manual_seed(1)
        case_of(case)(rank, size)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
