"""Kernels of the recurrent family for test_gradients.py, in what torch, jax and mlx have in common: right ones in several
conventions, and ones whose gradients are wrong, missing or refused."""
import samestate


def rule(ops, q, k, v, g, beta, initial_state, scale, linear=False):
    """(o, final state) of the gated delta rule; q, k [B, T, Hk, dk], v [B, T, Hv, dv], state [B, Hv, dk, dv]."""
    group = v.shape[2] // q.shape[2]
    key = [h // group for h in range(v.shape[2])]
    q, k = (ops.stack([x[:, :, h] for h in key], 2) for x in (q, k))
    S = initial_state if initial_state is not None else 0.0 * k[:, :1, :, :, None].sum(1) * v[:, :1, :, None, :].sum(1)
    rows = []
    for t in range(v.shape[1]):
        S = (g[:, t] if linear else ops.exp(g[:, t]))[:, :, None, None] * S
        u = beta[:, t][:, :, None] * (v[:, t] - (S * k[:, t][:, :, :, None]).sum(2))
        S = S + k[:, t][:, :, :, None] * u[:, :, None, :]
        rows.append(scale * (S * q[:, t][:, :, :, None]).sum(2))
    o = ops.stack(rows, 1) if rows else 0.0 * v
    return o, S


@samestate.kernel("gated_delta_rule", "recurrent", array="torch", limits=["T <= 80"])
def torch_rule(q, k, v, g, beta, initial_state, scale):
    import torch

    return rule(torch, q, k, v, g, beta, initial_state, scale)


@samestate.kernel("gated_delta_rule", "recurrent", array="torch", limits=["T <= 80"], state="vk", layout="BHTD", decay="linear",
                  scale="dk")
def torch_turned(q, k, v, alpha, beta, initial_state):
    import torch

    q, k, v, alpha, beta = (x.swapaxes(1, 2) for x in (q, k, v, alpha, beta))
    state = None if initial_state is None else initial_state.swapaxes(2, 3)
    o, S = rule(torch, q, k, v, alpha, beta, state, q.shape[3] ** -0.5, linear=True)
    return o.swapaxes(1, 2), S.swapaxes(2, 3)


@samestate.kernel("gated_delta_rule", "recurrent", array="jax", limits=["T <= 80"])
def jax_rule(q, k, v, g, beta, initial_state, scale):
    import jax.numpy

    return rule(jax.numpy, q, k, v, g, beta, initial_state, scale)


# Its exponential is within a few units of fp32 of the exact one.
@samestate.kernel("gated_delta_rule", "recurrent", contracts=["fp32+exponential:ex2"], array="mlx", limits=["T <= 80"])
def mlx_rule(q, k, v, g, beta, initial_state, scale):
    import mlx.core

    return rule(mlx.core, q, k, v, g, beta, initial_state, scale)


def _faulty(name, change):
    """A right kernel whose backward pass goes through `change`, {input: gradient} -> {input: gradient}."""

    @samestate.kernel("gated_delta_rule", "recurrent", array="torch", limits=["T <= 80", "state = random"], name=name)
    def kernel(q, k, v, g, beta, initial_state, scale):
        import torch

        class Rule(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *x):
                ctx.save_for_backward(*x)
                return rule(torch, *x, scale)

            @staticmethod
            def backward(ctx, d_o, d_state):
                with torch.enable_grad():
                    x = [y.detach().requires_grad_() for y in ctx.saved_tensors]
                    o, S = rule(torch, *x, scale)
                    grads = torch.autograd.grad([o, S], x, change(None, d_o, d_state) or [d_o, d_state], allow_unused=True)
                return tuple(change(dict(zip(("q", "k", "v", "g", "beta", "initial_state"), grads)), d_o, d_state).values())

        return Rule.apply(q, k, v, g, beta, initial_state)

    return kernel


def _with(**changes):
    def change(grads, d_o, d_state):
        if grads is None:
            return None
        return {name: changes[name](grad) if name in changes else grad for name, grad in grads.items()}

    return change


def _no_state(grads, d_o, d_state):
    return [d_o, 0.0 * d_state] if grads is None else grads


half_beta = _faulty("half_beta.gated_delta_rule", _with(beta=lambda d: 0.5 * d))
shifted_gate = _faulty("shifted_gate.gated_delta_rule", _with(g=lambda d: d.roll(1, 1)))
state_ignored = _faulty("state_ignored.gated_delta_rule", _no_state)
no_gradient_of_k = _faulty("no_gradient_of_k.gated_delta_rule", _with(k=lambda d: None))


@samestate.kernel("gated_delta_rule", "recurrent", array="torch", limits=["T <= 80"])
def detached(q, k, v, g, beta, initial_state, scale):
    import torch

    o, S = rule(torch, q, k, v, g, beta, initial_state, scale)
    return o.detach(), S.detach()


@samestate.kernel("gated_delta_rule", "recurrent", array="torch", limits=["T <= 80", "state = random"])
def without_backward(q, k, v, g, beta, initial_state, scale):
    import torch

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *x):
            return rule(torch, *x, scale)

        @staticmethod
        def backward(ctx, *grads):
            raise NotImplementedError("the backward pass is not written yet")

    return Rule.apply(q, k, v, g, beta, initial_state)


