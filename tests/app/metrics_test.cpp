// Lines of metrics.jsonl as a strict reader sees them, and what is left of them on resume.
#include "app/metrics.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <limits>

#include "app/progress.hpp"
#include "tests/app/process.hpp"

namespace spillway::app {
namespace {

train::StepReport report(std::int64_t step) {
  train::StepReport r;
  r.step = step;
  r.loss = 0.1 + 0.2;
  r.grad_norm = 1e-310;
  r.lr = 3e-4;
  r.tokens = (std::int64_t{1} << 53) + 1;
  r.tokens_per_s = 12345.678;
  r.step_ms = 1.0 / 3.0;
  r.stall_ms = 0;
  r.mfu = 0.25;
  r.read_bytes = std::numeric_limits<std::uint64_t>::max();
  r.written_bytes = 2;
  r.sent_bytes = 3;
  r.rss_bytes = 4;
  r.skipped = 1;
  return r;
}

/// Runs a Python program over the file: NaN and Infinity, which JSON has not, are refused.
test::Finished python(std::string const& file, std::string const& program) {
  return test::run_shell(
      "/usr/bin/python3 - '" + file +
      "' <<'EOS'\nimport json, struct, sys\n"
      "def refuse(word): raise ValueError(word)\n"
      "rows = [json.loads(line, parse_constant=refuse) for line in open(sys.argv[1])]\n" +
      program + "\nEOS");
}

TEST(metrics, lines_have_the_designed_keys_and_read_back_to_the_same_doubles) {
  test::TempDir const directory;
  std::string const file = directory.file("metrics.jsonl");
  Metrics metrics(file);
  metrics.write(report(1));
  metrics.write(report(2), {{"val_loss", 2.5}});
  auto const checked = python(file, R"(
keys = ["step", "loss", "grad_norm", "lr", "tokens", "tokens_per_s", "step_ms", "stall_ms", "mfu",
        "read_bytes", "written_bytes", "sent_bytes", "rss_bytes", "skipped"]
assert list(rows[0]) == keys, list(rows[0])
assert list(rows[1]) == keys + ["val_loss"]
bits = lambda x: struct.pack("d", x)
assert bits(rows[0]["loss"]) == bits(0.1 + 0.2)
assert bits(rows[0]["grad_norm"]) == bits(1e-310)
assert bits(rows[0]["step_ms"]) == bits(1.0 / 3.0)
assert rows[0]["tokens"] == 2**53 + 1
assert rows[0]["read_bytes"] == 2**64 - 1
assert [row["step"] for row in rows] == [1, 2]
assert rows[0]["skipped"] == 1 and rows[1]["val_loss"] == 2.5
print("fine"))");
  EXPECT_EQ(checked.out, "fine\n") << checked.err;
}

TEST(metrics, what_is_not_finite_is_null_with_its_text) {
  test::TempDir const directory;
  std::string const file = directory.file("metrics.jsonl");
  train::StepReport r = report(1);
  r.loss = std::numeric_limits<double>::quiet_NaN();
  r.grad_norm = std::numeric_limits<double>::infinity();
  r.lr = -r.grad_norm;
  Metrics(file).write(r);
  auto const checked = python(file, R"(
row = rows[0]
assert row["loss"] is None and row["loss_text"] == "nan"
assert row["grad_norm"] is None and row["grad_norm_text"] == "inf"
assert row["lr"] is None and row["lr_text"] == "-inf"
assert "mfu_text" not in row
print("fine"))");
  EXPECT_EQ(checked.out, "fine\n") << checked.err;
}

TEST(metrics, a_second_writer_appends) {
  test::TempDir const directory;
  std::string const file = directory.file("metrics.jsonl");
  Metrics(file).write(report(1));
  Metrics(file).write(report(2));
  EXPECT_EQ(test::read_file(file), metrics_line(report(1)) + metrics_line(report(2)));
}

TEST(metrics, cutting_back_leaves_the_steps_of_the_checkpoint_and_appends_after_them) {
  test::TempDir const directory;
  std::string const file = directory.file("metrics.jsonl");
  Metrics metrics(file);
  for (int step = 1; step <= 5; ++step) metrics.write(report(step));
  EXPECT_EQ(metrics.cut_back(3), 2);
  EXPECT_EQ(metrics.cut_back(3), 0);
  metrics.write(report(4));
  std::string expected;
  for (int step = 1; step <= 4; ++step) expected += metrics_line(report(step));
  EXPECT_EQ(test::read_file(file), expected);
  EXPECT_EQ(metrics.cut_back(0), 4);
  EXPECT_EQ(test::read_file(file), "");
}

TEST(metrics, torn_lines_are_removed_wherever_the_crash_tore_them) {
  test::TempDir const directory;
  std::string const file = directory.file("metrics.jsonl");
  std::string const first = metrics_line(report(1));
  std::string const last = metrics_line(report(2));
  for (std::size_t length = 0; length < last.size(); ++length) {
    test::write_file(file, first + last.substr(0, length));
    Metrics metrics(file);
    EXPECT_EQ(metrics.cut_back(9), length == 0 ? 0 : 1) << length;
    EXPECT_EQ(test::read_file(file), first) << length;
  }
  // What a power cut leaves of a file whose length was known, but not its bytes.
  test::write_file(file, first + std::string(4096, '\0'));
  EXPECT_EQ(Metrics(file).cut_back(9), 1);
  EXPECT_EQ(test::read_file(file), first);
  test::write_file(file, std::string("\0\0\n", 3) + "{}\n[1]\n{\"step\": \"1\"}\n" + first);
  EXPECT_EQ(Metrics(file).cut_back(9), 4);
  EXPECT_EQ(test::read_file(file), first);
}

TEST(progress, line_says_what_people_look_for) {
  train::StepReport r;
  r.step = 12;
  r.loss = 3.21456789;
  r.grad_norm = 1.23456;
  r.lr = 3e-4;
  r.tokens_per_s = 12345;
  r.step_ms = 2000;
  r.stall_ms = 100;
  r.mfu = 0.412;
  r.read_bytes = 1'500'000'000;
  r.written_bytes = 500'000'000;
  r.rss_bytes = std::uint64_t{3} << 30;
  EXPECT_EQ(
      progress_text(r, 100, 2.0),
      "step 12/100 | loss 3.21457 | norm 1.2346 | lr 3.000e-04 | 12.3k tokens/s | MFU 41.2% | "
      "memory 3 GiB | disk 1.00 GB/s | stalled 5% | 0:02:56 left");
  r.skipped = 1;
  EXPECT_NE(progress_text(r, 100, 1e5).find("101d 20:26:40 left | update skipped"),
            std::string::npos)
      << progress_text(r, 100, 1e5);
}

TEST(progress, plain_lines_come_every_few_steps_and_at_the_end) {
  testing::internal::CaptureStderr();
  {
    Progress progress({.steps = 5, .log_every = 2, .updating = false});
    for (int step = 1; step <= 5; ++step) progress.show(report(step));
  }
  std::string const skipped_text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(skipped_text.begin(), skipped_text.end(), '\n'), 5) << "skips always show";
  testing::internal::CaptureStderr();
  {
    Progress progress({.steps = 5, .log_every = 2, .updating = false});
    for (int step = 1; step <= 5; ++step) {
      auto r = report(step);
      r.skipped = 0;
      progress.show(r);
    }
  }
  std::string const text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.find("step 2/5"), 0u);
  EXPECT_NE(text.find("\nstep 5/5"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(progress, an_updating_line_overwrites_itself_and_ends_once) {
  testing::internal::CaptureStderr();
  {
    Progress progress({.steps = 2, .log_every = 1, .updating = true});
    progress.show(report(1));
    progress.show(report(2));
    progress.finish();
  }
  std::string const text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2);
}

}  // namespace
}  // namespace spillway::app
