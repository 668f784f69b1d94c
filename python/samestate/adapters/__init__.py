def rows_of(name): return []
def names(): return ["ggml.gated_delta_net"]
