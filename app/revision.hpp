// The commit that the program was built from; its source is made by the build.
#pragma once

namespace spillway::app {

char const* source_revision();

}  // namespace spillway::app
