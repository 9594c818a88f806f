/// Reading and adding at bilinear samples (sample.h), for REAL elements.

static inline double NAME(sample_read)(const struct sample *sample, const REAL *plane) {
  return sample->weight[0] * (double)plane[sample->at[0]] + sample->weight[1] * (double)plane[sample->at[1]] +
         sample->weight[2] * (double)plane[sample->at[2]] + sample->weight[3] * (double)plane[sample->at[3]];
}

static inline void NAME(sample_add)(const struct sample *sample, REAL *plane, double value) {
  for (int i = 0; i < 4; i++) {
    plane[sample->at[i]] += (REAL)(sample->weight[i] * value);
  }
}
