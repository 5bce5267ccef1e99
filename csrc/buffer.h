// Scratch memory whose vectors never straddle two cache lines.
#pragma once
#include <cstdint>

namespace linfdist {

void* allocate(int64_t bytes);  // 64-byte aligned; throws std::bad_alloc
void release(void*);
int64_t kept();  // bytes that this thread keeps for its next calls

namespace {  // a copy per unit: each is compiled with flags of its own

template <class T>
struct Buffer {
  T* data;
  explicit Buffer(int64_t n) : data(static_cast<T*>(allocate(n * static_cast<int64_t>(sizeof(T))))) {}
  ~Buffer() { release(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator T*() const { return data; }
};

}  // namespace
}  // namespace linfdist
