// The cases of the contract. Expected values are computed here from what each rank is known to
// hold.
#include "tests/lib/comm/communicator_contract.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "lib/device/device.hpp"

namespace spillway::test {
namespace {

using comm::Communicator;

std::uint64_t mixed(std::uint64_t value) {  // any bijection that scrambles will do
  value = (value ^ (value >> 31)) * 0x7fb5d329728ea185ULL;
  value = (value ^ (value >> 27)) * 0x81dadef4bc2dd44dULL;
  return value ^ (value >> 33);
}

/// Byte `i` of what `rank` contributes in round `salt`; cheap, since millions are checked.
std::byte byte_of(int rank, std::size_t i, std::uint64_t salt) {
  std::uint64_t const place = i + static_cast<std::uint64_t>(rank) * 104'729 + salt * 7'919;
  return static_cast<std::byte>((place * 0x9e3779b97f4a7c15ULL) >> 56);
}

/// Of either sign and of magnitudes from 2^-12 to 2^12, so that the order of a sum shows in its
/// bits.
float float_of(int rank, std::size_t i, std::uint64_t salt) {
  std::uint64_t const bits = mixed(i * 64 + static_cast<std::uint64_t>(rank) + (salt << 48));
  float const fraction = 1.0F + static_cast<float>(bits & 0x7fffff) / 8388608.0F;
  float const scale = static_cast<float>(std::uint64_t{1} << ((bits >> 32) % 25)) / 4096.0F;
  return ((bits >> 40) & 1) != 0 ? -fraction * scale : fraction * scale;
}

float sum_of_ranks(int ranks, std::size_t i, std::uint64_t salt) {
  float sum = float_of(0, i, salt);
  for (int rank = 1; rank < ranks; ++rank) sum = sum + float_of(rank, i, salt);
  return sum;
}

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

class Fixture {
 public:
  explicit Fixture(Communicator& communicator)
      : communicator_(communicator),
        device_(device::make_cpu_device()),
        stream_(device_->make_stream(0, 1)) {}

  Communicator& communicator() { return communicator_; }
  int rank() const { return communicator_.rank().get(); }
  int size() const { return communicator_.size(); }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  std::size_t index() const { return static_cast<std::size_t>(rank()); }

  void check_all_gather(std::size_t part, std::uint64_t salt) {
    std::vector<std::byte> whole(part * ranks());
    for (std::size_t i = 0; i < part; ++i) whole[index() * part + i] = byte_of(rank(), i, salt);
    communicator_.all_gather(whole, *stream_);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < whole.size(); ++i)
      wrong += whole[i] != byte_of(static_cast<int>(i / part), i % part, salt) ? 1 : 0;
    EXPECT_EQ(wrong, 0U) << "part of " << part << " bytes, " << size() << " ranks";
  }

  enum class Own { apart, within };
  void check_reduce_scatter(std::size_t part, std::uint64_t salt, Own where) {
    std::vector<float> whole(part * ranks());
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = float_of(rank(), i, salt);
    std::vector<float> apart(where == Own::apart ? part : 0);
    std::span<float> const own =
        where == Own::apart ? std::span(apart) : std::span(whole).subspan(index() * part, part);
    communicator_.reduce_scatter(whole, own, *stream_);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < part; ++i)
      wrong += bits_of(own[i]) != bits_of(sum_of_ranks(size(), index() * part + i, salt)) ? 1 : 0;
    EXPECT_EQ(wrong, 0U) << "part of " << part << " floats, " << size() << " ranks";
  }

  device::Stream& stream() { return *stream_; }

 private:
  Communicator& communicator_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
};

void every_rank_has_its_place(Communicator& communicator) {
  ASSERT_GE(communicator.rank().get(), 0);
  ASSERT_LT(communicator.rank().get(), communicator.size());
  EXPECT_EQ(communicator.local_size(), communicator.size()) << "the tests run on one host";
  EXPECT_EQ(communicator.local_rank(), communicator.rank().get());
  double const mine = communicator.rank().get();
  std::vector<double> const all = communicator.all_gather_values(std::span(&mine, 1));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<double>(i));
}

void barriers_return(Communicator& communicator) {
  for (int i = 0; i < 50; ++i) communicator.barrier();
}

void all_gather_brings_every_part_to_its_place(Communicator& communicator) {
  Fixture fixture(communicator);
  std::uint64_t salt = 0;
  // Nothing, a byte, a page, around the sizes of slots, and more than a message chunk of 4 MiB.
  for (std::size_t part : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{65'536},
                           std::size_t{131'073}, std::size_t{262'144}, std::size_t{4'500'001}})
    fixture.check_all_gather(part, ++salt);
}

void reduce_scatter_sums_in_rank_order_to_the_bit(Communicator& communicator) {
  Fixture fixture(communicator);
  std::uint64_t salt = 100;
  for (std::size_t part : {0, 1, 3, 1024, 4095, 32'768, 400'003})
    fixture.check_reduce_scatter(part, ++salt, Fixture::Own::apart);
}

