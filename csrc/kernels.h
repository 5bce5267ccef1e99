// What every instruction set provides. Each isa_*.cpp compiles kernels/table.h with its own flags into one table;
// the drivers (inf.cpp, finite.cpp, adam.cpp) split the work, choose dense or pruned lists, and run the table's
// functions on torch's threads.
//
// The units of isa_*.cpp include no torch and no allocating standard header: an inline function compiled there with
// AVX flags could be picked by the linker for the whole library and crash on an older CPU.
#pragma once
#include "geometry.h"
#include "series.h"

namespace linfdist {

// The inputs that can still matter to each neuron of one group: `size(o)` pairs of (index, weight), index ascending.
template <class T>
struct Lists {
  const int32_t* indices;      // dense: 0, 1, 2, … for all neurons
  const T* weights;            // dense: the weights themselves
  const int64_t *start, *end;  // of each neuron's pairs, or nullptr: dense
  int64_t inputs;              // I
  int64_t slice;               // entries taken at a time by dense forwards, so that the panel's slice stays in L1

  LINFDIST_INLINE bool pruned() const { return start != nullptr; }
  LINFDIST_INLINE int64_t size(int64_t o) const { return start ? end[o] - start[o] : inputs; }
  LINFDIST_INLINE const int32_t* index(int64_t o) const { return indices + (start ? start[o] : 0); }
  LINFDIST_INLINE const T* weight(int64_t o) const { return weights + (start ? start[o] : o * inputs); }
};

// Whether p is so large that it pays to find the terms that count before taking their powers; `from`: see tuning.h.
LINFDIST_INLINE bool few_count(const Power& power, float from) { return power.least > from; }

// Whether to do so with these lists: pruned ones hold little else.
template <class T>
LINFDIST_INLINE bool worth_filtering(const Power& power, const Lists<T>& lists, float from) {
  return few_count(power, from) && !lists.pruned();
}

// Powers of two that finite p stays between; what lies outside takes the careful path (careful.h).
template <class T>
struct Limits;
template <>
struct Limits<float> {
  static constexpr double kRoom = 120;                                     // of a sum of powers that cannot overflow
  static constexpr float kOrdinary = 0x1p60f;                              // y and 1/y up to this keep their digits
  static constexpr float kSmallestSum = 0x1p-80f, kLargestSum = 0x1p126f;  // of powers that were not scaled one by one
};
template <>
struct Limits<double> {
  static constexpr double kRoom = 960, kOrdinary = 0x1p480, kSmallestSum = 0x1p-900, kLargestSum = 0x1p1022;
};

// The sides of weights that can still be the maximum of their neuron: x - w, or w - x. Run s * neurons + o holds those
// of neuron o in slice s of the inputs: before its middle the sides x - w, then w - x, both with ascending index. The
// lines of a slice stay in L1 while all neurons see them.
template <class T>
struct Sides {
  const int64_t *start, *middle, *end;  // (slices, neurons), or nullptr: all sides can
  const int32_t* index;
  const T* weight;
  int64_t slices;
};

// One group of one forward call, cut into tasks of a panel and a block of neurons each.
struct Work {
  const Geometry* g;
  int64_t group;
  int64_t block, blocks;  // neurons per task, tasks per panel
};

// p = inf. Tensors are whole; the group's part is found through `group`.
template <class T>
struct Inf : Work {
  const T* x;
  Sides<T> sides;
  Lists<T> lists;  // dense, where `sides` are not
  T* y;
  int32_t* where;  // nullptr: values only
};

// Interval bounds at p = inf.
template <class T>
struct Box : Work {
  const T *lower, *upper;
  Sides<T> sides;
  Lists<T> lists;
  T *lo, *hi;
  int32_t *where_lo, *where_hi;
};

// Finite p.
template <class T>
struct Forward : Work {
  const T* x;
  Lists<T> lists;
  T* y;
  double p;
  Power power;           // a^p
  T common;              // a product: a power of two by which all |x - w| are divided; 0: each output's maximum
  uint8_t* careful;      // set to 1 where this neuron and row need the careful path,
  uint8_t* any_careful;  //   and here if there is one
};

// One group of one finite-p backward call. Task = slice of inputs; dx and dw of a slice belong to one task alone.
template <class T>
struct Backward {
  const Geometry* g;
  int64_t group;
  int64_t slice;  // inputs per task: whole channels
  const T* x;
  Lists<T> lists;
  const int64_t* first;  // (neurons, slices + 1): where each slice starts in each list
  const T* grad;         // (panels, neurons, lanes), 0 in rows that are padding or at distance 0 or careful
  const T* minus;        // (panels, neurons, lanes): -1 / y, likewise
  const T* scale;        // (panels, neurons): of a product, if not 0: `grad` holds grad / (scale y)^(p-1); below 0: all
                         //   its `grad` are 0
  const T* need;  // (panels, neurons, lanes / kRows): what |x - w| must exceed for some of these rows; or nullptr
  const uint8_t* careful;  // (panels, neurons): rows of that panel need the careful path, or nullptr
  double p;
  Power power;  // a^(p - 1)
  T* dx;        // whole tensor, or nullptr
  T* dw;        // the group's rows, or nullptr
  void (*careful_rows)(const Backward<T>&, int64_t panel, int64_t o, int64_t i0, int64_t i1, T* dx_slice);
  const void* context;  // for careful_rows
};

// What the planner needs: ranges of every input over the batch, and where to put the lists.
template <class T>
struct Plan {
  const T *lower, *upper;  // (I)
  const T* w;              // the group's rows,
  int64_t stride;          //   so far apart
  int64_t inputs, neurons;
  T keep;          // an entry stays if its largest distance is at least `keep` times the neuron's smallest output
  const T* least;  // (neurons): a known lower bound of each neuron's output, or nullptr
  int64_t words;   // in a slice; a word is 64 inputs
  int64_t *start, *middle, *end;  // as in Sides; without `middle`, entries are whole weights
  int32_t* index;                 // room for all entries; nullptr: they are only counted
  T* weight;
};

// One parameter tensor of an optimiser step, (rows, columns): rows are neurons.
struct Adam {
  float *w, *m, *v;
  const float* grad;
  int64_t columns;
  float lr, eps, decay;
  double rate1, rate2;              // 1 - beta: in double, because a beta near 1 has no digits left of it in float
  double correction1, correction2;  // 1 - beta^t
  double p;                         // of the weight decay; 2 is the usual one
  Power power, power_decay;         // a^p and a^(p - 2)
};

// One integer layer, y[o, b] = max |x[i, b] - w| + bias[o] over the inputs of neuron o. Activations lie feature-major:
// one line per input, the batch along it. No intermediate value overflows T: whoever made the weights has proved it.
// Task = (panel, block of neurons).
template <class T>
struct Exact {
  const T* x;  // (I, B)
  int64_t inputs, batch, neurons;
  int64_t block, blocks;  // dense: neurons per task, tasks per panel
  const T* weight;        // dense: (O, I); sided: one per entry
  // Sided: run r holds entries [start[r], end[r]) of neuron[r]; those before middle[r] give x - w, the others w - x.
  int64_t runs;
  const int32_t *neuron, *index;
  const int64_t *start, *middle, *end;
  const int32_t* bias;  // (O)
  T* y;                 // (O, B)
};

// A whole network of sided layers, one after the other: 8-bit images in, or wider values where something was done to
// the pixels before; minus the last layer's outputs out. Numbers of runs and entries count through all layers; layer l
// has runs [runs[l], runs[l + 1]). Task = panel. T = uint8_t has no biases: x - w and w - x are cut off at 0, and
// whoever made the weights has proved that 255 is enough.
template <class T>
struct ExactNet {
  const uint8_t* images;  // (B, sizes[0]), to be shifted to the left by `shift`; or null, and
  const T* values;        // (B, sizes[0]) the inputs as they are
  int64_t batch, layers, shift;
  const int64_t* sizes;  // (layers + 1): of the images and of every layer's output
  const int64_t* runs;   // (layers + 1)
  const int32_t* neuron;
  const int64_t *start, *middle, *end;
  const int32_t* index;
  const T* weight;
  const int32_t* bias;  // of all layers
  int64_t widest;       // of the sizes
  int32_t* y;           // (B, sizes[layers])
};

// Columns of a panel of sided layers: fewer, because every neuron looks all over it.
template <class T>
constexpr int64_t kSidedLanes = 128 / static_cast<int64_t>(sizeof(T));

template <class T>
struct ExactTable {
  // The first four: not for uint8_t.
  bool (*plan)(const Plan<T>&, int64_t begin, int64_t end);  // neurons; always true: integers are finite
  // Few images, (B, I): vectors run along the inputs.
  void (*rows)(const Exact<T>&, const T* rows, int64_t begin, int64_t end);
  void (*dense)(const Exact<T>&, int64_t begin, int64_t end);
  void (*sided)(const Exact<T>&, int64_t begin, int64_t end);       // panels; all indices lie inside
  void (*network)(const ExactNet<T>&, int64_t begin, int64_t end);  // panels
  bool (*inside)(const int32_t* index, int64_t n, int64_t bound);   // 0 <= index < bound
};

template <class T>
struct Table {
  // Smallest and largest value of channels [begin, end) over the batch; false if any is not finite.
  bool (*ranges)(const Geometry&, const T* x, T* lower, T* upper, int64_t begin, int64_t end);
  bool (*plan)(const Plan<T>&, int64_t begin, int64_t end);                 // neurons; false if a weight is not finite
  void (*inf_rows)(const Inf<T>&, const T* w, int64_t begin, int64_t end);  // few rows: vectors run along the inputs
  void (*inf)(const Inf<T>&, int64_t begin, int64_t end);
  void (*box)(const Box<T>&, int64_t begin, int64_t end);
  void (*finite)(const Forward<T>&, int64_t begin, int64_t end);
  void (*backward)(const Backward<T>&, int64_t begin, int64_t end);
  // (panels, neurons, lanes) copy of an output-shaped tensor, panels [begin, end).
  void (*pack_outputs)(const Geometry&, int64_t group, const T* y, T* packed, int64_t begin, int64_t end);
  void (*adam)(const Adam&, int64_t begin, int64_t end);     // float only; rows
  void (*sizes)(const T*, int64_t n, T* least, T* largest);  // of n numbers: the smallest |a| > 0, the largest
};

struct Isa {
  const char* name;
  const Table<float>* f32;
  const Table<double>* f64;
  const ExactTable<uint8_t>* u8;
  const ExactTable<int16_t>* i16;
  const ExactTable<int32_t>* i32;
};

const Isa& isa();    // the one in use; throws std::runtime_error if LINFDIST_ISA asks for one that cannot run
const char* isas();  // all that can run here, best first, comma-separated

}  // namespace linfdist