# -- operators whose tensors have names

@samestate.kernel("gated_rms_norm", "fused", array="torch", limits=["T <= 80"])
def torch_gated_norm(x, z, weight):
    import torch

    return weight * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * torch.nn.functional.silu(z)


@samestate.kernel("residual_rms_norm", "fused", array="torch", limits=["T <= 80"])
def torch_residual_norm(x, residual, weight):
    import torch

    total = x + residual
    return (1.0 + weight) * total * torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-6), total


def convolved(ops, silu, x, kernel, state, bias, activation):
    """(y, state after it) of x [B, T, C] with kernel [C, W], the state [B, W - 1, C], and a bias [C], or 0 for none."""
    rows, width = ops.concatenate([state, x], 1), kernel.shape[1]
    y = sum(rows[:, w:w + x.shape[1]] * kernel[:, w] for w in range(width)) + (bias if hasattr(bias, "shape") else 0.0)
    return (silu(y) if activation else y), rows[:, x.shape[1]:]


@samestate.kernel("short_convolution", "gather", array="torch", limits=["T <= 80"])
def torch_convolution(x, kernel, state, bias, activation):
    import torch

    return convolved(torch, torch.nn.functional.silu, x, kernel, state, bias, activation)


@samestate.kernel("short_convolution", "gather", array="jax", limits=["T <= 80"])
def jax_convolution(x, kernel, state, bias, activation):
    import jax

    return convolved(jax.numpy, jax.nn.silu, x, kernel, state, bias, activation)


@samestate.kernel("rms_norm", "fused", array="mlx", limits=["T <= 80"])
def mlx_norm(x, weight):
    import mlx.core

    return mlx.core.fast.rms_norm(x, weight, 1e-6)


def _faulty_norm(name, change):
    """A right RMS norm whose backward pass gives (d.x, d.weight) as `change` makes them of the right ones."""

    @samestate.kernel("rms_norm", "fused", array="torch", limits=["T <= 80"], name=name)
    def kernel(x, weight):
        import torch

        def norm(x, weight):
            return weight * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)

        class Norm(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *given):
                ctx.save_for_backward(*given)
                return norm(*given)

            @staticmethod
            def backward(ctx, d_y):
                with torch.enable_grad():
                    given = [y.detach().requires_grad_() for y in ctx.saved_tensors]
                    grads = torch.autograd.grad(norm(*given), given, d_y)
                return change(*grads, d_y)

        return Norm.apply(x, weight)

    return kernel


first_row_only = _faulty_norm("first_row_only.rms_norm", lambda d_x, d_weight, d_y: (d_x, 0.5 * d_weight))
projection_lost = _faulty_norm("projection_lost.rms_norm", lambda d_x, d_weight, d_y: (d_y, d_weight))


# -- attention

def attended(torch, attend, q, k, v, H, Hkv):
    """o [B, T, H dv] of q [B, T, H d], k [B, T, Hkv d] and v [B, T, Hkv dv] by `attend` on [B, heads, T, width]."""
    B, T = q.shape[:2]
    heads = [x.reshape(B, T, n, -1).transpose(1, 2) for x, n in ((q, H), (k, Hkv), (v, Hkv))]
    return attend(*heads).transpose(1, 2).reshape(B, T, -1)


@samestate.kernel("softmax_attention", "naive", array="torch", limits=["T >= 1", "T <= 80"])
def torch_attention(q, k, v, H, Hkv):
    import torch

    def attend(*x):
        return torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True)

    return attended(torch, attend, q, k, v, H, Hkv)


# The weights are kept in place of o and the LSE.
@samestate.kernel("softmax_attention", "naive", array="torch", limits=["T >= 1", "T <= 80"])
def torch_attention_of_weights(q, k, v, H, Hkv):
    import torch

    def attend(*x):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True)

    return attended(torch, attend, q, k, v, H, Hkv)


def _faulty_attention(name, change):
    """Right attention whose backward pass takes `change(dP, P, d_o, o)` for dP - delta, all [B, heads, T, ..]."""

    @samestate.kernel("softmax_attention", "naive", array="torch", limits=["T >= 1", "T <= 80", "H = Hkv"], name=name)
    def kernel(q, k, v, H, Hkv):
        import torch

        def weights(q, k):
            future = torch.full((q.shape[2], q.shape[2]), float("-inf")).triu(1)
            return torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5 + future, -1)

        class Attention(torch.autograd.Function):
            @staticmethod
            def forward(ctx, q, k, v):
                ctx.save_for_backward(q, k, v)
                return weights(q, k) @ v

            @staticmethod
            def backward(ctx, d_o):
                q, k, v = ctx.saved_tensors
                P, scale = weights(q, k), q.shape[3] ** -0.5
                dS = P * change(d_o @ v.transpose(2, 3), P, d_o, P @ v)
                return scale * dS @ k, scale * dS.transpose(2, 3) @ q, P.transpose(2, 3) @ d_o

        return attended(torch, Attention.apply, q, k, v, H, Hkv)

    return kernel


right_attention = _faulty_attention("right.softmax_attention", lambda dP, P, d_o, o: dP - (d_o * o).sum(-1, keepdim=True))
delta_lost = _faulty_attention("delta_lost.softmax_attention", lambda dP, P, d_o, o: dP)
