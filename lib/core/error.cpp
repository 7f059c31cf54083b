#include "lib/core/error.hpp"

#include <fmt/core.h>

#include <cstring>

namespace spillway {

Error::Error(Fault fault, std::string problem, Where where)
    : fault_(fault), problem_(std::move(problem)), where_(where) {
  compose();
}

void Error::add_context(std::string_view doing) {
  contexts_.emplace_back(doing);
  compose();
}

void Error::compose() {
  text_ = problem_;
  for (auto const& context : contexts_) text_ += "\n  while " + context;
}

void fail(Fault fault, std::string problem, Where where) {
  throw Error(fault, std::move(problem), where);
}

void require(bool ok, Fault fault, std::string_view problem, Where where) {
  if (!ok) throw Error(fault, std::string(problem), where);
}

void expect(bool ok, std::string_view broken_assumption, Where where) {
  if (ok) return;
  throw Error(Fault::internal,
              fmt::format("internal error: {} does not hold at {}:{}. Please report it.",
                          broken_assumption, where.file, where.line),
              where);
}

std::string errno_text(int code) {
  char const* symbol = ::strerrorname_np(code);
  return fmt::format("{} ({})", ::strerrordesc_np(code) ? ::strerrordesc_np(code) : "unknown error",
                     symbol ? symbol : std::to_string(code));
}

}  // namespace spillway
