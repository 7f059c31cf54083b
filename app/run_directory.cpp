#include "app/run_directory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/small_file.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

std::string now_utc() {
  std::time_t const now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

/// "host 4711" in words.
std::string holder(std::filesystem::path const& lock_file) {
  std::string const text = read_small_file(lock_file);
  auto const blank = text.find(' ');
  if (blank == std::string::npos) return "another process";
  return fmt::format("process {} on {}", text.substr(blank + 1, text.find('\n') - blank - 1),
                     text.substr(0, blank));
}

/// True if the file was there and is now taken away.
bool take(std::filesystem::path const& file) {
  std::string const taken = file.string() + ".taken";
  if (::rename(file.c_str(), taken.c_str()) == 0) return true;
  // Somebody without the right to be obeyed, or no request at all; neither stops a run.
  return false;
}

/// Starts so far; a file that cannot be read is put aside, not lost.
nlohmann::json earlier_starts(std::filesystem::path const& file) {
  if (!std::filesystem::exists(file)) return nlohmann::json::array();
  auto const old = nlohmann::json::parse(read_small_file(file), nullptr, false);
  if (old.is_object() && old.contains("starts") && old["starts"].is_array()) return old["starts"];
  std::filesystem::rename(file, file.string() + ".unreadable");
  return nlohmann::json::array();
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

RunDirectory::RunDirectory(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code code;
  std::filesystem::create_directories(path_, code);
  if (code || !std::filesystem::is_directory(path_))
    fail(Fault::io, fmt::format("cannot create the run directory '{}' ({}). Choose another "
                                "run.dir?",
                                path_.string(), code ? code.message() : "it is a file"));
  lock();
}

void RunDirectory::lock() {
  std::filesystem::path const file = path_ / "lock";
  lock_.reset(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock_)
    fail(Fault::io, fmt::format("cannot open '{}' ({}).", file.string(), errno_text(errno)));
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      fail(Fault::usage, fmt::format("the run directory '{}' is in use (by {}). Stop that run, or "
                                     "choose another run.dir?",
                                     path_.string(), holder(file)));
    // ENOLCK, ENOTSUP, ENOSYS: NFS without a lock daemon, Lustre without -o flock. The lock is a
    // safety net; the run itself does not need it.
    warning_ = fmt::format("'{}' cannot be locked ({}); nothing prevents a second run in it",
                           path_.string(), errno_text(errno));
  }
  if (::ftruncate(lock_.get(), 0) != 0)
    fail(Fault::io, fmt::format("cannot write '{}' ({}).", file.string(), errno_text(errno)));
  write_all(lock_.get(), fmt::format("{} {}\n", host_name(), ::getpid()), file);
}

void RunDirectory::write_config(Options const& options) const {
  write_small_file(path_ / "config.cfg", config_text(options));
}

void RunDirectory::write_provenance(Options const& options, Start const& start) const {
  std::filesystem::path const file = path_ / "provenance.json";
  nlohmann::json starts = earlier_starts(file);
  nlohmann::json entry = {{"time", now_utc()},     {"version", program_version()},
                          {"hosts", start.hosts},  {"ranks", start.hosts.size()},
                          {"process", ::getpid()}, {"resumed_step", start.resumed_step}};
  for (char const* name : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "OMP_NUM_THREADS"})
    if (char const* value = std::getenv(name)) entry[name] = value;
  starts.push_back(entry);
  nlohmann::json const all = {{"program", "spillway"},    {"version", program_version()},
                              {"build", version_text()},  {"mpi", start.mpi},
                              {"name", options.run.name}, {"config", config_text(options)},
                              {"starts", starts}};
  // A host name or path that is no UTF-8 must not end a run.
  auto const replace = nlohmann::json::error_handler_t::replace;
  write_small_file(file, all.dump(2, ' ', false, replace) + "\n");
}

Request RunDirectory::take_request() const {
  bool const save = take(path_ / "SAVE");
  bool const stop = take(path_ / "STOP");
  if (stop) return Request::stop;
  return save ? Request::save : Request::none;
}

}  // namespace spillway::app
