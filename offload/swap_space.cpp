#include "offload/swap_space.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <system_error>

#include "lib/core/error.hpp"

namespace spillway::offload {

SwapSpace::SwapSpace(std::vector<std::filesystem::path> const& directories,
                     std::vector<std::uint64_t> const& bytes, std::string const& tag) {
  for (std::size_t at = 0; at < directories.size(); ++at) {
    std::error_code error;
    std::filesystem::create_directories(directories[at], error);
    if (error)
      fail(Fault::io, fmt::format("cannot make the swap directory {} ({}). Choose another "
                                  "offload.nvme?",
                                  directories[at].string(), error.message()));
    auto const name = fmt::format("spillway-{}-pid{}-{}.swap", tag, ::getpid(), at);
    io::File file(directories[at] / name, io::Access::write_new);
    file.unlink();
    doing("reserving swap space", [&] { file.reserve(bytes[at]); });
    total_ += bytes[at];
    files_.push_back(std::move(file));
  }
}

void SwapSpace::drop_caches() const {
  for (auto const& file : files_)
    if (!file.direct()) file.drop_cache();
}

}  // namespace spillway::offload
