// A device that computes on the CPU but is none to torch: tensors on it do not mix with those of the CPU, as on a GPU.
// What runs on it here has its tensors where they belong; speed and rounding of a GPU it cannot show.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

namespace {

constexpr auto kind = c10::DeviceType::PrivateUse1;
const c10::Device device(kind, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kind;
  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device) const override { return device; }
  c10::Device getDevice() const override { return device; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getNewStream(c10::Device, int) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void synchronizeDevice(c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    return {data, data, &c10::free_cpu, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
} memory;
REGISTER_ALLOCATOR(kind, &memory)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};
const bool hooked = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

bool mine(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kind; }

// The same memory, as a tensor of the CPU.
at::Tensor inside(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor out_of(const at::Tensor& result) {
  auto moved = empty_strided(result.sizes(), result.strides(), result.scalar_type(), {}, {}, {});
  inside(moved).copy_(result);
  return moved;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  (mine(to) ? inside(to) : to).copy_(mine(from) ? inside(from) : from);
  return to;
}

const at::Tensor& grow(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
  size_t bytes = c10::multiply_integers(size) * self.element_size();
  auto storage = self.storage();
  if (storage.nbytes() < bytes) {
    storage.set_data_ptr_noswap(memory.allocate(bytes));
    storage.set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

// Every other operation: computed on the CPU. A tensor of the CPU among those of the device is refused, as on a GPU,
// unless it is one number, or a place to look up.
void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& arguments = schema.arguments();
  const size_t first = stack->size() - arguments.size();
  const bool looks_up = schema.name().find("aten::index") == 0 || schema.name().find("aten::_index") == 0;
  std::vector<c10::IValue> given(stack->begin() + first, stack->end());
  auto enter = [&](const at::Tensor& tensor) {
    if (mine(tensor)) return inside(tensor);
    TORCH_CHECK(!tensor.defined() || tensor.dim() == 0 || looks_up, "expected all tensors to be on one device, but ",
                schema.name(), " got one of ", tensor.device(), " besides those of ", device);
    return tensor;
  };
  for (size_t k = 0; k < given.size(); ++k) {
    auto& value = (*stack)[first + k];
    if (arguments[k].is_out()) {  // a place for the result, which may have to grow
      value = at::empty({0}, value.toTensor().options().device(c10::kCPU));
    } else if (value.isTensor()) {
      value = enter(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> entered;
      for (const at::Tensor& each : value.toTensorVector()) entered.push_back(enter(each));
      value = entered;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> entered;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        entered.push_back(each ? std::optional(enter(*each)) : std::nullopt);
      value = entered;
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    }
  }
  op.callBoxed(stack);
  const size_t results = schema.returns().size();
  for (size_t k = 0; k < results; ++k) {
    auto& value = (*stack)[stack->size() - results + k];
    const auto* alias = schema.returns()[k].alias_info();
    if (alias && alias->isWrite()) {
      for (size_t i = 0; i < given.size(); ++i) {
        const auto* from = arguments[i].alias_info();
        if (!from || !from->isWrite() || from->beforeSets() != alias->beforeSets()) continue;
        if (arguments[i].is_out())
          inside(grow(given[i].toTensor(), value.toTensor().sizes(), {})).copy_(value.toTensor());
        value = given[i];
        break;
      }
    } else if (value.isTensor() && value.toTensor().defined()) {
      value = out_of(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> left;
      for (const at::Tensor& each : value.toTensorVector()) left.push_back(out_of(each));
      value = left;
    }
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("resize_", &grow);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
}
