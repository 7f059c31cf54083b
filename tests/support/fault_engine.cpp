#include "tests/support/fault_engine.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "io/uring/choose_engine.hpp"

namespace spillway::test {

namespace {

using io::Direction;
using io::detail::Request;

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdu;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53u;
  return value ^ (value >> 33);
}

/// In [0, 1), the same for the same attempt at the same place.
class Dice {
 public:
  Dice(std::uint64_t seed, Request const& request)
      : state_(mixed(seed ^ mixed(request.offset + 1)) ^
               mixed(2 * std::uint64_t{request.fruitless} + 1 +
                     (request.transfer->direction == Direction::read ? 0 : 1))) {}
  double roll() {
    state_ = mixed(state_ + 0x9e3779b97f4a7c15u);
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_;
};

class Faults {
 public:
  explicit Faults(FaultPlan const& plan) : plan_(plan) {}

  std::int64_t operator()(Request const& request, std::int64_t result) {
    Direction const direction = request.transfer->direction;
    std::uint64_t const count = ++(direction == Direction::read ? reads_ : writes_);
    Dice dice(plan_.seed, request);
    if (plan_.delay_us_max > 0)
      std::this_thread::sleep_for(
          std::chrono::microseconds(static_cast<int>(dice.roll() * plan_.delay_us_max)));
    if (plan_.shot && plan_.shot->direction == direction && count >= plan_.shot->from &&
        count <= plan_.shot->to)
      return -plan_.shot->error;
    if (direction == Direction::read && count == plan_.flipped_read)
      request.data[request.length / 2] ^= std::byte{0x10};
    if (dice.roll() < plan_.again) return -EAGAIN;
    if (dice.roll() < plan_.interrupted) return -EINTR;
    return dice.roll() < plan_.shortened ? shortened(request, result) : result;
  }

 private:
  /// As kernels do it: whole blocks arrive.
  static std::int64_t shortened(Request const& request, std::int64_t result) {
    std::int64_t const half = result / 2 - result / 2 % request.transfer->alignment;
    return half > 0 ? half : result;
  }

  FaultPlan plan_;
  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<std::uint64_t> writes_ = 0;
};

}  // namespace

io::detail::ResultHook fault_hook(FaultPlan const& plan) {
  // Shared, because a std::function is copied and the counts must not be.
  return [faults = std::make_shared<Faults>(plan)](Request const& request, std::int64_t result) {
    return (*faults)(request, result);
  };
}

std::unique_ptr<io::Engine> make_fault_engine(FaultPlan const& plan,
                                              io::EngineOptions const& options,
                                              io::EngineKind kind) {
  if (kind == io::EngineKind::automatic) kind = io::EngineKind::threads;
  // The self-test of the ring comes first and is over when the engine is there: faults begin behind
  // it.
  auto const armed = std::make_shared<std::atomic<bool>>(false);
  auto engine = io::detail::make_engine(
      kind, options, "",
      [armed, hook = fault_hook(plan)](Request const& request, std::int64_t result) {
        return *armed ? hook(request, result) : result;
      });
  *armed = true;
  return engine;
}

}  // namespace spillway::test
