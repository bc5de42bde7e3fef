#pragma once

#include <string>
#include <vector>

#include "apps/report/page_data.h"
#include "apps/report/run_folder.h"

namespace gravac::report {

// All figures that the runs have data for, in the order of the page. Curves are not thinned yet.
std::vector<Figure> figures_of(const std::vector<RunHistory>& runs);

// The page of `gravac report`, as JSON.
std::string data_of(const std::vector<RunHistory>& runs);

}  // namespace gravac::report
