#include "apps/catalog.h"

namespace gravac::apps {

// From the same tables as the models and data sets themselves, but without them and without torch: wrong
// options should not have to wait until that is loaded.
train::Catalog catalog() {
  constexpr bool images = false, tokens = true;   // the words of models.def
  constexpr bool built_in = false, files = true;  // the words of data_sets.def
  return {.models =
              {
#define MODEL(name, function, reads, side, description) {name, description, reads},
#include "train/models.def"
#undef MODEL
              },
          .data = {
#define IMAGE_DATA(name, function, source, description) {name, description, images, source},
#define TEXT_DATA(name, function, source, description) {name, description, tokens, source},
#include "train/data_sets.def"
#undef IMAGE_DATA
#undef TEXT_DATA
          }};
}

}  // namespace gravac::apps
