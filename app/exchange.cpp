#include "app/exchange.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/checkpoint_paths.hpp"
#include "app/small_file.hpp"
#include "io/safetensors/safetensors.hpp"
#include "io/safetensors/safetensors_weights.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"
#include "lib/device/device.hpp"
#include "lib/model/spec.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<io::Engine> engine_for(fs::path const& directory) {
  return io::make_engine(io::EngineKind::automatic, {}, directory.string());
}

DType dtype_flag(CommandLine const& line, DType otherwise) {
  if (!line.has("dtype")) return otherwise;
  DType const type = dtype_from_name(line.flag("dtype"));
  if (type != DType::f32 && type != DType::bf16)
    fail(Fault::usage,
         fmt::format("bad value '{}' for --dtype (it takes fp32 or bf16).", line.flag("dtype")));
  return type;
}

/// Tensors of a checkpoint as the safetensors writer asks for them.
class CheckpointTensors : public io::TensorReader {
 public:
  CheckpointTensors(io::CheckpointReader const& reader, io::SavedKind kind, io::Engine& engine)
      : reader_(reader), kind_(kind), engine_(engine) {}
  void read(io::TensorInfo const& tensor, std::int64_t begin, std::span<float> out) override {
    reader_.read_tensor(kind_, tensor.name, begin, out, engine_);
  }

 private:
  io::CheckpointReader const& reader_;
  io::SavedKind kind_;
  io::Engine& engine_;
};

/// The tensors that the model's description asks for; the checkpoint has to hold just these.
std::vector<io::TensorInfo> tensors_to_export(io::CheckpointReader const& reader, DType type) {
  auto const& schema = reader.schema();
  auto const origin = reader.directory().string() + ": config.json";
  model::ModelSpec const spec = model::make_spec(model::parse_config(schema.config_json, origin));
  io::CheckpointSchema described = schema;
  described.units.clear();
  std::vector<io::TensorInfo> tensors;
  for (std::size_t i = 0; i < spec.units.size(); ++i) {
    described.units.push_back({spec.units[i].name, spec.layout(UnitId{static_cast<int>(i)})});
    for (auto const& tensor : spec.units[i].tensors)
      tensors.push_back({tensor.name, type, tensor.shape});
  }
  reader.check_model(described);
  return tensors;
}

/// config.json as it came in; only its note of the element type, where it has one, follows the
/// file.
std::string exported_config(std::string const& config_json, DType type) {
  auto config = nlohmann::ordered_json::parse(config_json);
  for (char const* key : {"torch_dtype", "dtype"})
    if (config.contains(key)) config[key] = type == DType::bf16 ? "bfloat16" : "float32";
  return config.dump(2) + "\n";
}

/// Reads back what was written: every tensor has to be there with its shape and type.
void check_export(fs::path const& folder, std::vector<io::TensorInfo> const& tensors) {
  io::SafetensorsFolder const written(folder);
  for (auto const& tensor : tensors) {
    io::TensorInfo const* found = written.find(tensor.name);
    bool const same =
        found != nullptr && found->shape == tensor.shape && found->type == tensor.type;
    if (!same)
      fail(Fault::io, fmt::format("'{}' was written without tensor '{}' as it should be. Try "
                                  "again?",
                                  folder.string(), tensor.name));
  }
  if (written.tensors().size() != tensors.size())
    fail(Fault::io, fmt::format("'{}' holds {} tensors instead of {}. Use an empty folder?",
                                folder.string(), written.tensors().size(), tensors.size()));
}

void refuse_existing(fs::path const& folder) {
  for (char const* name : {"model.safetensors", "model.safetensors.index.json", "config.json"})
    if (fs::exists(folder / name))
      fail(Fault::usage, fmt::format("'{}' is there already (an export does not replace a model). "
                                     "Use another folder?",
                                     (folder / name).string()));
}

void make_directory(fs::path const& directory) {
  std::error_code code;
  fs::create_directories(directory, code);
  if (code)
    fail(Fault::io, fmt::format("cannot create '{}' ({}).", directory.string(), code.message()));
}

/// Fills one rank's shards of a checkpoint from weights, a piece at a time.
class Importer {
 public:
  Importer(model::ModelSpec const& spec, model::WeightSource& weights, io::ShardWriter& writer,
           DType weight_type)
      : spec_(spec), weights_(weights), writer_(writer), weight_type_(weight_type) {
    values_ = std::vector<float>(kPiece);
    memory_ = device::make_cpu_device()->allocate(kPiece * sizeof(float));
  }

