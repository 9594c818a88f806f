/// The steps of the optimizers: LOOP_STEP(name, states, statements), where param and grad are the element's values, p1
/// to p3 its states before, o1 to o3 after, and n[] the numbers of the step.
///
/// Each is written once: included by optimizer.c it defines the host's loops, by the kernel file of vendors/cuda CUDA's
/// kernels.
#undef LOOP_FAMILY
#define LOOP_FAMILY optimizer

enum { SGD_LR, SGD_MOMENTUM, SGD_KEEP, SGD_DECAY, SGD_NESTEROV };
LOOP_STEP(sgd_plain, 1, grad += n[SGD_DECAY] * param; param -= n[SGD_LR] * grad;)
LOOP_STEP(sgd_momentum, 2, {
  grad += n[SGD_DECAY] * param;
  o1[i] = n[SGD_MOMENTUM] * p1[i] + n[SGD_KEEP] * grad;
  grad = n[SGD_NESTEROV] != 0 ? grad + n[SGD_MOMENTUM] * o1[i] : o1[i];
  param -= n[SGD_LR] * grad;
})

enum { ADAM_B1, ADAM_REST1, ADAM_B2, ADAM_REST2, ADAM_EPS, ADAM_STEP, ADAM_ROOT, ADAM_KEEP, ADAM_DECAY, ADAM_SIGN };
/// The numbers that depend on the step count t.
#define ADAM_GET_STEP(lr, beta1, t) ((lr) / (1 - pow(beta1, t)))
#define ADAM_GET_ROOT(beta2, t) (1 / sqrt(1 - pow(beta2, t)))
#define ADAM_MOMENTS                                  \
  grad = grad * n[ADAM_SIGN] + n[ADAM_DECAY] * param; \
  param *= n[ADAM_KEEP];                              \
  o1[i] = n[ADAM_B1] * p1[i] + n[ADAM_REST1] * grad;  \
  o2[i] = n[ADAM_B2] * p2[i] + n[ADAM_REST2] * grad * grad;
LOOP_STEP(adam, 3, {
  ADAM_MOMENTS
  param -= n[ADAM_STEP] * o1[i] / (LOOP_SQRT(o2[i]) * n[ADAM_ROOT] + n[ADAM_EPS]);
})
LOOP_STEP(amsgrad, 4, {
  ADAM_MOMENTS
  o3[i] = ((p3[i] < o2[i]) | (o2[i] != o2[i])) ? o2[i] : p3[i];
  param -= n[ADAM_STEP] * o1[i] / (LOOP_SQRT(o3[i]) * n[ADAM_ROOT] + n[ADAM_EPS]);
})

enum { DELTA_LR, DELTA_RHO, DELTA_REST, DELTA_EPS, DELTA_DECAY };
LOOP_STEP(adadelta, 3, {
  grad += n[DELTA_DECAY] * param;
  o1[i] = n[DELTA_RHO] * p1[i] + n[DELTA_REST] * grad * grad;
  grad *= LOOP_SQRT(p2[i] + n[DELTA_EPS]) / LOOP_SQRT(o1[i] + n[DELTA_EPS]);
  o2[i] = n[DELTA_RHO] * p2[i] + n[DELTA_REST] * grad * grad;
  param -= n[DELTA_LR] * grad;
})

enum { RMS_LR, RMS_ALPHA, RMS_REST, RMS_EPS, RMS_DECAY, RMS_MOMENTUM };
#define RMS_SQUARE              \
  grad += n[RMS_DECAY] * param; \
  o1[i] = n[RMS_ALPHA] * p1[i] + n[RMS_REST] * grad * grad;
#define RMS_CENTER o2[i] = n[RMS_ALPHA] * p2[i] + n[RMS_REST] * grad;
LOOP_STEP(rms_plain, 2, { RMS_SQUARE param -= n[RMS_LR] * grad / (LOOP_SQRT(o1[i]) + n[RMS_EPS]); })
LOOP_STEP(rms_centered, 3,
          { RMS_SQUARE RMS_CENTER param -= n[RMS_LR] * grad / (LOOP_SQRT(o1[i] - o2[i] * o2[i]) + n[RMS_EPS]); })
LOOP_STEP(rms_momentum, 3, {
  RMS_SQUARE o2[i] = n[RMS_MOMENTUM] * p2[i] + grad / (LOOP_SQRT(o1[i]) + n[RMS_EPS]);
  param -= n[RMS_LR] * o2[i];
})
LOOP_STEP(rms_both, 4, {
  RMS_SQUARE RMS_CENTER o3[i] = n[RMS_MOMENTUM] * p3[i] + grad / (LOOP_SQRT(o1[i] - o2[i] * o2[i]) + n[RMS_EPS]);
  param -= n[RMS_LR] * o3[i];
})
