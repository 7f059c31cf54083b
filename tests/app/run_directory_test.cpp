// One run a directory, its records, and the files that ask it to save and stop.
#include "app/run_directory.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "lib/core/error.hpp"
#include "tests/app/process.hpp"

namespace spillway::app {
namespace {

/// Another process that holds a run directory until it is destroyed.
class Holder {
 public:
  explicit Holder(std::string const& directory) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (::pipe(in.data()) != 0 || ::pipe(out.data()) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      ::execl(SPILLWAY_HOLDER, SPILLWAY_HOLDER, directory.c_str(), "wait", nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    // It says "held" once it holds the directory.
    std::array<char, 64> text{};
    held_ = ::read(out[0], text.data(), text.size()) > 0 && std::string(text.data(), 4) == "held";
    ::close(out[0]);
  }
  ~Holder() {
    ::close(input_);
    ::waitpid(pid_, nullptr, 0);
  }
  Holder(Holder const&) = delete;
  Holder& operator=(Holder const&) = delete;

  pid_t pid() const { return pid_; }
  bool held() const { return held_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  bool held_ = false;
};

TEST(run_directory, is_made_with_the_folders_above_it) {
  test::TempDir const temp;
  RunDirectory const directory(temp.path() / "a" / "b");
  EXPECT_TRUE(std::filesystem::is_directory(temp.path() / "a" / "b"));
  EXPECT_EQ(directory.warning(), "");
}

TEST(run_directory, a_second_run_is_refused_naming_host_and_process) {
  test::TempDir const temp;
  Holder const holder(temp.file("run"));
  ASSERT_TRUE(holder.held());
  try {
    RunDirectory const second(temp.path() / "run");
    ADD_FAILURE() << "the directory was held twice";
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::usage);
    std::string const expected = "process " + std::to_string(holder.pid()) + " on " + host_name();
    EXPECT_NE(error.problem().find(expected), std::string::npos) << error.problem();
    EXPECT_NE(error.problem().find(temp.file("run")), std::string::npos) << error.problem();
  }
  // The refused one must not have touched the lock's text.
  EXPECT_EQ(test::read_file(temp.path() / "run" / "lock"),
            host_name() + " " + std::to_string(holder.pid()) + "\n");
}

TEST(run_directory, a_lock_of_a_killed_run_is_no_hindrance) {
  test::TempDir const temp;
  {
    Holder const holder(temp.file("run"));
    ASSERT_TRUE(holder.held());
    ::kill(holder.pid(), SIGKILL);
  }
  EXPECT_NO_THROW(RunDirectory(temp.path() / "run"));
  EXPECT_EQ(test::read_file(temp.path() / "run" / "lock"),
            host_name() + " " + std::to_string(::getpid()) + "\n");
}

TEST(run_directory, a_file_system_without_locks_is_a_warning) {
  test::TempDir const temp;
  for (auto const& [code, symbol] : {std::pair{ENOLCK, "ENOLCK"}, std::pair{ENOTSUP, "EOPNOTSUPP"},
                                     std::pair{ENOSYS, "ENOSYS"}}) {
    auto const finished = test::run_shell("REFUSE_FLOCK=" + std::to_string(code) +
                                          " " SPILLWAY_HOLDER_WITHOUT_LOCKS " " + temp.file("run"));
    EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
    EXPECT_NE(finished.out.find("cannot be locked"), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("(" + std::string(symbol) + ")"), std::string::npos)
        << finished.out;
  }
}

TEST(run_directory, a_path_that_cannot_be_a_directory_is_an_error_with_the_path) {
  test::TempDir const temp;
  test::write_file(temp.path() / "file", "x");
  for (char const* name : {"file", "file/below"}) {
    try {
      RunDirectory const directory(temp.path() / name);
      ADD_FAILURE() << name;
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::io);
      EXPECT_NE(error.problem().find(temp.file("file")), std::string::npos) << error.problem();
    }
  }
}

TEST(run_directory, config_reads_back_to_the_options) {
  test::TempDir const temp;
  RunDirectory const directory(temp.path());
  Options options;
  options.optim.lr = 0.1;
  options.offload.nvme = {"/a", "/b"};
  directory.write_config(options);
  CommandLine back;
  read_config(test::read_file(temp.path() / "config.cfg"), "config.cfg", back);
  EXPECT_EQ(back.options, options);
}

TEST(run_directory, provenance_keeps_every_start) {
  test::TempDir const temp;
  RunDirectory const directory(temp.path());
  Options options;
  options.run.name = "first";
  directory.write_provenance(options, {{"n1", "n2"}, "Some MPI 1.0", 0});
  directory.write_provenance(options, {{"n3"}, "Some MPI 1.0", 40});
  auto const json = nlohmann::json::parse(test::read_file(temp.path() / "provenance.json"));
  EXPECT_EQ(json["version"], program_version());
  EXPECT_EQ(json["mpi"], "Some MPI 1.0");
  EXPECT_EQ(json["config"], config_text(options));
  ASSERT_EQ(json["starts"].size(), 2u);
  EXPECT_EQ(json["starts"][0]["hosts"], (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(json["starts"][0]["ranks"], 2);
  EXPECT_EQ(json["starts"][1]["resumed_step"], 40);
}

TEST(run_directory, a_torn_provenance_is_put_aside) {
  test::TempDir const temp;
  RunDirectory const directory(temp.path());
  test::write_file(temp.path() / "provenance.json", "{\"starts\": [");
  directory.write_provenance({}, {{"n1"}, "", 0});
  auto const json = nlohmann::json::parse(test::read_file(temp.path() / "provenance.json"));
  EXPECT_EQ(json["starts"].size(), 1u);
  EXPECT_EQ(test::read_file(temp.path() / "provenance.json.unreadable"), "{\"starts\": [");
}

TEST(run_directory, requests_are_taken_once_and_stop_wins) {
  test::TempDir const temp;
  RunDirectory const directory(temp.path());
  EXPECT_EQ(directory.take_request(), Request::none);
  test::write_file(temp.path() / "SAVE", "");
  EXPECT_EQ(directory.take_request(), Request::save);
  EXPECT_EQ(directory.take_request(), Request::none);
  test::write_file(temp.path() / "SAVE", "");
  test::write_file(temp.path() / "STOP", "");
  EXPECT_EQ(directory.take_request(), Request::stop);
  EXPECT_EQ(directory.take_request(), Request::none);
  EXPECT_FALSE(std::filesystem::exists(temp.path() / "STOP"));
}

}  // namespace
}  // namespace spillway::app
