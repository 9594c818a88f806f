// The attention kernels that programs call by name: flash, memory-efficient and cuDNN's, dense and packed.
//
// Dense ones have (B, H, S, D) in scaled_dot_product_attention's operators and (B, S, H, D) in the kernels' own. Packed
// ones hold all sequences behind each other, (total, H, D), and run one sequence at a time. What the vendor's library
// takes goes there (Attention.cpp), the rest is composed (AttentionMath.h). Dropout draws from the device's generator:
// its seed and offset are returned, and the backward pass draws the same numbers again.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>

#include "AttentionMath.h"
#include "Generator.h"

namespace ditorch {
namespace {

using at::Tensor;
using attention::Band;
using attention::getScale;
using attention::OptionalTensor;
using attention::Problem;
using c10::SymInt;
using OptionalInt = std::optional<SymInt>;

// Random numbers

at::Generator makeGenerator(c10::DeviceIndex device, uint64_t seed, uint64_t offset) {
  at::Generator generator = newGenerator(device);
  generator.set_current_seed(seed);
  generator.set_offset(offset);
  return generator;
}

// The numbers of one call. The forward pass begins where the device's generator stands and advances it; the backward
// pass begins where the forward pass did.
class Draws {
 public:
  Draws(c10::DeviceIndex device, double dropout) : dropout_(dropout) {
    if (dropout_ > 0) {
      main_ = defaultGenerator(device).get<Generator>();
      lock_ = std::unique_lock<std::mutex>(main_->mutex_);
      seed_ = main_->current_seed();
      offset_ = main_->get_offset();
      generator_ = makeGenerator(device, seed_, offset_);
    }
  }
  Draws(c10::DeviceIndex device, double dropout, uint64_t seed, uint64_t offset) : dropout_(dropout) {
    if (dropout_ > 0) {
      generator_ = makeGenerator(device, seed, offset);
    }
  }
  ~Draws() {
    if (main_ != nullptr) {
      main_->set_offset(generator_.get_offset());
    }
  }
  Draws(const Draws &) = delete;
  Draws &operator=(const Draws &) = delete;

  void fill(Problem &problem) {
    problem.dropout = dropout_;
    if (dropout_ > 0) {
      const Tensor &query = problem.query;
      problem.uniform = at::empty({query.size(0), query.size(1), query.size(2), problem.key.size(2)},
                                  query.options().dtype(at::kFloat))
                            .uniform_(0, 1, generator_);
    }
  }
  uint64_t seed() const { return seed_; }
  uint64_t offset() const { return offset_; }

