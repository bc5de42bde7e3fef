// Loads libgravac_trainer.so when it is needed, from the folder of the program or from where it is installed.

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "apps/trainer.h"

namespace gravac::apps {
namespace {

// Debian's OpenBLAS does not know processors that are newer than itself. It then uses code from before AVX,
// with which an LSTM takes twice as long. It obeys a variable that is set before it is loaded.
void name_processor_for_openblas() {
#ifdef __x86_64__
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!avx2 || std::getenv("OPENBLAS_CORETYPE")) return;
  void* const blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!blas) return;
  const auto name = reinterpret_cast<const char* (*)()>(dlsym(blas, "openblas_get_corename"));
  const bool unknown = name && std::string(name()) == "Prescott";  // what it takes an unknown one for
  dlclose(blas);
  if (unknown) setenv("OPENBLAS_CORETYPE", "Haswell", 1);
#endif
}

const Trainer* load() {
  name_processor_for_openblas();
  namespace fs = std::filesystem;
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  std::string why;
  for (const fs::path& folder : {here, here / GRAVAC_TRAINER_DIR}) {
    const fs::path file = folder / "libgravac_trainer.so";
    // Global, because plug-ins of MPI look for MPI's symbols there.
    if (void* found = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      void* const exported = dlsym(found, "gravac_trainer");
      require(exported != nullptr, file.string(), " belongs to another version of this program");
      return reinterpret_cast<decltype(gravac_trainer)*>(exported)();
    }
    if (fs::exists(file) || why.empty()) why = dlerror();
  }
  throw Error("the trainer cannot be loaded: " + why);
}

}  // namespace

bool has_trainer() {
  return true;
}

const Trainer& trainer() {
  static const Trainer* const loaded = load();
  return *loaded;
}

}  // namespace gravac::apps
