/// Features of points per voxel (voxel.c), for REAL elements.

/// 0 points (p, f), 4 voxels (v, k, f), 6 numbers: point `i` becomes point `place` of voxel `voxel`.
static void NAME(put_point)(const struct call *call, int64_t i, int64_t voxel, int64_t place) {
  const int64_t features = call_size(call, 'f');
  const REAL *from = (const REAL *)call_data(call, 0) + i * features;
  REAL *to = (REAL *)call_data(call, 3) + (voxel * call_size(call, 'k') + place) * features;
  for (int64_t f = 0; f < features; f++) {
    to[f] = from[f];
  }
}

/// The features of each voxel's points, reduced: `map` is the voxel of each point, -1 for none.
static void NAME(reduce_points)(const struct call *call, const int64_t *map, const int32_t *counts, int64_t voxels,
                                int64_t type, REAL *out) {
  const int64_t channels = call_size(call, 'c');
  const REAL *feats = call_data(call, 0);
  for (int64_t i = 0; i < voxels * channels; i++) {
    out[i] = type == 2 ? (REAL)-INFINITY : 0;
  }
  for (int64_t i = 0; i < call_size(call, 'n') * channels; i++) {
    const int64_t voxel = map[i / channels];
    REAL *to = out + voxel * channels + i % channels;
    if (voxel >= 0 && type == 2) {
      *to = call_goes_before((double)feats[i], (double)*to) ? feats[i] : *to;
    } else if (voxel >= 0) {
      *to += feats[i];
    }
  }
  for (int64_t i = 0; type == 1 && i < voxels * channels; i++) {
    out[i] /= (REAL)counts[i / channels];
  }
}

/// 0 grad_feats, 1 grad_reduced, 2 feats, 3 reduced, 4 idx, 5 counts. Channels begin to end - 1.
static void NAME(voxel_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), *map = call_data(call, 4), *counts = call_data(call, 5);
  const int64_t type = ((const struct reduce_task *)call->task)->type;
  bool *taken = ((const struct reduce_task *)call->task)->taken;
  const REAL *grad = call_data(call, 1), *feats = call_data(call, 2), *reduced = call_data(call, 3);
  REAL *out = call_data(call, 0);
  for (int64_t i = 0; i < call_size(call, 'n'); i++) {
    for (int64_t c = begin; map[i] >= 0 && c < end; c++) {
      const int64_t at = map[i] * channels + c;
      if (type < 2) {
        out[i * channels + c] = type == 0 ? grad[at] : grad[at] / (REAL)counts[map[i]];
      } else if (feats[i * channels + c] == reduced[at] && !taken[at]) {
        taken[at] = true;
        out[i * channels + c] = grad[at];
      }
    }
  }
}
