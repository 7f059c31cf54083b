// How to wait for another process without taking its processor away.
#pragma once

namespace spillway::comm {

/// Call pause() after each look that found nothing: first it spins, then it yields, then it sleeps.
class Backoff {
 public:
  void pause();
  /// Something happened: the next wait is expected to be short again.
  void reset() { looks_ = 0; }

 private:
  int looks_ = 0;
};

}  // namespace spillway::comm
