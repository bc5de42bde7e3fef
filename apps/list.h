#pragma once

namespace gravac::apps {

// Prints the names of what there is: models, data, compressors, policies, exchanges;
// with a line on each, or as JSON without.
void show_list(bool json);

}  // namespace gravac::apps
