#include "train/run.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "adapters/gloo_comm.h"
#include "gravac/comm/paced_comm.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/util/require.h"
#include "train/folder.h"
#include "train/folder_lock.h"
#include "train/outputs.h"
#include "train/stop_watch.h"
#include "train/trainer.h"
#ifdef GRAVAC_MPI
#include "adapters/mpi_comm.h"
#endif

namespace gravac::train {
namespace {

std::atomic<int> signal_caught{0};

// The first signal lets the run finish its step and save a checkpoint; a second one ends it at once.
void on_signal(int signal) {
  if (signal_caught.exchange(signal) != 0) std::_Exit(128 + signal);
}

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // writes to a closed pipe fail instead; see Sink
}

// Activations of a few megabytes are freed and needed again in every step. By default malloc gives them back
// to the system, and the next step has to fault in and clear their pages: a quarter of the time of a step of
// vgg-small with 16 samples.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

// Sets the number of threads of torch, and of OpenBLAS, to which torch does not pass it on. OpenBLAS
// is looked up at run time, since torch may have been built on another BLAS.
void use_threads(unsigned threads) {
  torch::set_num_threads(static_cast<int>(threads));
  using Set = void (*)(int);
  if (const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) {
    set(static_cast<int>(threads));
  }
}

// Whether `mine` is true on all ranks. All ranks must call it; so it also waits for all of them.
bool all_agree(Comm& comm, bool mine) {
  const double answer = mine ? 1 : 0;
  const std::vector<double> all = comm.all_gather(std::span<const double>(&answer, 1));
  return std::all_of(all.begin(), all.end(), [](double one) { return one == 1; });
}

// One rank of a run, from the start or resume to the summary.
class Rank {
 public:
  Rank(const TrainOptions& options, const Surroundings& around)
      : options_(options),
        around_(around),
        watch_(dynamic_cast<StopWatch*>(&around.clock)),
        trainer_(options, around) {
    if (!options.out.empty()) {
      folder_.emplace(options.out + "/checkpoints", around.comm.rank(), around.comm.size());
    }
  }

  // Trains to the end. Returns the exit code.
  int run() {
    begin();
    const std::size_t eval_every = options_.eval_every > 0 ? options_.eval_every : trainer_.steps_per_epoch();
    bool stop = finished();
    while (!stop) {
      // The step's exchange tells all ranks about the signal, so that they stop after the same step.
      if (signal_caught) trainer_.request_stop();
      const Stepped stepped = trainer_.step();
      if (outputs_) outputs_->step(trainer_, stepped);
      pause_clock();  // evaluations and checkpoints do not count as training time
      const bool asked = stepped.report.stop_requested;
      stop = asked || trainer_.done();
      // A signal saves time, except in the last step: a run that is done has its evaluation.
      if (trainer_.done() || (!asked && trainer_.steps() % eval_every == 0)) {
        const Evaluation evaluation = trainer_.evaluate();
        if (outputs_) outputs_->evaluation(trainer_, evaluation);
        stop |= finished();
      }
      const bool due = options_.checkpoint_every > 0 && trainer_.steps() % options_.checkpoint_every == 0;
      if (stop || due) saved_ = save();
      ended_early_ = asked && !trainer_.done();
      resume_clock();
    }
    end();
    if (!saved_) {
      if (around_.comm.rank() == 0) say_unsaved();
      return 1;
    }
    return ended_early_ ? 128 + (signal_caught ? signal_caught.load() : SIGTERM) : 0;
  }

 private:
  // A virtual clock need not be paused: it only advances with computing and exchanges.
  void pause_clock() {
    if (watch_) watch_->hold();
  }
  void resume_clock() {
    if (watch_) watch_->go_on();
  }

  // Resumes, or makes sure that no earlier run is overwritten; then opens the outputs on rank 0. A run
  // that has ended already keeps its files as they are.
  void begin() {
    const bool first = around_.comm.rank() == 0;
    const std::vector<std::uint64_t> complete =
        folder_ && first ? folder_->list() : std::vector<std::uint64_t>{};
    const bool any = all_same_as_rank_0(!complete.empty());
    const std::string incomplete =
        of_rank_0(folder_ && first && complete.empty() ? incomplete_checkpoints() : "");
    if (options_.start == TrainOptions::Start::anew) {
      require(
          !any && incomplete.empty(), "train: ", options_.out,
          " holds the checkpoints of an earlier run; give --resume to continue that run, or another --out");
    } else if (!resume(complete)) {
      require(!any, "train: none of the checkpoints in ", options_.out,
              " can be read by all workers, so there is nothing to resume; no file was changed");
      require(incomplete.empty(), "train: no checkpoint in ", options_.out, " is complete (", incomplete,
              "); is it one folder that all workers share? No file was changed");
      require(options_.start == TrainOptions::Start::resume_or_begin, "train: no checkpoint in ",
              options_.out, " to resume; --resume=or-begin begins at step 0 where there is none");
    }
    if (identity_.run.empty()) identity_.run = of_rank_0(new_run().run);
    if (!first) return;
    std::vector<std::string> aside;
    if (folder_) aside = folder_->set_aside_from(trainer_.steps() + 1);
    outputs_.emplace(options_, trainer_, finished());
    for (const std::string& name : aside) outputs_->note("gravac: kept, but not used: " + name);
  }

