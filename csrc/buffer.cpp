// Scratch memory is kept by each thread for its next call: fresh memory costs a page fault every 4 KiB, which threads take
// one after the other.
#include "buffer.h"

#include <cstddef>
#include <new>
#include <vector>

namespace linfdist {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kKeep = int64_t{16} << 20;  // bytes a thread keeps at most

struct Block {
  char* memory;  // the first line holds its size
  int64_t size;
};

struct Cache {
  std::vector<Block> blocks;
  int64_t total = 0;
  ~Cache() {
    for (const Block& block : blocks) ::operator delete(block.memory, std::align_val_t(kLine));
  }
};

thread_local Cache cache;

}  // namespace

void* allocate(int64_t bytes) {
  size_t best = cache.blocks.size();
  for (size_t k = 0; k < cache.blocks.size(); ++k)
    if (cache.blocks[k].size >= bytes && (best == cache.blocks.size() || cache.blocks[k].size < cache.blocks[best].size)) best = k;
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
  const int64_t size = *reinterpret_cast<int64_t*>(memory);
  if (cache.total + size > kKeep) return ::operator delete(memory, std::align_val_t(kLine));
  cache.blocks.push_back({memory, size});
  cache.total += size;
}

}  // namespace linfdist
