// Where a layout may keep a decoder's blocks instead of in the decoder's own weights: it gives a pass each block when
// its turn comes, and takes a block's gradients when a backward pass is through with it. This is all that a decoder
// knows of ranks. Passes ask for blocks one after another, upwards or downwards.
#pragma once

#include "model/decoder_weights.h"

namespace tandem {

class BlockStore {
 public:
  virtual ~BlockStore() = default;
  // Valid until another block is asked for.
  virtual const LayerWeights& weights(size_t block) = 0;
  // Everything that this pass adds to them has been added.
  virtual void gradients_ready(size_t block) = 0;
};

}  // namespace tandem
