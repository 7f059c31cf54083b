// Facts from /proc and /sys against texts whose meaning is known, and against other programs.
#include "app/system_files.hpp"

#include <gtest/gtest.h>

#include "tests/app/process.hpp"

namespace spillway::app {
namespace {

TEST(system_files, ranges_are_written_short) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text({5}), "5");
  EXPECT_EQ(ranges_text({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(ranges_text({1, 3, 4}), "1,3-4");
}

TEST(system_files, values_are_found_by_their_whole_key) {
  test::TempDir const temp;
  std::string const file = temp.file("info");
  test::write_file(file, "model\t\t: 85\nmodel name\t: Some CPU @ 2 GHz\nMemTotal:  123 kB\n");
  EXPECT_EQ(system_value(file, "model name"), "Some CPU @ 2 GHz");
  EXPECT_EQ(system_value(file, "model"), "85");
  EXPECT_EQ(system_value(file, "MemTotal"), "123 kB");
  EXPECT_FALSE(system_value(file, "Mem"));
  EXPECT_FALSE(system_value(temp.file("absent"), "Mem"));
}

TEST(system_files, the_file_system_is_that_of_the_longest_mount_point) {
  std::string const mounts =
      "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "22 21 0:20 / /scratch rw - lustre mds:/fs rw\n"
      "23 22 0:21 / /scratch/my\\040disk rw - xfs /dev/nvme0n1 rw\n"
      "24 21 0:22 / /over rw - tmpfs tmpfs rw\n"
      "25 21 0:23 / /over rw - overlay overlay rw\n";
  EXPECT_EQ(file_system_of("/home/x", mounts), "ext4");
  EXPECT_EQ(file_system_of("/scratch/a", mounts), "lustre");
  EXPECT_EQ(file_system_of("/scratchy", mounts), "ext4");
  EXPECT_EQ(file_system_of("/scratch/my disk/x", mounts), "xfs");
  EXPECT_EQ(file_system_of("/over", mounts), "overlay");
  EXPECT_EQ(file_system_of("/x", ""), "unknown");
}

TEST(system_files, the_file_system_of_proc_is_proc) {
  EXPECT_EQ(file_system_of("/proc", *system_text("/proc/self/mountinfo")), "proc");
  EXPECT_EQ(file_system_of("/proc/self", *system_text("/proc/self/mountinfo")), "proc");
}

}  // namespace
}  // namespace spillway::app
