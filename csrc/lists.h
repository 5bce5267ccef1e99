// Which inputs each neuron has to look at.
//
// Over a batch, input i of a layer moves in a known range. A weight can be the arg-max of its neuron only if its
// largest possible distance reaches the largest of all the neuron's smallest possible distances (kernels/plan.h). Every
// other weight is left out for this call, and the result keeps its bits. In finite p the same is done with terms that
// are `negligible` (series.h). With the paper's initialisation nearly all go, of trained networks most. At p = inf the
// two sides x - w and w - x of a weight are judged each for itself: on trained networks no weight keeps both. So it is
// in integer layers, whose numbers are always finite.
//
// The kernels want finite numbers: 0 stands here for what is not finite, and the drivers compute the rows and neurons
// that it concerns in another way (careful.h).
#pragma once
#include "kernels.h"

#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

namespace linfdist {

template <class T>
const auto& table() {
  if constexpr (std::is_same_v<T, float>)
    return *isa().f32;
  else if constexpr (std::is_same_v<T, double>)
    return *isa().f64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return *isa().u8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return *isa().i16;
  else
    return *isa().i32;
}

// Smallest and largest values of every channel of a tensor over its batch.
template <class T>
struct Ranges {
  std::vector<T> lower, upper;
  bool finite = true;
  explicit Ranges(int64_t channels) : lower(channels), upper(channels) {}
  Ranges(const Geometry& g, const T* x);
};

// A group's weights looked at as a batch of neurons.
template <class T>
Ranges<T> weight_ranges(const Geometry& g, const T* w);

// A tensor of images and its ranges, all finite.
template <class T>
class FiniteImages {
 public:
  FiniteImages(const Geometry& g, const T* x);
  const T* x;        // the tensor itself if `finite`, else a copy
  bool finite;       // whether the tensor was
  Ranges<T> ranges;  // of x

 private:
  std::unique_ptr<T[]> copy_;
};

template <class T>
class InputLists {
 public:
  // p = inf: `sides`, or dense `lists` where too little can be left out.
  InputLists(const Geometry& g, int64_t group, const T* weights, const Ranges<T>& x);
  // Finite p: `lists`, dense ones if they would hold more than the share `worth` of the weights. `keep`: see Plan; 0
  // asks for dense lists. `least` (neurons) or nullptr.
  InputLists(const Geometry& g, int64_t group, const T* weights, const Ranges<T>& x, double keep, double worth,
             const T* least = nullptr);
  Sides<T> sides;
  Lists<T> lists;
  const T* w;   // the weights, or a copy if not all are finite
  bool finite;  // whether they are
  // (neurons, slices + 1): first entry of each list that lies in each slice of inputs.
  std::vector<int64_t> first_in_slices(const Geometry& g, int64_t slice) const;

 private:
  void build(const Geometry& g, int64_t group, const Ranges<T>& x, double keep, double worth, const T* least,
             bool sided);
  bool plan(const Geometry& g, int64_t group, const Ranges<T>& x, double keep, double worth, const T* least,
            bool sided);
  std::unique_ptr<int32_t[]> index_;
  std::unique_ptr<T[]> weight_, copy_;
  std::vector<int64_t> start_, middle_, end_;
};

}  // namespace linfdist
