#include "optimized/cuda/delta/chunk_mma_list.cuh"

/// This is a separate file because the rule's kernels take as long to compile as all the others of a layer.
namespace samestate::cuda {
namespace {

/// Launches one block per virtual head and its columns.
template <class Body, class Operand>
void launch_virtual_heads(const RuleParameters<Operand>& rule, const typename Body::Parameters& p,
                          cudaStream_t stream) {
  launch<Body>(blocks_of(rule.shape.lists() * rule.shape.windows * rule.tiles(Body::kColumns), 1),
               Body::kSharedBytes, p, stream);
}

void launch_chunks(const ChunkParameters& p, cudaStream_t stream) {
  launch<ChunkTileBody>(blocks_of(p.tile_count(), 1), ChunkTileBody::shared_bytes(p.rule.shape), p, stream);
  const int width = p.rule.shape.width;
  if (width <= 64) return launch_virtual_heads<ChunkBody<64>>(p.rule, p, stream);
  if (width <= 128) return launch_virtual_heads<ChunkBody<128>>(p.rule, p, stream);
  if (width <= 160) return launch_virtual_heads<ChunkBody<160>>(p.rule, p, stream);
  launch_virtual_heads<ChunkBody<256>>(p.rule, p, stream);
}

template <class Operand>
void launch_tokens(const RuleParameters<Operand>& p, cudaStream_t stream) {
  const int width = p.shape.width;
  if (width <= 32) return launch_virtual_heads<RuleBody<Operand, 8>>(p, p, stream);
  if (width <= 64) return launch_virtual_heads<RuleBody<Operand, 16>>(p, p, stream);
  if (width <= 128) return launch_virtual_heads<RuleBody<Operand, 32>>(p, p, stream);
  if (width <= 160) return launch_virtual_heads<RuleBody<Operand, 40>>(p, p, stream);
  launch_virtual_heads<RuleBody<Operand, 64>>(p, p, stream);
}

}  // namespace

void launch_rule(const RuleParameters<float>& p, ChunkTile*, cudaStream_t stream) {
  launch_tokens(p, stream);
}

void launch_rule(const RuleParameters<Bf16>& p, ChunkTile* chunks, cudaStream_t stream) {
  chunks != nullptr ? launch_chunks({{p}, chunks}, stream) : launch_tokens(p, stream);
}

}  // namespace samestate::cuda
