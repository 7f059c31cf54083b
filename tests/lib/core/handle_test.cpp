// Strong integers and owners of foreign handles.
#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "lib/core/strong.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway {
namespace {

struct Recorder {
  using Raw = int;
  static Raw null() noexcept { return -1; }
  static void close(Raw raw) noexcept { closed().push_back(raw); }
  static std::vector<int>& closed() {
    static std::vector<int> list;
    return list;
  }
};
using Handle = UniqueHandle<Recorder>;

class HandleTest : public testing::Test {
 protected:
  HandleTest() { Recorder::closed().clear(); }
};

TEST_F(HandleTest, closes_once_at_the_end) {
  { Handle const handle(3); }
  EXPECT_EQ(Recorder::closed(), std::vector<int>{3});
}

TEST_F(HandleTest, null_is_never_closed) {
  { Handle const handle; }
  EXPECT_TRUE(Recorder::closed().empty());
  EXPECT_FALSE(Handle());
  EXPECT_TRUE(Handle(0));
}

TEST_F(HandleTest, moving_hands_over_and_assigning_closes_the_old) {
  {
    Handle first(1);
    Handle second(2);
    second = std::move(first);
    EXPECT_EQ(Recorder::closed(), std::vector<int>{2});
    EXPECT_EQ(second.get(), 1);
    Handle const third(std::move(second));
    EXPECT_EQ(third.get(), 1);
  }
  EXPECT_EQ(Recorder::closed(), (std::vector<int>{2, 1}));
}

TEST_F(HandleTest, released_handles_are_not_closed) {
  {
    Handle handle(4);
    EXPECT_EQ(handle.release(), 4);
  }
  EXPECT_TRUE(Recorder::closed().empty());
}

TEST_F(HandleTest, cannot_be_copied) {
  EXPECT_FALSE(std::is_copy_constructible_v<Handle>);
  EXPECT_FALSE(std::is_copy_assignable_v<Handle>);
}

TEST(StrongTest, does_not_mix_with_numbers_or_other_kinds) {
  EXPECT_FALSE((std::is_convertible_v<int, Rank>));
  EXPECT_FALSE((std::is_convertible_v<Rank, int>));
  EXPECT_FALSE((std::is_convertible_v<Rank, UnitId>));
  EXPECT_LT(Rank{1}, Rank{2});
  EXPECT_EQ(Step{7}.get(), 7);
  EXPECT_EQ(Rank{}, Rank{0});
}

}  // namespace
}  // namespace spillway
