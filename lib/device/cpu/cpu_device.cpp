// Host memory as anonymous maps with huge pages where the kernel gives them, and inline streams.
#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/device/device.hpp"

namespace spillway::device {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

class HostBlock : public Block {
 public:
  explicit HostBlock(std::size_t bytes) : bytes_(bytes), mapped_(bytes + kHugePage) {
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map_ == MAP_FAILED)
      fail(Fault::no_room,
           fmt::format("cannot map {} of host memory: {}", format_bytes(bytes), errno_text(errno)));
    auto const address = reinterpret_cast<std::uintptr_t>(map_);
    start_ = reinterpret_cast<std::byte*>(round_up<std::uintptr_t>(address, kHugePage));
    ::madvise(start_, bytes_, MADV_HUGEPAGE);  // a wish: small pages only cost time
  }
  HostBlock(HostBlock const&) = delete;
  HostBlock& operator=(HostBlock const&) = delete;
  ~HostBlock() override { ::munmap(map_, mapped_); }
  std::span<std::byte> bytes() override { return {start_, bytes_}; }

 private:
  std::size_t bytes_;
  std::size_t mapped_;
  void* map_;
  std::byte* start_;
};

class CpuStream : public Stream {
 public:
  CpuStream(std::size_t scratch_bytes, int threads) : scratch_(scratch_bytes), threads_(threads) {}
  std::span<std::byte> scratch() override { return scratch_.bytes(); }
  int threads() const override { return threads_; }
  std::shared_ptr<void>& attachment() override { return attachment_; }
  void synchronize() override {}

 private:
  HostBlock scratch_;
  int threads_;
  std::shared_ptr<void> attachment_;
};

class CpuDevice : public Device {
 public:
  std::string name() const override { return "cpu"; }
  bool shares_host_memory() const override { return true; }
  std::unique_ptr<Block> allocate(std::size_t bytes) override {
    return std::make_unique<HostBlock>(bytes);
  }
  std::unique_ptr<Stream> make_stream(std::size_t scratch_bytes, int threads) override {
    return std::make_unique<CpuStream>(scratch_bytes, threads);
  }
  void copy_in(std::span<std::byte const> host, std::span<std::byte> device, Stream&) override {
    expect(host.size() == device.size(), "both sides of a copy have one size");
    std::memcpy(device.data(), host.data(), host.size());
  }
  void copy_out(std::span<std::byte const> device, std::span<std::byte> host, Stream&) override {
    expect(host.size() == device.size(), "both sides of a copy have one size");
    std::memcpy(host.data(), device.data(), device.size());
  }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace spillway::device