  // What is missing of the checkpoints that are there in part. Empty if none stands in the way of a new
  // beginning.
  std::string incomplete_checkpoints() {
    std::string text;
    const std::vector<CheckpointFolder::Incomplete> all = folder_->incomplete();
    constexpr std::size_t kMost = 3;
    for (std::size_t i = 0; i < std::min(all.size(), kMost); ++i) text += (i == 0 ? "" : "; ") + all[i].what;
    if (all.size() > kMost) text += "; and so on for " + std::to_string(all.size() - kMost) + " older ones";
    // A run that was killed while it saved for the first time leaves one such step and no summary. It can
    // never be resumed, and a job script that is started again shall not have to delete it.
    const bool first = all.size() == 1 && !all[0].of_earlier_version &&
                       !std::filesystem::exists(options_.out + "/summary.json");
    if (first && options_.start == TrainOptions::Start::resume_or_begin) text.clear();
    return text;
  }

  // The text that rank 0 has. On a network disk others may not see all files yet, or see others, so rank 0
  // reads what all ranks must have in common.
  std::string of_rank_0(const std::string& mine) {
    Messages all;
    around_.plain.all_gather(std::as_bytes(std::span(mine)), all);
    const std::span<const std::byte> first = all[0];
    return {reinterpret_cast<const char*>(first.data()), first.size()};
  }
  bool all_same_as_rank_0(bool mine) { return of_rank_0(mine ? "yes" : "no") == "yes"; }

  // Loads the newest checkpoint that all ranks can read, of the complete steps that rank 0 has found. Returns
  // false if there is none; then all files stay as they are.
  bool resume(const std::vector<std::uint64_t>& complete) {
    for (std::size_t i = 0; all_same_as_rank_0(i < complete.size()); ++i) {
      std::string text;  // stays empty if it cannot be read, and on other ranks
      if (i < complete.size()) try_to_read([&] { text = to_text(folder_->manifest(complete[i])); });
      text = of_rank_0(text);
      if (!text.empty() && resume(manifest_from_text(text))) return true;
    }
    return false;
  }

  bool resume(const Manifest& manifest) {
    std::vector<Checkpoint> states(manifest.ranks());
    const bool read = try_to_read([&] {
      // A rank needs its own state only, unless another number of ranks has saved: then the
      // residuals of all old ranks are dealt out to the new ones.
      for (std::size_t rank = 0; rank < states.size(); ++rank) {
        const bool mine = rank == around_.comm.rank();
        if (states.size() != around_.comm.size() || mine) states[rank] = folder_->load(manifest, rank);
      }
    });
    if (!all_agree(around_.plain, read)) return false;
    trainer_.load(states);
    require_equal_weights("after resuming from step " + std::to_string(manifest.step));
    identity_ = {.run = manifest.saved_by.run, .attempt = manifest.saved_by.attempt + 1};
    return true;
  }

  // Calls `read`, and reports the Error that it may throw. Returns whether it threw none.
  template <class Read>
  bool try_to_read(const Read& read) {
    try {
      read();
      return true;
    } catch (const Error& error) {
      std::fprintf(stderr, "gravac: rank %zu cannot read a checkpoint: %s\n", around_.comm.rank(),
                   error.what());
      return false;
    }
  }