  void run(io::CheckpointSchema const& schema) {
    for (std::size_t i = 0; i < schema.units.size(); ++i) {
      UnitId const unit{static_cast<int>(i)};
      std::int64_t const elements = schema.units[i].layout.shard_elements(1);
      for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
        std::int64_t const count = std::min(kPiece, elements - begin);
        gather(unit, schema.units[i].layout, {begin, begin + count});
        put(unit, io::SavedKind::weight, begin, count);
        if (schema.has(io::SavedKind::master)) put(unit, io::SavedKind::master, begin, count);
        std::fill(values_.begin(), values_.end(), 0.0f);
        put(unit, io::SavedKind::m, begin, count);
        put(unit, io::SavedKind::v, begin, count);
      }
    }
  }

 private:
  static constexpr std::int64_t kPiece = 16 * io::kChecksumElements;

  /// Values of a range of a unit's flat, 0 in the padding.
  void gather(UnitId unit, shard::FlatLayout const& layout, shard::Range piece) {
    std::fill(values_.begin(), values_.end(), 0.0f);
    for (auto const& tensor : spec_.units[static_cast<std::size_t>(unit.get())].tensors) {
      shard::Range const place = layout.find(tensor.name).range;
      shard::Range const part = shard::intersect(place, piece);
      if (part.size() == 0) continue;
      auto const at = static_cast<std::size_t>(part.begin - piece.begin);
      weights_.read(tensor, part.begin - place.begin,
                    std::span(values_).subspan(at, static_cast<std::size_t>(part.size())));
    }
  }

  void put(UnitId unit, io::SavedKind kind, std::int64_t begin, std::int64_t count) {
    bool const narrow_type = kind == io::SavedKind::weight && weight_type_ == DType::bf16;
    std::span<std::byte> const bytes = memory_->bytes();
    for (std::int64_t i = 0; i < count; ++i) {
      auto const at = static_cast<std::size_t>(i);
      if (narrow_type) {
        bf16 const value(values_[at]);
        std::memcpy(bytes.data() + at * sizeof value, &value, sizeof value);
      } else {
        std::memcpy(bytes.data() + at * sizeof(float), &values_[at], sizeof(float));
      }
    }
    std::size_t const size = static_cast<std::size_t>(count) * (narrow_type ? 2 : 4);
    writer_.write(unit, kind, begin, bytes.first(size)).wait();
  }

  model::ModelSpec const& spec_;
  model::WeightSource& weights_;
  io::ShardWriter& writer_;
  DType weight_type_;
  std::vector<float> values_;
  std::unique_ptr<device::Block> memory_;
};

io::CheckpointSchema schema_of(model::ModelSpec const& spec, DType weight_type) {
  io::CheckpointSchema schema;
  schema.weight_type = weight_type;
  schema.config_json = spec.config.json;
  for (std::size_t i = 0; i < spec.units.size(); ++i)
    schema.units.push_back({spec.units[i].name, spec.layout(UnitId{static_cast<int>(i)})});
  return schema;
}

}  // namespace

int export_checkpoint(CommandLine const& line) {
  io::CheckpointReader const reader(one_checkpoint(line.positional.at(0)));
  fs::path const folder = line.positional.at(1);
  DType const type = dtype_flag(line, reader.schema().weight_type);
  std::uint64_t const shard_bytes = parse_bytes(line.flag("shard-bytes", "5GB"));
  auto const tensors = tensors_to_export(reader, type);
  refuse_existing(folder);
  make_directory(folder);
  auto const engine = engine_for(folder);
  bool const from_master = type == DType::f32 && reader.schema().has(io::SavedKind::master);
  CheckpointTensors source(reader, from_master ? io::SavedKind::master : io::SavedKind::weight,
                           *engine);
  io::write_safetensors(folder, tensors, source, shard_bytes);
  check_export(folder, tensors);
  // Last: a folder without it is no model.
  write_small_file(folder / "config.json", exported_config(reader.schema().config_json, type));
  fmt::print("{}: step {}, {} tensors in {}\n", folder.string(), reader.state().step,
             tensors.size(), name_of(type));
  return 0;
}

int import_checkpoint(CommandLine const& line) {
  fs::path const folder = line.positional.at(0);
  if (folder.extension() == ".gguf")
    fail(Fault::usage, fmt::format("'{}' cannot be imported (GGUF is not available in this "
                                   "version). Use a Hugging Face folder?",
                                   folder.string()));
  fs::path const checkpoints = line.positional.at(1);
  DType const type = dtype_flag(line, DType::f32);
  fs::path const config = folder / "config.json";
  model::ModelSpec const spec =
      model::make_spec(model::parse_config(read_small_file(config), config.string()));
  io::SafetensorsWeights weights(folder, spec);
  make_directory(checkpoints);
  if (fs::exists(checkpoints / io::checkpoint_name(0)))
    fail(Fault::usage, fmt::format("'{}' is there already (an import does not replace a "
                                   "checkpoint). Use another directory?",
                                   (checkpoints / io::checkpoint_name(0)).string()));
  io::CheckpointSchema const schema = schema_of(spec, type);
  auto const engine = engine_for(checkpoints);
  io::ShardWriter writer(io::prepare_checkpoint(checkpoints, 0), schema, Rank{0}, 1, *engine);
  Importer(spec, weights, writer, type).run(schema);
  auto const path = io::commit_checkpoint(checkpoints, schema, {}, {writer.finish()});
  fmt::print("{}: {} parameters in {}\n", path.string(), spec.parameters, name_of(type));
  return 0;
}

}  // namespace spillway::app
