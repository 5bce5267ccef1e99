// Scratch memory is kept by each thread for its next calls: fresh memory costs a page fault every 4 KiB, which threads
// take one after the other. What a thread has not used for a while it gives back.
#include "buffer.h"

#include "tuning.h"

#include <cstddef>
#include <new>
#include <vector>

namespace linfdist {
namespace {

constexpr int64_t kLine = 64;

struct Block {
  char* memory;  // the first line holds its size
  int64_t size;
  int64_t released;  // when, in requests of this thread
};

void free_block(const Block& block) { ::operator delete(block.memory, std::align_val_t(kLine)); }

// Blocks in the order of their release.
struct Cache {
  std::vector<Block> blocks;
  int64_t total = 0, requests = 0;

  ~Cache() {
    for (const Block& block : blocks) free_block(block);
  }
  void drop_oldest() {
    total -= blocks.front().size;
    free_block(blocks.front());
    blocks.erase(blocks.begin());
  }
};

thread_local Cache cache;

}  // namespace

void* allocate(int64_t bytes) {
  ++cache.requests;
  while (!cache.blocks.empty() && cache.requests - cache.blocks.front().released > tuning::kKeptRequests)
    cache.drop_oldest();
  size_t best = cache.blocks.size();
  for (size_t k = 0; k < cache.blocks.size(); ++k)  // not far too large: such a block would never grow old
    if (cache.blocks[k].size >= bytes && cache.blocks[k].size <= 4 * bytes + 4096 &&
        (best == cache.blocks.size() || cache.blocks[k].size < cache.blocks[best].size))
      best = k;
  if (best < cache.blocks.size()) {
    const Block block = cache.blocks[best];
    cache.blocks.erase(cache.blocks.begin() + static_cast<std::ptrdiff_t>(best));
    cache.total -= block.size;
    return block.memory + kLine;
  }
  char* memory = static_cast<char*>(::operator new(static_cast<size_t>(bytes + kLine), std::align_val_t(kLine)));
  *reinterpret_cast<int64_t*>(memory) = bytes;
  return memory + kLine;
}

void release(void* p) {
  char* memory = static_cast<char*>(p) - kLine;
  const Block block{memory, *reinterpret_cast<int64_t*>(memory), cache.requests};
  if (block.size > tuning::kKeptBytes) return free_block(block);
  while (cache.total + block.size > tuning::kKeptBytes) cache.drop_oldest();
  cache.blocks.push_back(block);
  cache.total += block.size;
}

int64_t kept() { return cache.total; }

}  // namespace linfdist