  // The manifest has proved that the files belong together. This finds what it cannot: a state that ranks
  // read, or saved, differently.
  void require_equal_weights(const std::string& when) {
    const std::vector<std::uint64_t> all = of_all_ranks(trainer_.digest());
    std::vector<std::size_t> others;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] != all[0]) others.push_back(rank);
    }
    require(others.empty(), "train: ", when, ", ", name_ranks(others), others.size() == 1 ? " has" : " have",
            " other weights than rank 0; no file was changed");
  }

  // Whether all steps are done, or the last evaluation has reached the value of --until.
  bool finished() {
    const auto& last = trainer_.last_evaluation();
    const bool reached =
        options_.until && last && last->step == trainer_.steps() && last->reaches(*options_.until);
    if (reached) summary_.reached = {trainer_.steps(), trainer_.costs().seconds};
    return reached || trainer_.done();
  }

  // Saves a checkpoint; returns whether that worked. If not, training goes on and older ones are kept.
  bool save() {
    if (!folder_) return true;
    const std::uint64_t step = trainer_.steps();
    std::uint64_t digest = 0;
    const bool saved = try_to_save([&] { digest = folder_->save(identity_, step, trainer_.save()); });
    if (!all_agree(around_.plain, saved)) return discard();
    const Manifest manifest = {.saved_by = identity_, .step = step, .digests = of_all_ranks(digest)};
    bool completed = true;
    if (around_.comm.rank() == 0) completed = try_to_save([&] { complete(manifest); });
    return all_agree(around_.plain, completed) || discard();
  }

  bool discard() {
    folder_->discard(trainer_.steps());
    return false;
  }

  // Calls `write`, and reports the Error that it may throw. Returns whether it threw none.
  template <class Write>
  bool try_to_save(const Write& write) {
    try {
      write();
      return true;
    } catch (const Error& error) {
      std::fprintf(stderr, "gravac: rank %zu: %s\n", around_.comm.rank(), error.what());
      return false;
    }
  }

  // Writes the manifest if rank 0 sees the files of all ranks, and deletes what that supersedes.
  void complete(const Manifest& manifest) {
    const std::string missing = folder_->missing_of(manifest.step);
    if (missing.empty()) {
      folder_->complete(manifest);
      drop_older();
    } else if (!std::exchange(warned_, true)) {
      outputs_->note("gravac: all workers have saved a checkpoint, but rank 0 does not see all of it in " +
                     options_.out + " (" + missing +
                     "); the run can be resumed only from a folder that all share");
    }
  }

  std::vector<std::uint64_t> of_all_ranks(std::uint64_t mine) {
    std::vector<std::uint64_t> all(around_.plain.size());
    around_.plain.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  // What cannot be deleted takes room, but is no reason to stop.
  void drop_older() {
    try {
      folder_->drop_before(trainer_.steps());
    } catch (const Error& error) {
      if (!std::exchange(told_undeletable_, true)) {
        outputs_->note("gravac: an older checkpoint stays: " + std::string(error.what()));
      }
    }
  }

  void say_unsaved() {
    const std::vector<std::uint64_t> complete = folder_->list();
    const std::string newest = complete.empty()
                                   ? "there is no checkpoint"
                                   : "the newest checkpoint is of step " + std::to_string(complete[0]);
    std::fprintf(stderr, "gravac: the state after step %ju could not be saved in %s; %s\n",
                 std::uintmax_t{trainer_.steps()}, options_.out.c_str(), newest.c_str());
  }

  // Adds up the costs of all ranks, checks that all ranks have the same weights, and writes the summary.
  void end() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    summary_.finished = !ended_early_;
    summary_.steps = trainer_.steps();
    summary_.effective_steps = trainer_.effective_steps();
    summary_.bad_steps = trainer_.bad_steps();
    summary_.last = trainer_.last_evaluation();
    summary_.ranks = around_.comm.size();
    summary_.entries = trainer_.entries();
    summary_.costs = trainer_.costs();
    summary_.digest = trainer_.digest();
    const Costs& costs = summary_.costs;
    const double mine[] = {costs.bytes_sent, costs.entries_sent, costs.dense_bytes, costs.entries,
                           1024.0 * static_cast<double>(usage.ru_maxrss),
                           // In halves: a double holds 53 bits exactly, not 64.
                           static_cast<double>(summary_.digest >> 32),
                           static_cast<double>(summary_.digest & 0xffffffffu)};
    constexpr std::size_t kNumbers = std::size(mine);
    const std::vector<double> all = around_.plain.all_gather(std::span<const double>(mine));
    summary_.costs.bytes_sent = summary_.costs.entries_sent = summary_.costs.dense_bytes =
        summary_.costs.entries = 0;
    for (std::size_t rank = 0; rank < around_.comm.size(); ++rank) {
      const double* theirs = &all[rank * kNumbers];
      summary_.costs.bytes_sent += theirs[0];
      summary_.costs.entries_sent += theirs[1];
      summary_.costs.dense_bytes += theirs[2];
      summary_.costs.entries += theirs[3];
      summary_.peak_bytes = std::max(summary_.peak_bytes, theirs[4]);
      require(theirs[5] == all[5] && theirs[6] == all[6], "train: rank ", rank,
              " ends with other weights than rank 0");
    }
    if (outputs_) outputs_->summary(summary_);
  }

  const TrainOptions& options_;
  Surroundings around_;
  StopWatch* watch_;  // null with a virtual clock
  Trainer trainer_;
  std::optional<CheckpointFolder> folder_;
  RunIdentity identity_;            // without a name until begin()
  std::optional<Outputs> outputs_;  // on rank 0
  Summary summary_;
  bool ended_early_ = false;
  bool saved_ = true;    // the last time it should have been
  bool warned_ = false;  // that --out is not shared
  bool told_undeletable_ = false;
};

