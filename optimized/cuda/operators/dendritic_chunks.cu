#include "optimized/cuda/operators/dendritic_chunks.cuh"

/// A file of its own: the chunks' kernels take as long to compile as all others of the layer.
namespace samestate::cuda {
namespace {

template <class Body>
void launch_chain(const ChunkParameters& p, cudaStream_t stream) {
  const DendriticShape& s = p.rule.shape;
  launch<Body>(blocks_of(s.lists() * s.windows * p.rule.tiles(Body::kColumns), 1), Body::kSharedBytes, p,
               stream);
}

}  // namespace

void launch_chunks(const ChunkParameters& p, cudaStream_t stream) {
  launch<ChunkTileBody>(blocks_of(p.tile_count(), 1), ChunkTileBody::shared_bytes(p.rule.shape), p, stream);
  const int width = p.rule.shape.width;
  if (width <= 64) return launch_chain<ChunkBody<64>>(p, stream);
  if (width <= 128) return launch_chain<ChunkBody<128>>(p, stream);
  if (width <= 160) return launch_chain<ChunkBody<160>>(p, stream);
  launch_chain<ChunkBody<256>>(p, stream);
}

}  // namespace samestate::cuda
