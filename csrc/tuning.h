// Every number that was chosen by measuring, and why it is what it is. None of them can change a result at p = inf.
#pragma once
#include <cstdint>

namespace linfdist::tuning {

// --- how work is cut
// ---------------------------------------------------------------------------------------------------
constexpr int64_t kTask = int64_t{1} << 18;  // elements that are worth waking another thread for: some 50 microseconds
constexpr int64_t kScan = int64_t{1} << 15;  // the same where elements are only looked at: ranges, a few rows
constexpr int64_t kPlan = int64_t{1} << 14;  // the same for the planner, which looks at each weight twice
constexpr int64_t kNeurons = 16;             // at least so many in a task: fewer do not repay packing the panel again
constexpr int64_t kTasks = 16;  // at least so many in all, and four for each thread, so that none waits long

constexpr int64_t kScatter = int64_t{1} << 14;  // outputs whose gradients are worth waking another thread for
constexpr int64_t kCachedNeurons = 16;          // whose dw are summed together: their rows of dw stay cached

// --- few rows
// ------------------------------------------------------------------------------------------------------------
constexpr int64_t kFewRows = 16;      // up to so many, vectors along the inputs beat a panel whose lanes stay empty
constexpr int64_t kFewImages = 8;     // the same for integers, whose lanes are more
constexpr int64_t kManyRows = 32;     // from here on, looking for weights to leave out costs less than it saves
constexpr int64_t kManyImages = 256;  // the same for integers, whose kernels are faster

// --- lists of inputs
// ----------------------------------------------------------------------------------------------------- Dense: 64 lines
// of 256 bytes, 16 KB, are half of the smallest L1, and the values of a block's neurons share it.
constexpr int64_t kDenseSlice = 64;
// Lists that hold more than this share of the weights are slower than looking at all: an entry has its index to follow.
constexpr double kWorthLists = 0.6;
// The same where the terms that count could be searched for in the rows instead (kFilterForward, kFilterBackward),
// which leaves out more. Steps of a network of width 512, batch 128, at p = 300 and 1000: 46 ms with 0.6, 40 with 0.3
// or 0.15; 0.05 costs a third at p = 60.
constexpr double kWorthFiltered = 0.3;
// Neurons that are asked before lists are made, evenly spread. Where nothing can be left out, a forward of 32 rows by a
// layer of 1024 x 1024 took 4 to 13 times as long when the lists were written and thrown away.
constexpr int64_t kAsked = 64;
// Sides: 128 lines, 32 KB, for L1; but no slice so small that a neuron keeps fewer than 32 entries in it on average,
// for each run mispredicts the ends of its two loops. At 20 % survivors slices gain a factor of about 1.5; trained
// networks, of which 2 to 8 % survive, are faster in one piece.
constexpr int64_t kSideSlice = 128;
constexpr int64_t kRunEntries = 32;
// Integers: 256 lines of 128 bytes.
constexpr int64_t kIntegerSlice = 256;
// Images of a whole integer network for which its first layer is narrowed down together; a quarter of them is not worth
// it.
constexpr int64_t kTogether = 1024;

// --- finite p
// ------------------------------------------------------------------------------------------------------------ Terms
// below `Power::least` of the largest one do not count in a sum of powers. Above these values, reached at p of about 55
// and 40 in float32, and at larger p in float64 and with many inputs, finding the terms that count is cheaper than
// taking all powers. The backward takes more for each term.
constexpr float kFilterForward = 0.67f, kFilterBackward = 0.6f;
// Inputs whose gradients belong to one task, at most: panels of x and dx, 16 KB, for L1. Where few terms count, fewer
// and longer searches for them are worth more than L1: a backward at p of 60 to 300 took 8 to 18 % less with 64 than
// with 32.
constexpr int64_t kGradientSlice = 32, kFilterSlice = 64;

// --- scratch memory
// --------------------------------------------------------------------------------------------------------
constexpr int64_t kKeptBytes = int64_t{16} << 20;  // that a thread keeps at most for its next calls
constexpr int64_t kKeptRequests = 512;             // for memory, after which a block that served none is given back

}  // namespace linfdist::tuning
