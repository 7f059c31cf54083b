// A processor: its name, its memory, its streams. cpu/ and cuda/ (or no_cuda/) implement it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lib/device/stream.hpp"

namespace spillway::device {

/// Owner of one large block of a device's memory, 2 MiB aligned. Claimed at the start, never in a
/// step.
class Block {
 public:
  virtual ~Block() = default;
  virtual std::span<std::byte> bytes() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  /// True where the device computes in host memory, so that shards need no staging copy.
  virtual bool shares_host_memory() const = 0;
  /// Throws Fault::no_room with the bytes asked for.
  virtual std::unique_ptr<Block> allocate(std::size_t bytes) = 0;
  /// A stream with `scratch_bytes` of scratch and, on the CPU, `threads` threads.
  virtual std::unique_ptr<Stream> make_stream(std::size_t scratch_bytes, int threads) = 0;
  virtual void copy_in(std::span<std::byte const> host, std::span<std::byte> device, Stream&) = 0;
  virtual void copy_out(std::span<std::byte const> device, std::span<std::byte> host, Stream&) = 0;
};

/// The CPU: host memory from anonymous maps, OpenMP threads.
std::unique_ptr<Device> make_cpu_device();

/// Number of CUDA devices; 0 where the program was built without CUDA or no driver is found.
int cuda_device_count();

}  // namespace spillway::device
