#include <algorithm>

#include "optimized/cuda/delta/chunk_wgmma_list.cuh"

/// This is a separate file for the same reason as chunk_mma_list.cu.
namespace samestate::cuda {
namespace {

/// Returns the number of persistent blocks, one per multiprocessor; the emulation gets so few that each takes
/// more than one item.
unsigned blocks_that_stay(std::int64_t items) {
#ifdef __CUDACC__
  const std::int64_t most = device_attribute(cudaDevAttrMultiProcessorCount);
#else
  const std::int64_t most = 3;
#endif
  return blocks_of(std::min(items, most), 1);
}

template <int width>
void launch_chain(const ListChunkParameters& p, cudaStream_t stream) {
  using Body = ListChainBody<width>;
  launch<Body>(blocks_that_stay(Body::items_of(p)), Body::kSharedBytes, p, stream);
}

}  // namespace

bool in_list_chunks(const RuleParameters<Bf16>& p) {
  constexpr int kLanes = 32;
  return has_asynchronous_products() && p.shape.width <= kWidestListChain && p.shape.branches() <= kLanes;
}

void launch_list_rule(const ListChunkParameters& p, cudaStream_t stream) {
  launch<ListTileBody>(blocks_of(p.tile_count(), 1), ListTileBody::shared_bytes(p.rule.shape), p, stream);
  const int width = p.rule.shape.width;
  if (width <= 64) return launch_chain<64>(p, stream);
  if (width <= 128) return launch_chain<128>(p, stream);
  launch_chain<kWidestListChain>(p, stream);
}

}  // namespace samestate::cuda
