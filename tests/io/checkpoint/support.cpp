#include "tests/io/checkpoint/support.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "lib/core/error.hpp"
#include "lib/core/philox.hpp"

namespace spillway::io::test {

namespace fs = std::filesystem;

namespace {

fs::path directory_of(Place place) {
  fs::path const memory = "/dev/shm";
  std::error_code error;
  auto const space = fs::space(memory, error);
  bool const roomy = !error && space.available > (std::uintmax_t{256} << 20);
  return place == Place::memory && roomy ? memory : fs::temp_directory_path();
}

}  // namespace

TempDir::TempDir(Place place) {
  std::string pattern = (directory_of(place) / "spillway-checkpoint-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) fail(Fault::io, "cannot create a temporary directory");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

AlignedBytes::AlignedBytes(std::size_t size)
    : bytes_(static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096))),
      size_(size) {}

CheckpointSchema awkward_schema(DType weight_type) {
  using Tensors = std::vector<shard::FlatLayout::Tensor>;
  auto const unit = [](std::string name, Tensors const& tensors) {
    return SavedUnit{std::move(name), shard::FlatLayout(tensors)};
  };
  CheckpointSchema schema;
  schema.weight_type = weight_type;
  schema.units.push_back(unit("embedding", {{"model.embed_tokens.weight", {61, 131}}}));
  schema.units.push_back(unit("block.0", {{"model.layers.0.self_attn.q_proj.weight", {509, 521}},
                                          {"model.layers.0.experts.weight", {7, 11, 13}},
                                          {"model.layers.0.input_layernorm.weight", {509}}}));
  schema.units.push_back(unit("head", {{"model.norm.weight", {13}}, {"scale", {}}}));
  schema.config_json = R"({"model_type": "llama", "name": "Größe"})";
  return schema;
}

float value_of(CheckpointSchema const& schema, SavedKind kind, std::string const& tensor,
               std::int64_t index) {
  std::uint64_t z = hash_name(tensor) + static_cast<std::uint64_t>(kind) * 0x1000003u +
                    static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  if (schema.type(kind) == DType::bf16) return static_cast<float>(static_cast<int>(z % 511) - 255);
  return static_cast<float>(static_cast<int>(z % 2000003) - 1000001) / 1024.0f;
}

std::vector<SavedKind> all_kinds(CheckpointSchema const& schema) {
  std::vector<SavedKind> kinds;
  for (SavedKind kind : {SavedKind::weight, SavedKind::master, SavedKind::m, SavedKind::v})
    if (schema.has(kind)) kinds.push_back(kind);
  return kinds;
}

namespace {

std::vector<float> fill_range(CheckpointSchema const& schema, UnitId unit, SavedKind kind,
                              shard::Range range, float padding) {
  std::vector<float> values(static_cast<std::size_t>(range.size()), padding);
  for (auto const& tensor : schema.units[static_cast<std::size_t>(unit.get())].layout.tensors()) {
    auto const part = shard::intersect(tensor.range, range);
    for (std::int64_t i = part.begin; i < part.end; ++i)
      values[static_cast<std::size_t>(i - range.begin)] =
          value_of(schema, kind, tensor.name, i - tensor.range.begin);
  }
  return values;
}

}  // namespace

AlignedBytes shard_bytes(CheckpointSchema const& schema, UnitId unit, SavedKind kind,
                         shard::Range range) {
  auto const values = fill_range(schema, unit, kind, range, 7.0e7f);
  AlignedBytes out(values.size() * size_of(schema.type(kind)));
  if (schema.type(kind) == DType::f32) {
    if (!values.empty()) std::memcpy(out.span().data(), values.data(), out.span().size());
  } else {
    auto* const narrow = reinterpret_cast<bf16*>(out.span().data());
    for (std::size_t i = 0; i < values.size(); ++i) narrow[i] = bf16(values[i]);
  }
  return out;
}

std::vector<float> expected_range(CheckpointSchema const& schema, UnitId unit, SavedKind kind,
                                  shard::Range range) {
  return fill_range(schema, unit, kind, range, 0.0f);
}

std::vector<float> as_floats(DType type, std::span<std::byte const> bytes) {
  std::vector<float> values(bytes.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == DType::f32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else {
      bf16 narrow;
      std::memcpy(&narrow, bytes.data() + 2 * i, 2);
      values[i] = static_cast<float>(narrow);
    }
  }
  return values;
}

std::unique_ptr<Engine> test_engine() {
  return make_engine(EngineKind::threads, {}, fs::temp_directory_path().string());
}

std::vector<std::vector<std::byte>> write_shards(fs::path const& directory,
                                                 CheckpointSchema const& schema, int ranks,
                                                 Engine& engine) {
  std::vector<std::vector<std::byte>> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    ShardWriter writer(directory, schema, Rank{rank}, ranks, engine);
    for (std::size_t i = 0; i < schema.units.size(); ++i) {
      UnitId const unit{static_cast<int>(i)};
      auto const range = schema.units[i].layout.shard_range(Rank{rank}, ranks);
      for (SavedKind kind : all_kinds(schema)) {
        auto bytes = shard_bytes(schema, unit, kind, range);
        std::size_t const piece = kChecksumElements * size_of(schema.type(kind));
        std::vector<Ticket> tickets;
        for (std::size_t at = 0; at < bytes.span().size(); at += piece)
          tickets.push_back(
              writer.write(unit, kind, static_cast<std::int64_t>(at / size_of(schema.type(kind))),
                           bytes.span().subspan(at, std::min(piece, bytes.span().size() - at))));
        for (auto& ticket : tickets) ticket.wait();
      }
    }
    parts.push_back(writer.finish());
  }
  return parts;
}

TrainingState state_at(std::int64_t step) {
  return {step, step * 4096, step * 8 + 3, R"({"sampler": {"seed": 5}, "loss_scale": 1})"};
}

fs::path save(fs::path const& checkpoints, CheckpointSchema const& schema, int ranks,
              std::int64_t step, Engine& engine, CommitHook const& hook) {
  auto const parts = write_shards(prepare_checkpoint(checkpoints, step), schema, ranks, engine);
  return commit_checkpoint(checkpoints, schema, state_at(step), parts, hook);
}

Outcome run(std::string const& command) {
  Outcome outcome;
  std::FILE* const pipe = ::popen(("( " + command + " ) 2>&1").c_str(), "r");
  if (pipe == nullptr) fail(Fault::io, "cannot run " + command);
  std::array<char, 4096> buffer;
  while (std::size_t const got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.output.append(buffer.data(), got);
  int const status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

int status_of_child(std::function<void()> const& action) {
  pid_t const child = ::fork();
  if (child == 0) {
    try {
      action();
    } catch (std::exception const& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(99);
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void flip_bit(fs::path const& file, std::uint64_t byte, int bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(byte));
  char const value = static_cast<char>(stream.get());
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(value ^ (1 << bit)));
  ASSERT_TRUE(stream.good());
}

std::string error_of(std::function<void()> const& action) {
  try {
    action();
  } catch (Error const& error) {
    return error.what();
  }
  return "";
}

}  // namespace spillway::io::test
