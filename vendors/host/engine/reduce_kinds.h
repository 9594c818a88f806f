/// What a reduction folds; read by the host's folds and by the kernels of vendors/cuda.
#ifndef DIT_HOST_ENGINE_REDUCE_KINDS_H
#define DIT_HOST_ENGINE_REDUCE_KINDS_H

enum reduce_kind {
  REDUCE_SUM,
  REDUCE_MEAN,
  REDUCE_PROD,
  REDUCE_MAX,  ///< NaN wins
  REDUCE_MIN,
  REDUCE_ANY,
  REDUCE_ALL,
  REDUCE_NANSUM,    ///< the sum of what is not NaN
  REDUCE_NORM_0,    ///< how many are not 0
  REDUCE_NORM_1,    ///< sum of |x|
  REDUCE_NORM_2,    ///< sqrt of the sum of squares
  REDUCE_NORM_P,    ///< (sum of |x|^p)^(1/p)
  REDUCE_NORM_MAX,  ///< largest |x|
  REDUCE_NORM_MIN,  ///< smallest |x|
  REDUCE_COUNT
};

#endif
