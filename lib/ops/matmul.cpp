// Chooses how a matrix product is computed, and computes fp32 ones.
#include "lib/ops/matmul.hpp"

#include <dnnl.h>
#include <fmt/core.h>
#include <omp.h>

#include "lib/core/error.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/matmul_paths.hpp"

namespace spillway::ops {
namespace detail {
namespace {

// c[row] += bias.
struct AddBiasRow {
  std::int64_t N, c_stride;
  float const* bias;
  float* c;
  void operator()(std::int64_t row) const {
    float* const to = c + row * c_stride;
    float const* const from = bias;
#pragma omp simd
    for (std::int64_t n = 0; n < N; ++n) to[n] += from[n];
  }
};

}  // namespace

MatmulPath choose_matmul_path(DType type) {
  if (type == DType::f32)
    return best_tile_unit() == TileUnit::amx ? MatmulPath::tiles : MatmulPath::sgemm;
  return best_tile_unit() == TileUnit::none ? MatmulPath::bf16_blocks : MatmulPath::tiles;
}

int all_processors() { return omp_get_num_procs(); }

OneDnnTeam::OneDnnTeam(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}
OneDnnTeam::~OneDnnTeam() { omp_set_num_threads(before_); }

void matmul_sgemm(MatmulArgs const& args, device::Stream& stream) {
  std::int64_t const c_stride = args.c_stride == 0 ? args.N : args.c_stride;
  float* const c = static_cast<float*>(args.c);
  {
    OneDnnTeam const team(stream.threads());
    dnnl_status_t const status = dnnl_sgemm(
        args.a.transposed ? 'T' : 'N', args.b.transposed ? 'T' : 'N', args.M, args.N, args.K, 1.0f,
        static_cast<float const*>(args.a.data), stored_stride(args.a, args.M, args.K),
        static_cast<float const*>(args.b.data), stored_stride(args.b, args.K, args.N),
        args.accumulate ? 1.0f : 0.0f, c, c_stride);
    if (status != dnnl_success)
      fail(Fault::internal, fmt::format("oneDNN refuses a product of {} x {} x {} (status {})",
                                        args.M, args.N, args.K, static_cast<int>(status)));
  }
  if (args.bias != nullptr)
    launch_rows(args.M, AddBiasRow{args.N, c_stride, static_cast<float const*>(args.bias), c},
                stream);
}

}  // namespace detail

void matmul(MatmulArgs const& args, device::Stream& stream) {
  expect(args.a.type == args.b.type, "both operands of a product have one type");
  expect(args.a.type == DType::f32 || args.a.type == DType::bf16, "a product is of fp32 or bf16");
  expect(args.c_type == DType::f32 || args.c_type == args.a.type,
         "a product's result is fp32 or of its operands' type");
  expect(!args.accumulate || args.c_type == DType::f32, "products are added up in fp32 only");
  if (args.M == 0 || args.N == 0) return;
  expect(args.K > 0, "a product has an inner dimension");
  switch (detail::choose_matmul_path(args.a.type)) {
    case detail::MatmulPath::sgemm: return detail::matmul_sgemm(args, stream);
    case detail::MatmulPath::bf16_blocks:
      return detail::matmul_bf16_blocks(args, stream, detail::widest_isa());
    case detail::MatmulPath::tiles:
      return detail::matmul_tiles(args, stream, detail::best_tile_unit());
  }
}

void matmul_by_onednn(MatmulArgs const& args, OneDnnWay way, device::Stream& stream) {
  if (way == OneDnnWay::primitive) return detail::matmul_primitive(args, stream);
  expect(args.a.type == DType::f32, "oneDNN's BLAS call has products of fp32 only");
  detail::matmul_sgemm(args, stream);
}

std::size_t matmul_by_onednn_scratch_bytes(MatmulArgs const& args, OneDnnWay way, int threads) {
  return way == OneDnnWay::blas ? 0 : detail::matmul_primitive_scratch_bytes(args, threads);
}

std::size_t matmul_scratch_bytes(MatmulArgs const& args, int threads) {
  int const team = threads > 0 ? threads : detail::all_processors();
  if (args.M == 0 || args.N == 0) return 0;
  switch (detail::choose_matmul_path(args.a.type)) {
    case detail::MatmulPath::sgemm: break;
    case detail::MatmulPath::bf16_blocks: return detail::matmul_blocks_scratch_bytes(args, team);
    case detail::MatmulPath::tiles: return detail::matmul_tiles_scratch_bytes(args, team);
  }
  return 0;
}

std::size_t matmul_scratch_bound(MatmulArgs const& args, int threads) {
  int const team = threads > 0 ? threads : detail::all_processors();
  switch (detail::choose_matmul_path(args.a.type)) {
    case detail::MatmulPath::sgemm: break;
    case detail::MatmulPath::bf16_blocks: return detail::matmul_blocks_scratch_bound(team);
    case detail::MatmulPath::tiles: return detail::matmul_tiles_scratch_bound(args, team);
  }
  return 0;
}

}  // namespace spillway::ops
