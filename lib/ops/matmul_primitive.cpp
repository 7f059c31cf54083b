// Products through oneDNN's primitives, which are slow to make and therefore kept with the stream.
#include <fmt/core.h>

#include <compare>
#include <dnnl.hpp>
#include <map>
#include <unordered_map>

#include "lib/core/error.hpp"
#include "lib/ops/detail/matmul_paths.hpp"
#include "lib/ops/detail/scratch.hpp"

namespace spillway::ops::detail {
namespace {

// All that a primitive depends on.
struct Key {
  std::int64_t M, N, K, a_stride, b_stride, c_stride;
  DType type, c_type;
  bool a_transposed, b_transposed, bias, accumulate;
  int threads;
  auto operator<=>(Key const&) const = default;
};

Key key_of(MatmulArgs const& args, int threads) {
  return {.M = args.M,
          .N = args.N,
          .K = args.K,
          .a_stride = stored_stride(args.a, args.M, args.K),
          .b_stride = stored_stride(args.b, args.K, args.N),
          .c_stride = args.c_stride == 0 ? args.N : args.c_stride,
          .type = args.a.type,
          .c_type = args.c_type,
          .a_transposed = args.a.transposed,
          .b_transposed = args.b.transposed,
          .bias = args.bias != nullptr,
          .accumulate = args.accumulate,
          .threads = threads};
}

dnnl::memory::data_type foreign(DType type) {
  return type == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, DType type,
                            std::int64_t stride, bool transposed) {
  dnnl::memory::dims const strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, foreign(type), strides};
}

dnnl::matmul::primitive_desc compile(Key const& key, dnnl::engine const& engine) {
  auto const a = describe(key.M, key.K, key.type, key.a_stride, key.a_transposed);
  auto const b = describe(key.K, key.N, key.type, key.b_stride, key.b_transposed);
  auto const c = describe(key.M, key.N, key.c_type, key.c_stride, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops add;
    add.append_sum(1.0f);
    attributes.set_post_ops(add);
  }
  OneDnnTeam const team(key.threads);
  try {
    if (key.bias)
      return {{a, b, describe(1, key.N, key.type, key.N, false), c}, attributes, engine};
    return {{a, b, c}, attributes, engine};
  } catch (dnnl::error const& error) {
    fail(Fault::internal, fmt::format("oneDNN has no {} product of {} x {} x {} ({})",
                                      name_of(key.type), key.M, key.N, key.K, error.what()));
  }
}

// A primitive with memory objects whose addresses are set for each call.
class Compiled {
 public:
  Compiled(dnnl::matmul::primitive_desc const& made, bool bias, dnnl::engine const& engine)
      : primitive_(made), scratch_bytes_(made.scratchpad_desc().get_size()) {
    auto const add = [&](int name, dnnl::memory::desc const& description) {
      arguments_.emplace(name, dnnl::memory(description, engine, nullptr));
    };
    add(DNNL_ARG_SRC, made.src_desc());
    add(DNNL_ARG_WEIGHTS, made.weights_desc());
    add(DNNL_ARG_DST, made.dst_desc());
    add(DNNL_ARG_SCRATCHPAD, made.scratchpad_desc());
    if (bias) add(DNNL_ARG_BIAS, made.bias_desc());
  }

  void run(MatmulArgs const& args, device::Stream& stream, dnnl::stream& queue) {
    Scratch scratch(stream.scratch(), scratch_bytes_, "matmul");
    // oneDNN takes operands it only reads as void* too.
    set(DNNL_ARG_SRC, const_cast<void*>(args.a.data));
    set(DNNL_ARG_WEIGHTS, const_cast<void*>(args.b.data));
    set(DNNL_ARG_DST, args.c);
    set(DNNL_ARG_SCRATCHPAD, scratch.take<std::byte>(0));
    if (args.bias != nullptr) set(DNNL_ARG_BIAS, const_cast<void*>(args.bias));
    OneDnnTeam const team(stream.threads());
    primitive_.execute(queue, arguments_);
    queue.wait();
  }

 private:
  void set(int name, void* address) { arguments_.at(name).set_data_handle(address); }

  dnnl::matmul primitive_;
  std::size_t scratch_bytes_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

class MatmulCache {
 public:
  MatmulCache() : engine_(dnnl::engine::kind::cpu, 0), queue_(engine_) {}

  void run(MatmulArgs const& args, device::Stream& stream) {
    Key const key = key_of(args, stream.threads());
    auto found = compiled_.find(key);
    if (found == compiled_.end()) {
      // Training has a few dozen shapes; texts of any length must not pile up.
      if (compiled_.size() >= kMost) compiled_.clear();
      found = compiled_.emplace(key, Compiled(compile(key, engine_), key.bias, engine_)).first;
    }
    found->second.run(args, stream, queue_);
  }

 private:
  static constexpr std::size_t kMost = 512;
  dnnl::engine engine_;
  dnnl::stream queue_;
  std::map<Key, Compiled> compiled_;
};

}  // namespace

void matmul_primitive(MatmulArgs const& args, device::Stream& stream) {
  auto& attachment = stream.attachment();
  if (attachment == nullptr) attachment = std::make_shared<MatmulCache>();
  static_cast<MatmulCache*>(attachment.get())->run(args, stream);
}

std::size_t matmul_primitive_scratch_bytes(MatmulArgs const& args, int threads) {
  dnnl::engine const engine(dnnl::engine::kind::cpu, 0);
  return compile(key_of(args, threads), engine).scratchpad_desc().get_size();
}

}  // namespace spillway::ops::detail
