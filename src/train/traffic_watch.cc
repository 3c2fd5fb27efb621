#include "train/traffic_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "parallel/collectives.h"

namespace tandem {

double TrafficWatch::step_done(Communicator& world, double across_seconds) {
  const Clock::time_point end = Clock::now();
  const double seconds = std::chrono::duration<double>(end - step_began_).count();
  const double mine = seconds > 0 ? std::min(1.0, (across_seconds - across_before_) / seconds) : 0;
  step_began_ = end, across_before_ = across_seconds;
  const double share = std::ranges::max(all_gather_values(world, "share of traffic between nodes", mine));
  if (!options_) return share;
  const CrossNodeSwitch before = now_;
  now_ = after_step(now_, share, *options_);
  if (now_.on != before.on && world.rank() == 0)
    log_info(now_.on
                 ? fmt::format("{}: traffic between nodes took {:.0f} % of the step, more than {:.0f} %: gradients "
                               "take the chunked tree from now on",
                               model_, 100 * share, 100 * options_->share)
                 : fmt::format("{}: traffic between nodes took {:.0f} % of the step, less than {:.0f} % for {} steps: "
                               "gradients take their own routes again",
                               model_, 100 * share, 100 * options_->back, options_->steps));
  return share;
}

}  // namespace tandem
