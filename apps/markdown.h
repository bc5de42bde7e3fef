#pragma once

#include <string>

namespace gravac::apps {

// The tables that docs/ holds: options, models, data sets, compressors, policies, exchanges.
// Each lies between two comments, "<!-- begin NAME: ... -->" and "<!-- end NAME -->", as it
// does in docs/, where scripts/docs replaces it.
std::string tables_as_markdown();

}  // namespace gravac::apps
