// The kernels, written once over a vector type (vec/) and compiled once per instruction set.
//
// Vectors run over the batch: one panel line holds input i of kLanes rows, and a neuron's weight is broadcast. So the
// list of inputs of a neuron may be anything, also what pruning left over (lists.h), at no cost in gathers.
#pragma once
#include "adam.h"
#include "backward.h"
#include "box.h"
#include "exact.h"
#include "finite.h"
#include "inf.h"
#include "plan.h"
#include "scan.h"

namespace {

const linfdist::Table<float> f32_table = {
    ranges<F32>, plan<F32>,     inf_rows<F32>,     inf<F32>,  box<F32>,
    finite<F32>, backward<F32>, pack_outputs<F32>, adam<F32>, sizes<float, uint32_t>};
const linfdist::Table<double> f64_table = {
    ranges<F64>, plan<F64>,     inf_rows<F64>,     inf<F64>, box<F64>,
    finite<F64>, backward<F64>, pack_outputs<F64>, nullptr,  sizes<double, uint64_t>};
const linfdist::ExactTable<uint8_t> u8_table = {nullptr, nullptr, nullptr, nullptr, exact_network<U8>, inside};
const linfdist::ExactTable<int16_t> i16_table = {plan<I16>,        exact_rows<I16>,    exact_dense<I16>,
                                                 exact_sided<I16>, exact_network<I16>, inside};
const linfdist::ExactTable<int32_t> i32_table = {plan<I32>,        exact_rows<I32>,    exact_dense<I32>,
                                                 exact_sided<I32>, exact_network<I32>, inside};

}  // namespace