std::unique_ptr<Data> load_data(const TrainOptions& options) {
  return make_data(options.data, {.dir = options.data_dir,
                                  .window = static_cast<std::int64_t>(options.window_tokens),
                                  .augment = options.augment,
                                  .seed = options.seed});
}

// Connects this worker with the others; null if it is the only one.
std::unique_ptr<Comm> make_comm(const TrainOptions& options, const std::optional<Place>& place) {
  const std::chrono::duration<double> timeout(options.timeout);
  if (options.backend == "mpi") {
#ifdef GRAVAC_MPI
    std::unique_ptr<Comm> comm = make_mpi_comm(timeout);
    // Where MPI knows nothing of the launcher, every worker would train by itself, into the same folder.
    if (place)
      require(place->size == comm->size(), "train: ", place->source, " has started ", place->size,
              " workers, but MPI sees ", comm->size(),
              "; start them with mpirun or srun --mpi=pmix, or leave --backend mpi out");
    return comm;
#else
    throw Error("train: this program was built without MPI");
#endif
  }
  if (!place || place->size == 1) return nullptr;
  const Meeting meeting = meeting_of(*place, options.out);
  return make_gloo_comm(
      {.store = meeting.file,
       .address = meeting.address,
       .port = meeting.port,
       .rank = place->rank,
       .size = place->size,
       .timeout = timeout,
       .interface = options.interface,
       .say = [](const std::string& line) { std::fprintf(stderr, "gravac: %s\n", line.c_str()); }});
}

// One worker in real time. Without other workers it is a group of one.
int run_worker(TrainOptions options, const Data& data, const std::optional<Place>& place) {
  const unsigned threads = options.threads > 0 ? options.threads : share_of_cores(place.value_or(Place{}));
  use_threads(threads);
  options.engine["threads"] = std::to_string(threads);
  ThreadGroup alone(1);
  std::unique_ptr<Comm> plain = make_comm(options, place);
  if (!plain) plain = alone.join(0);
  StopWatch clock;
  std::optional<PacedComm> paced;
  if (options.link) paced.emplace(*plain, *options.link, clock);
  // For workers that we have started the launcher holds the folder (apps/train.cc), and rank 0 with it.
  const bool holds = place && plain->rank() == 0 && !options.out.empty();
  const Surroundings around{data, paced ? static_cast<Comm&>(*paced) : *plain, *plain, clock};
  int code = 1;
  try {
    std::optional<FolderLock> lock;
    if (holds) {
      lock.emplace(options.out,
                   place->source == "gravac" ? FolderLock::Holder::worker_of_run : FolderLock::Holder::run);
    }
    return Rank(options, around).run();
  } catch (const std::exception& error) {
    if (dynamic_cast<const FolderInUse*>(&error)) code = 2;
    // An orderly exit would make Gloo or MPI wait for ranks that have died, so leave at once.
    const std::string text = error.what();
    std::fprintf(stderr, "gravac: rank %zu: %s\n", plain->rank(), text.substr(0, text.find('\n')).c_str());
    std::fflush(nullptr);
    if (plain->size() > 1) std::_Exit(code);
    return code;
  }
}

// A simulated cluster: every rank is a thread of this process, and time is virtual. At most as many
// ranks as there are cores compute at once.
int run_emulated(const TrainOptions& options, const Data& data) {
  const TrainOptions::Emulate& cluster = *options.emulate;
  const unsigned cores = options.threads > 0 ? options.threads : share_of_cores(Place{});
  use_threads(1);
  Turns turns(cores);
  std::atomic<int> code{0};
  run_ranks(
      cluster.workers,
      [&](Comm& comm) {
        VirtualClock clock;
        PacedComm paced(comm, cluster.link, clock);
        const int mine = Rank(options, {data, paced, comm, clock, &turns}).run();
        if (comm.rank() == 0) code = mine;
      },
      // Ranks wait long for each other, since they share the cores; that does not mean that one is dead.
      std::chrono::duration<double>(std::max(options.timeout, 3600.0)));
  return code;
}

}  // namespace

int run(const TrainOptions& options, const std::optional<Place>& place) {
  keep_freed_memory();
  catch_signals();
  // Then torch refuses what it cannot repeat, and says what that is.
  if (options.deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
  std::unique_ptr<Data> data;
  try {
    data = load_data(options);
  } catch (const Error& error) {
    // All workers that we started on this machine read the same files: only rank 0 reports the error.
    const bool silent = place && place->source == "gravac" && place->rank > 0;
    if (!silent) std::fprintf(stderr, "gravac: %s\n", error.what());
    return 2;
  }
  return options.emulate ? run_emulated(options, *data) : run_worker(options, *data, place);
}

}  // namespace gravac::train
