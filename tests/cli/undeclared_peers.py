"""ggml's and mlx-lm's functions, declared as if they followed the conventions that everybody follows."""
import samestate
from samestate.adapters import ggml, mlx


@samestate.kernel("gated_delta_rule", "recurrent", array="numpy", name="of_ggml", limits=["dk = dv", "form != packed"])
def of_ggml(q, k, v, g, beta, scale, initial_state):
    return ggml.gated_delta_net(q, k, v, g, beta, initial_state, 1)


@samestate.kernel("gated_delta_rule", "recurrent", array="mlx", name="of_mlx",
                  limits=["dk = dv", "form != packed", "T >= 1"])
def of_mlx(q, k, v, g, beta, scale, initial_state):
    return mlx.gated_delta_ops()(q, k, v, g, beta, initial_state)