void reduce_scatter_may_write_into_the_whole(Communicator& communicator) {
  Fixture fixture(communicator);
  std::uint64_t salt = 200;
  for (std::size_t part : {1, 1023, 1025, 70'001})
    fixture.check_reduce_scatter(part, ++salt, Fixture::Own::within);
}

void reduce_scatter_keeps_the_whole_where_own_is_apart(Communicator& communicator) {
  Fixture fixture(communicator);
  std::vector<float> whole(5000 * fixture.ranks(), static_cast<float>(fixture.rank()));
  std::vector<float> own(5000);
  communicator.reduce_scatter(whole, own, fixture.stream());
  EXPECT_EQ(whole, std::vector<float>(whole.size(), static_cast<float>(fixture.rank())));
}

void the_order_of_a_sum_shows_in_its_bits(Communicator& communicator) {
  if (communicator.size() < 3) return;  // with two ranks both orders are the same sum
  int differing = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    float backwards = float_of(communicator.size() - 1, i, 1);
    for (int rank = communicator.size() - 2; rank >= 0; --rank) backwards += float_of(rank, i, 1);
    differing += bits_of(backwards) != bits_of(sum_of_ranks(communicator.size(), i, 1)) ? 1 : 0;
  }
  EXPECT_GT(differing, 100) << "the other cases could not tell one order from another";
}

void broadcast_copies_from_any_root(Communicator& communicator) {
  for (int root = 0; root < communicator.size(); ++root) {
    for (std::size_t size : {0, 1, 4096, 1'000'001}) {
      std::vector<std::byte> data(size);
      for (std::size_t i = 0; i < size; ++i) data[i] = byte_of(communicator.rank().get(), i, 300);
      communicator.broadcast(data, Rank{root});
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < size; ++i) wrong += data[i] != byte_of(root, i, 300) ? 1 : 0;
      EXPECT_EQ(wrong, 0U) << size << " bytes from rank " << root;
    }
  }
}

void values_are_concatenated_in_rank_order(Communicator& communicator) {
  for (std::size_t count : {0, 1, 7, 1000}) {
    std::vector<double> mine(count);
    for (std::size_t i = 0; i < count; ++i)
      mine[i] = communicator.rank().get() * 1e6 + static_cast<double>(i) + 0.125;
    std::vector<double> const all = communicator.all_gather_values(mine);
    ASSERT_EQ(all.size(), count * static_cast<std::size_t>(communicator.size()));
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i],
                static_cast<double>(i / count) * 1e6 + static_cast<double>(i % count) + 0.125);
  }
}

void gather_brings_strings_of_any_length_to_the_root(Communicator& communicator) {
  auto const length = [](int rank) { return static_cast<std::size_t>(rank % 3) * 40'003; };
  for (int root = 0; root < communicator.size(); ++root) {
    std::vector<std::byte> mine(length(communicator.rank().get()));
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] = byte_of(communicator.rank().get(), i, 400);
    auto const all = communicator.gather(mine, Rank{root});
    if (communicator.rank().get() != root) {
      EXPECT_TRUE(all.empty());
      continue;
    }
    ASSERT_EQ(all.size(), static_cast<std::size_t>(communicator.size()));
    for (int rank = 0; rank < communicator.size(); ++rank) {
      auto const& theirs = all[static_cast<std::size_t>(rank)];
      ASSERT_EQ(theirs.size(), length(rank));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < theirs.size(); ++i)
        wrong += theirs[i] != byte_of(rank, i, 400) ? 1 : 0;
      EXPECT_EQ(wrong, 0U);
    }
  }
}

void sent_bytes_count_what_goes_to_others(Communicator& communicator) {
  Fixture fixture(communicator);
  std::uint64_t const others = fixture.ranks() - 1;
  std::vector<std::byte> bytes(1000 * fixture.ranks());
  std::vector<float> floats(300 * fixture.ranks());
  std::vector<float> own(300);
  std::uint64_t const before = communicator.sent_bytes();
  communicator.all_gather(bytes, fixture.stream());
  EXPECT_EQ(communicator.sent_bytes() - before, others * 1000);
  communicator.reduce_scatter(floats, own, fixture.stream());
  EXPECT_EQ(communicator.sent_bytes() - before, others * (1000 + 1200));
  communicator.broadcast(bytes, Rank{0});
  communicator.barrier();
  std::uint64_t const broadcast = fixture.rank() == 0 ? others * bytes.size() : 0;
  EXPECT_EQ(communicator.sent_bytes() - before, others * 2200 + broadcast);
}

void delays_change_no_bit(Communicator& communicator) {
  Fixture fixture(communicator);
  for (std::uint64_t round = 0; round < 40; ++round) {
    std::uint64_t const random = mixed(round * 64 + fixture.index() + 12345);
    if (random % 3 == 0) ::usleep(static_cast<useconds_t>(random >> 8) % 2000);
    fixture.check_reduce_scatter(1 + (mixed(round) % 30'000), 500 + round,
                                 round % 2 == 0 ? Fixture::Own::apart : Fixture::Own::within);
    if (random % 5 == 0) ::usleep(static_cast<useconds_t>(random >> 16) % 2000);
    fixture.check_all_gather(1 + (mixed(round + 99) % 50'000), 600 + round);
  }
}

}  // namespace

std::vector<ContractCase> contract_cases() {
  return {
      {"every_rank_has_its_place", every_rank_has_its_place},
      {"barriers_return", barriers_return},
      {"all_gather_brings_every_part_to_its_place", all_gather_brings_every_part_to_its_place},
      {"reduce_scatter_sums_in_rank_order_to_the_bit",
       reduce_scatter_sums_in_rank_order_to_the_bit},
      {"reduce_scatter_may_write_into_the_whole", reduce_scatter_may_write_into_the_whole},
      {"reduce_scatter_keeps_the_whole_where_own_is_apart",
       reduce_scatter_keeps_the_whole_where_own_is_apart},
      {"the_order_of_a_sum_shows_in_its_bits", the_order_of_a_sum_shows_in_its_bits},
      {"broadcast_copies_from_any_root", broadcast_copies_from_any_root},
      {"values_are_concatenated_in_rank_order", values_are_concatenated_in_rank_order},
      {"gather_brings_strings_of_any_length_to_the_root",
       gather_brings_strings_of_any_length_to_the_root},
      {"sent_bytes_count_what_goes_to_others", sent_bytes_count_what_goes_to_others},
      {"delays_change_no_bit", delays_change_no_bit},
  };
}

}  // namespace spillway::test