 private:
  double dropout_;
  Generator *main_ = nullptr;
  std::unique_lock<std::mutex> lock_;
  at::Generator generator_;
  uint64_t seed_ = 0, offset_ = 0;
};

Tensor toTensor(uint64_t number) {
  return at::scalar_tensor(static_cast<int64_t>(number), at::dtype(at::kLong));
}
uint64_t toNumber(const Tensor &tensor) {
  return tensor.defined() && tensor.numel() > 0 ? static_cast<uint64_t>(tensor.reshape({-1})[0].item<int64_t>()) : 0;
}
// Flash attention keeps both in one tensor of two unsigned numbers.
Tensor packState(const Draws &draws, const Tensor &like) {
  return at::stack({toTensor(draws.seed()), toTensor(draws.offset())}).view(at::kUInt64).to(like.device());
}
std::pair<uint64_t, uint64_t> unpackState(const Tensor &state) {
  const Tensor words = state.view(at::kLong).cpu();
  return {toNumber(words), words.numel() > 1 ? toNumber(words[1]) : 0};
}

// Dense

void checkDense(const char *name, const Tensor &query, const Tensor &key, const Tensor &value) {
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4, name,
              ": query, key and value must be 4 "
              "dimensional, got ",
              query.dim(), ", ", key.dim(), " and ", value.dim(), " dimensions");
  TORCH_CHECK(query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type(), name,
              ": query, key and value must have the same dtype, got ", query.scalar_type(), ", ", key.scalar_type(),
              " and ", value.scalar_type());
  TORCH_CHECK(query.size(3) == key.size(3) && key.size(2) == value.size(2) && query.size(0) == key.size(0), name,
              ": sizes of query ", query.sizes(), ", key ", key.sizes(), " and value ", value.sizes(),
              " do not fit together");
}

Problem makeDense(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias,
                  bool is_causal, std::optional<double> scale) {
  return {query, key, value, bias, Band::causal(is_causal), getScale(query, scale)};
}

struct Forward {
  Tensor output, logsumexp, seed, offset, state, debug;
};

Forward runDense(const char *name, const Tensor &query, const Tensor &key, const Tensor &value,
                 const OptionalTensor &bias, double dropout, bool is_causal, bool debug, std::optional<double> scale) {
  checkDense(name, query, key, value);
  Forward result;
  Draws draws(query.device().index(), dropout);
  if (dropout == 0 && !debug) {
    const auto whole =
        at::_scaled_dot_product_fused_attention_overrideable(query, key, value, bias, 0, is_causal, false, scale);
    result.output = std::get<0>(whole);
    result.logsumexp = std::get<1>(whole);
  } else {
    Problem problem = makeDense(query, key, value, bias, is_causal, scale);
    draws.fill(problem);
    std::tie(result.output, result.logsumexp) = compose(problem);
    result.debug = debug ? composeWeights(problem, result.logsumexp) : Tensor();
  }
  result.seed = toTensor(draws.seed());
  result.offset = toTensor(draws.offset());
  result.state = packState(draws, query);
  result.debug = result.debug.defined() ? result.debug : at::empty({0}, query.options());
  return result;
}

std::array<Tensor, 4> runDenseBackward(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                                       const OptionalTensor &bias, const Tensor &output, const Tensor &logsumexp,
                                       double dropout, uint64_t seed, uint64_t offset, bool is_causal, bool wants_bias,
                                       std::optional<double> scale) {
  if (!grad.defined()) {
    return {};
  }
  if (dropout == 0) {
    auto [a, b, c, d] = at::_scaled_dot_product_fused_attention_overrideable_backward(
        grad, query, key, value, isGiven(bias) ? *bias : Tensor(), {true, true, true, wants_bias}, output, logsumexp,
        Tensor(), Tensor(), query.size(2), key.size(2), 0, is_causal, Tensor(), Tensor(), scale);
    return {a, b, c, d};
  }
  Problem problem = makeDense(query, key, value, bias, is_causal, scale);
  Draws draws(query.device().index(), dropout, seed, offset);
  draws.fill(problem);
  return composeBackward(problem, grad, output, logsumexp, wants_bias);
}

using Nine = std::tuple<Tensor, Tensor, Tensor, Tensor, SymInt, SymInt, Tensor, Tensor, Tensor>;

Nine flash(const Tensor &query, const Tensor &key, const Tensor &value, double dropout, bool is_causal, bool debug,
           std::optional<double> scale) {
  const Forward r = runDense("_scaled_dot_product_flash_attention", query, key, value, std::nullopt, dropout, is_causal,
                             debug, scale);
  return {r.output,
          r.logsumexp,
          Tensor(),
          Tensor(),
          query.sym_size(2),
          key.sym_size(2),
          r.state,
          at::empty({}, query.options().dtype(at::kUInt64)),
          r.debug};
}

std::tuple<Tensor, Tensor, Tensor> flashBackward(const Tensor &grad, const Tensor &query, const Tensor &key,
                                                 const Tensor &value, const Tensor &output, const Tensor &logsumexp,
                                                 const Tensor &, const Tensor &, SymInt, SymInt, double dropout,
                                                 bool is_causal, const Tensor &state, const Tensor &,
                                                 std::optional<double> scale) {
  const auto [seed, offset] = dropout > 0 ? unpackState(state) : std::pair<uint64_t, uint64_t>();
  auto [a, b, c, d] = runDenseBackward(grad, query, key, value, std::nullopt, output, logsumexp, dropout, seed, offset,
                                       is_causal, false, scale);
  return {a, b, c};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient(const Tensor &query, const Tensor &key, const Tensor &value,
                                                     const OptionalTensor &bias, bool, double dropout, bool is_causal,
                                                     std::optional<double> scale) {
  const Forward r =
      runDense("_scaled_dot_product_efficient_attention", query, key, value, bias, dropout, is_causal, false, scale);
  return {r.output, r.logsumexp, r.seed, r.offset};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficientBackward(const Tensor &grad, const Tensor &query, const Tensor &key,
                                                             const Tensor &value, const Tensor &bias,
                                                             const Tensor &output, const Tensor &logsumexp,
                                                             const Tensor &seed, const Tensor &offset, double dropout,
                                                             std::array<bool, 4> wanted, bool is_causal,
                                                             std::optional<double> scale) {
  auto [a, b, c, d] =
      runDenseBackward(grad, query, key, value, bias.defined() ? OptionalTensor(bias) : std::nullopt, output, logsumexp,
                       dropout, toNumber(seed), toNumber(offset), is_causal, wanted[3], scale);
  return {a, b, c, d};
}

Nine cudnn(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias, bool,
           double dropout, bool is_causal, bool debug, std::optional<double> scale) {
  const Forward r =
      runDense("_scaled_dot_product_cudnn_attention", query, key, value, bias, dropout, is_causal, debug, scale);
  return {r.output, r.logsumexp, Tensor(), Tensor(), query.sym_size(2), key.sym_size(2), r.seed, r.offset, r.debug};
}

std::tuple<Tensor, Tensor, Tensor> cudnnBackward(const Tensor &grad, const Tensor &query, const Tensor &key,
                                                 const Tensor &value, const Tensor &output, const Tensor &logsumexp,
                                                 const Tensor &seed, const Tensor &offset, const Tensor &bias,
                                                 const Tensor &, const Tensor &, SymInt, SymInt, double dropout,
                                                 bool is_causal, std::optional<double> scale) {
  auto [a, b, c, d] =
      runDenseBackward(grad, query, key, value, bias.defined() ? OptionalTensor(bias) : std::nullopt, output, logsumexp,
                       dropout, toNumber(seed), toNumber(offset), is_causal, false, scale);
  return {a, b, c};
}

Tensor &fillDropoutMask(Tensor &self, double, int64_t seed, int64_t offset) {
  return self.uniform_(
      0, 1, makeGenerator(self.device().index(), static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)));
}

// Packed

// One sequence of a packed batch, or one batch of a dense one.
struct Part {
  int64_t q_begin, q_end, k_begin, k_end;
};

struct Packed {
  Tensor query, key, value;  // (1, total, H, D) when packed, else (B, S, H, D)
  std::vector<Part> parts;
  bool is_packed;
  OptionalTensor bias;    // broadcasts to (B, H, S, T)
  OptionalTensor slopes;  // ALiBi, (H) or (B, H)
  OptionalTensor pages;   // the rows of key and value that a sequence has, page by page
  double scale;
  bool is_flash;  // the band's corner is the last query's and key's, not the first ones'
  Band band;

  Tensor cut(const Tensor &tensor, size_t part, int64_t begin, int64_t end) const {
    const Tensor whole = is_packed ? tensor[0] : tensor[static_cast<int64_t>(part)];
    return whole.slice(0, begin, end).transpose(0, 1).unsqueeze(0);
  }
  Tensor cutKey(const Tensor &tensor, size_t part) const {
    const Part &p = parts[part];
    if (!isGiven(pages)) {
      return cut(tensor, part, p.k_begin, p.k_end);
    }
    const int64_t size = tensor.size(1);
    const Tensor rows = (*pages)[static_cast<int64_t>(part)].slice(0, 0, (p.k_end + size - 1) / size);
    return tensor.index_select(0, rows.to(at::kLong)).flatten(0, 1).slice(0, 0, p.k_end).transpose(0, 1).unsqueeze(0);
  }

  Problem make(size_t part) const {
    const Part &p = parts[part];
    Problem problem{
        cut(query, part, p.q_begin, p.q_end), cutKey(key, part), cutKey(value, part), std::nullopt, band, scale};
    const int64_t shift = is_flash ? (p.k_end - p.k_begin) - (p.q_end - p.q_begin) : 0;
    if (problem.band.low.has_value()) {
      *problem.band.low += shift;
    }
    if (problem.band.high.has_value()) {
      *problem.band.high += shift;
    }
    if (isGiven(bias)) {
      problem.bias = bias->dim() == 4 && bias->size(0) > 1 ? bias->narrow(0, static_cast<int64_t>(part), 1) : *bias;
    }
    if (isGiven(slopes)) {
      const Tensor row = at::arange(p.q_end - p.q_begin, slopes->options()).add_(shift).unsqueeze(-1);
      const Tensor distance = (row - at::arange(p.k_end - p.k_begin, slopes->options())).abs_();
      const Tensor slope = slopes->dim() == 2 ? (*slopes)[static_cast<int64_t>(part)] : *slopes;
      problem.bias = distance * slope.neg().view({1, -1, 1, 1});
    }
    return problem;
  }
};

std::vector<int64_t> toVector(const Tensor &tensor) {
  const Tensor list = tensor.cpu().to(at::kLong).contiguous();
  return {list.const_data_ptr<int64_t>(), list.const_data_ptr<int64_t>() + list.numel()};
}

// `used`: how many keys of each sequence count.
std::vector<Part> findParts(const Tensor &query, const Tensor &key, const OptionalTensor &cum_q,
                            const OptionalTensor &cum_k, const OptionalTensor &used) {
  std::vector<Part> parts;
  const std::vector<int64_t> lengths = isGiven(used) ? toVector(*used) : std::vector<int64_t>();
  if (!isGiven(cum_q)) {
    for (int64_t i = 0; i < query.size(0); i++) {
      const auto index = static_cast<size_t>(i);
      parts.push_back({0, query.size(1), 0, lengths.empty() ? key.size(1) : lengths.at(index)});
    }
    return parts;
  }
  const std::vector<int64_t> q = toVector(*cum_q);
  const std::vector<int64_t> k = isGiven(cum_k) ? toVector(*cum_k) : std::vector<int64_t>(q.size(), 0);
  TORCH_CHECK(!q.empty() && q.size() == k.size() && (isGiven(cum_k) || lengths.size() + 1 == q.size()),
              "cum_seq_q and cum_seq_k must have one entry more than there are sequences, got ", q.size(), " and ",
              k.size());
  for (size_t i = 0; i + 1 < q.size(); i++) {
    const int64_t end = lengths.empty() ? k[i + 1] : k[i] + lengths.at(i);
    TORCH_CHECK(0 <= q[i] && q[i] <= q[i + 1] && q[i + 1] <= query.size(1) && 0 <= k[i] && k[i] <= end,
                "cum_seq_q and cum_seq_k must not decrease nor pass the ", query.size(1), " packed queries");
    parts.push_back({q[i], q[i + 1], k[i], end});
  }
  return parts;
}

// (B, S, H, D) like the query with the value's last dimension, and (B, H, S) or, packed, one row per head.
struct PackedResult {
  Tensor output;
  std::vector<Tensor> logsumexps;  // (1, H, S) of each part
};

PackedResult runPacked(const Packed &packed, Draws &draws, Tensor *debug) {
  auto sizes = packed.query.sizes().vec();
  sizes[3] = packed.value.size(-1);
  PackedResult result{at::zeros(sizes, packed.query.options()), {}};
  std::vector<Tensor> weights;
  for (size_t i = 0; i < packed.parts.size(); i++) {
    Problem problem = packed.make(i);
    draws.fill(problem);
    auto [output, logsumexp] = compose(problem);
    packed.cut(result.output, i, packed.parts[i].q_begin, packed.parts[i].q_end).copy_(output);
    if (debug != nullptr) {
      weights.push_back(composeWeights(problem, logsumexp));
    }
    result.logsumexps.push_back(std::move(logsumexp));
  }
  if (debug != nullptr && !packed.is_packed) {
    *debug = at::cat(weights, 0);
  }
  return result;
}

std::array<Tensor, 4> runPackedBackward(const Packed &packed, Draws &draws, const Tensor &grad, const Tensor &output,
                                        const std::vector<Tensor> &logsumexps, bool wants_bias) {
  std::array<Tensor, 4> result{at::zeros_like(packed.query), at::zeros_like(packed.key), at::zeros_like(packed.value),
                               wants_bias ? at::zeros_like(*packed.bias) : Tensor()};
  for (size_t i = 0; i < packed.parts.size(); i++) {
    const Part &p = packed.parts[i];
    Problem problem = packed.make(i);
    draws.fill(problem);
    auto grads = composeBackward(problem, packed.cut(grad, i, p.q_begin, p.q_end),
                                 packed.cut(output, i, p.q_begin, p.q_end), logsumexps[i], wants_bias);
    packed.cut(result[0], i, p.q_begin, p.q_end).add_(grads[0]);
    packed.cut(result[1], i, p.k_begin, p.k_end).add_(grads[1]);
    packed.cut(result[2], i, p.k_begin, p.k_end).add_(grads[2]);
    if (wants_bias) {
      (packed.bias->dim() == 4 && packed.bias->size(0) > 1 ? result[3].narrow(0, static_cast<int64_t>(i), 1)
                                                           : result[3])
          .add_(grads[3]);
    }
  }
  return result;
}

Band makeWindow(bool is_causal, const OptionalInt &left, const OptionalInt &right) {
  const auto bound = [](const OptionalInt &value) {
    const int64_t number = value.has_value() ? value->guard_int(__FILE__, __LINE__) : -1;
    return number < 0 ? std::optional<int64_t>() : std::optional<int64_t>(number);
  };
  Band band{bound(left), bound(right)};
  if (band.low.has_value()) {
    band.low = -*band.low;
  }
  if (is_causal) {
    band.high = 0;
  }
  return band;
}

Packed makeFlash(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &cum_q,
                 const OptionalTensor &cum_k, bool is_causal, std::optional<double> scale, const OptionalInt &left,
                 const OptionalInt &right, const OptionalTensor &used, const OptionalTensor &slopes,
                 const OptionalTensor &pages) {
  const bool is_packed = isGiven(cum_q);
  TORCH_CHECK(query.dim() == (is_packed ? 3 : 4), "_flash_attention_forward: query must have ", is_packed ? 3 : 4,
              " dimensions, got ", query.dim());
  TORCH_CHECK(!isGiven(pages) || isGiven(used), "_flash_attention_forward: block_table needs seqused_k");
  const auto whole = [&](const Tensor &tensor) {
    return is_packed && tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
  };
  Packed packed{whole(query),
                whole(key),
                whole(value),
                {},
                is_packed,
                std::nullopt,
                slopes,
                pages,
                getScale(query, scale),
                true,
                makeWindow(is_causal, left, right)};
  packed.parts = findParts(packed.query, packed.key, cum_q, isGiven(pages) ? std::nullopt : cum_k, used);
  return packed;
}

Tensor joinFlash(const Packed &packed, const PackedResult &result) {
  if (!packed.is_packed) {
    return at::cat(result.logsumexps, 0);
  }
  Tensor joined =
      at::zeros({packed.query.size(2), packed.query.size(1)},
                result.logsumexps.empty() ? packed.query.options().dtype(at::kFloat) : result.logsumexps[0].options());
  for (size_t i = 0; i < packed.parts.size(); i++) {
    joined.slice(1, packed.parts[i].q_begin, packed.parts[i].q_end).copy_(result.logsumexps[i][0]);
  }
  return joined;
}

std::vector<Tensor> splitFlash(const Packed &packed, const Tensor &logsumexp) {
  std::vector<Tensor> split;
  for (size_t i = 0; i < packed.parts.size(); i++) {
    const Part &p = packed.parts[i];
    split.push_back((packed.is_packed ? logsumexp.slice(1, p.q_begin, p.q_end)
                                      : logsumexp[static_cast<int64_t>(i)].slice(1, 0, p.q_end))
                        .unsqueeze(0));
  }
  return split;
}

using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Five flashForward(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &cum_q,
                  const OptionalTensor &cum_k, SymInt, SymInt, double dropout, bool is_causal, bool debug,
                  std::optional<double> scale, OptionalInt left, OptionalInt right, const OptionalTensor &used,
                  const OptionalTensor &slopes, const OptionalTensor &pages, std::optional<int64_t>) {
  const Packed packed = makeFlash(query, key, value, cum_q, cum_k, is_causal, scale, left, right, used, slopes, pages);
  Draws draws(query.device().index(), dropout);
  Tensor weights = at::empty({0}, query.options());
  const PackedResult result = runPacked(packed, draws, debug ? &weights : nullptr);
  return {packed.is_packed ? result.output[0] : result.output, joinFlash(packed, result), packState(draws, query),
          at::empty({}, query.options().dtype(at::kUInt64)), weights};
}

#if defined(DIT_HAS_FLASH_PAGES)
Tensor flashForwardInto(Tensor &out, const Tensor &query, const Tensor &key, const Tensor &value,
                        const OptionalTensor &cum_q, const OptionalTensor &cum_k, SymInt max_q, SymInt max_k,
                        double dropout, bool is_causal, bool debug, std::optional<double> scale, OptionalInt left,
                        OptionalInt right, const OptionalTensor &used, const OptionalTensor &slopes,
                        const OptionalTensor &pages, std::optional<int64_t> splits) {
  auto result = flashForward(query, key, value, cum_q, cum_k, std::move(max_q), std::move(max_k), dropout, is_causal,
                             debug, scale, std::move(left), std::move(right), used, slopes, pages, splits);
  out.copy_(std::get<0>(result));
  return std::get<1>(result);
}
#else
Five flashForwardPlain(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &cum_q,
                       const OptionalTensor &cum_k, SymInt max_q, SymInt max_k, double dropout, bool is_causal,
                       bool debug, std::optional<double> scale, OptionalInt left, OptionalInt right,
                       const OptionalTensor &used, const OptionalTensor &slopes) {
  return flashForward(query, key, value, cum_q, cum_k, std::move(max_q), std::move(max_k), dropout, is_causal, debug,
                      scale, std::move(left), std::move(right), used, slopes, std::nullopt, std::nullopt);
}
#endif

std::tuple<Tensor, Tensor, Tensor> flashForwardBackward(
    const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &output,
    const Tensor &logsumexp, const Tensor &cum_q, const Tensor &cum_k, SymInt, SymInt, double dropout, bool is_causal,
    const Tensor &state, const Tensor &, std::optional<double> scale, OptionalInt left, OptionalInt right) {
  if (!grad.defined()) {
    return {};
  }
  const Packed packed = makeFlash(query, key, value, cum_q, cum_k, is_causal, scale, left, right, std::nullopt,
                                  std::nullopt, std::nullopt);
  const auto [seed, offset] = dropout > 0 ? unpackState(state) : std::pair<uint64_t, uint64_t>();
  Draws draws(query.device().index(), dropout, seed, offset);
  const auto whole = [&](const Tensor &tensor) { return packed.is_packed ? tensor.unsqueeze(0) : tensor; };
  auto grads = runPackedBackward(packed, draws, whole(grad), whole(output), splitFlash(packed, logsumexp), false);
  const auto back = [&](const Tensor &tensor) { return packed.is_packed ? tensor[0] : tensor; };
  return {back(grads[0]), back(grads[1]), back(grads[2])};
}

// custom_mask_type of the efficient kernels.
enum MaskType : int64_t { kNoMask = 0, kCausalTopLeft = 1, kCausalBottomRight = 2 };

Packed makeEfficient(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias,
                     const OptionalTensor &cum_q, const OptionalTensor &cum_k, int64_t mask_type,
                     std::optional<double> scale, const OptionalTensor &used, std::optional<int64_t> window) {
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
              "_efficient_attention_forward: query, key and value must have 4 dimensions");
  TORCH_CHECK(isGiven(cum_q) == isGiven(cum_k),
              "_efficient_attention_forward: cu_seqlens_q and cu_seqlens_k come "
              "together");
  TORCH_CHECK(!isGiven(cum_q) || query.size(0) == 1,
              "_efficient_attention_forward: packed sequences need a batch "
              "size of 1");
  TORCH_CHECK(!isGiven(cum_q) || !isGiven(bias),
              "_efficient_attention_forward: packed sequences cannot have a bias on this device");
  TORCH_CHECK(mask_type >= kNoMask && mask_type <= kCausalBottomRight,
              "_efficient_attention_forward: custom_mask_type must be 0, 1 or 2, got ", mask_type);
  Band band = Band::causal(mask_type != kNoMask);
  if (window.has_value() && *window > 0) {
    band.low = 1 - *window;
  }
  Packed packed{query,
                key,
                value,
                {},
                isGiven(cum_q),
                bias,
                std::nullopt,
                std::nullopt,
                getScale(query, scale),
                mask_type == kCausalBottomRight,
                band};
  packed.parts = findParts(query, key, cum_q, cum_k, used);
  return packed;
}

int64_t findLongest(const Packed &packed, bool of_keys) {
  int64_t longest = 0;
  for (const Part &p : packed.parts) {
    longest = std::max(longest, of_keys ? p.k_end - p.k_begin : p.q_end - p.q_begin);
  }
  return longest;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, SymInt, SymInt> efficientForward(
    const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias,
    const OptionalTensor &cum_q, const OptionalTensor &cum_k, OptionalInt max_q, OptionalInt max_k, double dropout,
    int64_t mask_type, bool wants_sums, std::optional<double> scale, const OptionalTensor &used,
    std::optional<int64_t> window) {
  const Packed packed = makeEfficient(query, key, value, bias, cum_q, cum_k, mask_type, scale, used, window);
  Draws draws(query.device().index(), dropout);
  const PackedResult result = runPacked(packed, draws, nullptr);
  const int64_t longest_q = packed.is_packed ? findLongest(packed, false) : query.size(1);
  const int64_t longest_k = packed.is_packed ? findLongest(packed, true) : key.size(1);
  const auto count = static_cast<int64_t>(packed.parts.size());
  const auto options = query.options().dtype(query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  Tensor sums = at::zeros({count, query.size(2), wants_sums ? longest_q : 0}, options);
  for (size_t i = 0; wants_sums && i < packed.parts.size(); i++) {
    const Tensor &part = result.logsumexps[i];
    sums[static_cast<int64_t>(i)].slice(1, 0, part.size(2)).copy_(part[0]);
  }
  return {result.output,
          sums,
          toTensor(draws.seed()),
          toTensor(draws.offset()),
          max_q.value_or(longest_q),
          max_k.value_or(longest_k)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficientForwardBackward(
    const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &bias,
    const Tensor &output, const OptionalTensor &cum_q, const OptionalTensor &cum_k, SymInt, SymInt,
    const Tensor &logsumexp, double dropout, const Tensor &seed, const Tensor &offset, int64_t mask_type,
    bool wants_bias, std::optional<double> scale, std::optional<int64_t>, std::optional<int64_t> window, bool) {
  if (!grad.defined()) {
    return {};
  }
  const Packed packed = makeEfficient(query, key, value, bias, cum_q, cum_k, mask_type, scale, std::nullopt, window);
  Draws draws(query.device().index(), dropout, toNumber(seed), toNumber(offset));
  std::vector<Tensor> sums;
  for (size_t i = 0; i < packed.parts.size(); i++) {
    sums.push_back(
        logsumexp.narrow(0, static_cast<int64_t>(i), 1).slice(2, 0, packed.parts[i].q_end - packed.parts[i].q_begin));
  }
  auto [a, b, c, d] = runPackedBackward(packed, draws, grad, output, sums, wants_bias && isGiven(bias));
  return {a, b, c, d};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_flash_attention", &flash);
  m.impl("_scaled_dot_product_flash_attention_backward", &flashBackward);
  m.impl("_scaled_dot_product_efficient_attention", &efficient);
  m.impl("_scaled_dot_product_efficient_attention_backward", &efficientBackward);
  m.impl("_scaled_dot_product_cudnn_attention", &cudnn);
  m.impl("_scaled_dot_product_cudnn_attention_backward", &cudnnBackward);
  m.impl("_fill_mem_eff_dropout_mask_", &fillDropoutMask);
#if defined(DIT_HAS_FLASH_PAGES)
  m.impl("_flash_attention_forward", &flashForward);
  m.impl("_flash_attention_forward_no_dropout_inplace", &flashForwardInto);
#else
  m.impl("_flash_attention_forward", &flashForwardPlain);
#endif
  m.impl("_flash_attention_backward", &flashForwardBackward);
  m.impl("_efficient_attention_forward", &efficientForward);
  m.impl("_efficient_attention_backward", &efficientForwardBackward);
}

}  // namespace
}  // namespace ditorch
